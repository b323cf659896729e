"""Keys of debug.json that no two values share."""

from __future__ import annotations

from msprobe.format.names import DebugName
from msprobe.log import logger

_GRADIENT = "_grad"


class Keys:
    """The keys of one step.

    A value called `a_grad` and the gradient of a value called `a` would have the same keys. Whoever comes later gets the next number
    that is free, for both of its keys.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._used: set[tuple[str, int]] = set()
        self._told: set[str] = set()

    def take(self, name: str, gradient: bool) -> tuple[str, str | None]:
        """The key of the next value of a name, and that of its gradient, None where none is wanted."""
        number = wanted = self._next.get(name, 0)
        gradients = name + _GRADIENT
        while (name, number) in self._used or (gradient and (gradients, number) in self._used):
            number += 1
        if number != wanted and name not in self._told:
            self._told.add(name)
            other = name.removesuffix(_GRADIENT) if (name, wanted) in self._used else gradients
            logger.warning(
                f'save(name={name!r}): the keys of its gradients and those of "{other}" are the same words; what comes later has the next '
                f"number that is free, here {number}"
            )
        self._next[name] = number + 1
        self._used.add((name, number))
        if not gradient:
            return str(DebugName(name, number)), None
        self._used.add((gradients, number))
        return str(DebugName(name, number)), str(DebugName(gradients, number))
