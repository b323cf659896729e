"""Gradients are put to a slot only where no other way is possible; held against all ways. Needs no MindSpore."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from msprobe.mindspore.dump.slots import certain_slots

SHAPES = st.sampled_from([(2, 3), (3,), ()])


@given(st.lists(st.one_of(SHAPES, st.none()), max_size=6), st.data())
def test_what_all_ways_agree_on(shapes: list[tuple[int, ...] | None], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(shapes))), unique=True).map(sorted)) if shapes else []
    gradients = [SimpleNamespace(shape=(9, 9) if shapes[slot] is None else shapes[slot]) for slot in kept]
    ways = [
        way
        for way in combinations(range(len(shapes)), len(gradients))
        if all(shapes[slot] in (None, gradient.shape) for slot, gradient in zip(way, gradients, strict=True))
    ]
    expected = {}
    for number, gradient in enumerate(gradients):
        slots = {way[number] for way in ways}
        if len(slots) == 1:
            expected[slots.pop()] = gradient
    assert certain_slots(gradients, shapes) == expected


def test_the_gradient_of_an_input_that_nobody_asked_for() -> None:
    weight, bias = SimpleNamespace(shape=(4, 3)), SimpleNamespace(shape=(4,))
    assert certain_slots([weight, bias], [(2, 3), (4, 3), (4,)]) == {1: weight, 2: bias}


def test_two_of_one_shape_and_one_gradient() -> None:
    assert certain_slots([SimpleNamespace(shape=(3,))], [(3,), (3,)]) == {}
