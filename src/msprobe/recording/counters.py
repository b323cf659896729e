"""The numbers in entry names: how often each API and module was called in this step."""

from __future__ import annotations


class Counters:
    """Counts by name; one object per step."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        """Name -> the number that its next call gets."""

    def peek(self, name: str) -> int:
        """The number the next call of `name` gets."""
        return self.by_name.get(name, 0)

    def take(self, name: str) -> int:
        """The number of this call of `name`; the next one gets one more."""
        number = self.by_name.get(name, 0)
        self.by_name[name] = number + 1
        return number

    def give_back(self, name: str, number: int) -> bool:
        """The call with this number does not count after all; False if another one has come since."""
        if self.by_name.get(name) != number + 1:
            return False
        self.by_name[name] = number
        return True

    def totals(self, prefix: str) -> tuple[int, int]:
        """How many of the names begin with `prefix`, and how many calls the other names had altogether."""
        found = [name.startswith(prefix) for name in self.by_name]
        return sum(found), sum(count for count, is_found in zip(self.by_name.values(), found, strict=True) if not is_found)

    def calls(self, prefix: str) -> int:
        """How many calls the names had altogether that begin with `prefix`; "" for all."""
        return sum(count for name, count in self.by_name.items() if name.startswith(prefix))
