"""Which gradients are whose, where a compiled function does not say. Imports no MindSpore."""

from __future__ import annotations

from typing import Any, TypeAlias

Shape: TypeAlias = "tuple[int, ...] | None"


def certain_slots(gradients: list[Any], shapes: list[Shape]) -> dict[int, Any]:
    """Slot -> gradient, as far as that is certain.

    A compiled function gives gradients of those inputs only for which somebody asked, in order, and does not say which these are. They are
    put to slots of their shapes from the left and from the right; where both ways agree there is no other.

    Args:
        gradients: fewer than there are slots.
        shapes: of the slots; None where it is not known, which fits all.
    """

    def fit(order: range, wanted: list[int]) -> list[int]:
        found: list[int] = []
        slots = iter(order)
        for number in wanted:
            shape = tuple(gradients[number].shape) if gradients[number] is not None else None
            found.append(next((slot for slot in slots if shape is None or shapes[slot] is None or shapes[slot] == shape), -1))
        return found

    numbers = list(range(len(gradients)))
    left = fit(range(len(shapes)), numbers)
    right = fit(range(len(shapes) - 1, -1, -1), numbers[::-1])[::-1]
    return {slot: gradients[number] for number, slot in enumerate(left) if slot >= 0 and slot == right[number]}
