"""The numbers in entry names: how often each API and module was called in this step."""

from __future__ import annotations


class Counters:
    """Counts by name; one object per step."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def peek(self, name: str) -> int:
        """The number the next call of `name` gets."""
        return self._next.get(name, 0)

    def take(self, name: str) -> int:
        """The number of this call of `name`; the next one gets one more."""
        number = self._next.get(name, 0)
        self._next[name] = number + 1
        return number

    def give_back(self, name: str, number: int) -> bool:
        """The call with this number does not count after all; False if another one has come since."""
        if self._next.get(name) != number + 1:
            return False
        self._next[name] = number
        return True

    def totals(self, prefix: str) -> tuple[int, int]:
        """How many of the names begin with `prefix`, and how many calls the other names had altogether."""
        found = [name.startswith(prefix) for name in self._next]
        return sum(found), sum(count for count, is_found in zip(self._next.values(), found, strict=True) if not is_found)

    def calls(self, prefix: str) -> int:
        """How many calls the names had altogether that begin with `prefix`; "" for all."""
        return sum(count for name, count in self._next.items() if name.startswith(prefix))
