from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.comparison.alignment import sequence
from msprobe.comparison.alignment.sequence import Detail, align, increasing

KINDS = st.lists(st.sampled_from("abcdef"), max_size=30)


def test_equal_sequences_pair_one_by_one() -> None:
    assert align("abca", "abca") == [(0, 0), (1, 1), (2, 2), (3, 3)]


@given(KINDS, KINDS)
def test_pairs_are_one_to_one_in_order_and_of_one_kind(ours: list[str], theirs: list[str]) -> None:
    pairs = align(ours, theirs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert all(ours[i] == theirs[j] for i, j in pairs)


@given(KINDS, KINDS)
def test_as_many_pairs_as_a_longest_common_subsequence(ours: list[str], theirs: list[str]) -> None:
    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i, a in enumerate(ours):
        for j, b in enumerate(theirs):
            best[i + 1][j + 1] = best[i][j] + 1 if a == b else max(best[i][j + 1], best[i + 1][j])
    assert len(align(ours, theirs)) == best[-1][-1]


def layers(count: int) -> list[tuple[str, int]]:
    """A run of a model: five calls a layer, the weights of each its own."""
    return [(kind, 10 * layer + place) for layer in range(count) for place, kind in enumerate(("norm", "linear", "add", "linear", "add"))]


def aligned(ours: list[tuple[str, int]], theirs: list[tuple[str, int]], marks: bool = True) -> dict[int, int]:
    def details(calls: list[tuple[str, int]]) -> sequence.Details:
        return lambda index: Detail("shape", None, [calls[index][1]] if marks and calls[index][0] in ("norm", "linear") else [])

    pairs = align([kind for kind, _ in ours], [kind for kind, _ in theirs], (details(ours), details(theirs)))
    return {ours[i][1]: theirs[j][1] for i, j in pairs}


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(0, 6), st.randoms(use_true_random=False))
def test_removed_and_added_calls_leave_all_others_where_they_belong(count: int, changes: int, random: random.Random) -> None:
    ours, theirs = layers(count), layers(count)
    for _ in range(changes):
        if random.random() < 0.5:
            del ours[random.choice([i for i, (kind, _) in enumerate(ours) if kind != "add"])]
        else:
            theirs.insert(random.randrange(len(theirs)), ("extra", -1))
    found = aligned(ours, theirs)
    for kind, number in ours:
        if kind != "add":
            assert found[number] == number


def test_an_added_layer_in_the_middle_is_found_by_the_weights_of_the_others() -> None:
    theirs = layers(40)
    ours = theirs[:50] + [(kind, number + 100_000) for kind, number in layers(1)] + theirs[50:]
    assert aligned(ours, theirs) == {number: number for _, number in theirs}


def test_lines_of_code_tell_which_of_two_alike_was_removed() -> None:
    def details(lines: str) -> sequence.Details:
        return lambda index: Detail("shape", lines[index])

    assert align("aaa", "aa", (details("xyz"), details("yz"))) == [(1, 0), (2, 1)]
    assert align("aaa", "aa", (details("xyz"), details("xz"))) == [(0, 0), (2, 1)]


def test_shapes_tell_which_of_two_was_removed() -> None:
    def details(shapes: str) -> sequence.Details:
        return lambda index: Detail(shapes[index])

    assert align("aab", "ab", (details("xyz"), details("yz"))) == [(1, 0), (2, 1)]
    assert align("ab", "ab", (details("xy"), details("zy")), only_alike=True) == [(1, 1)]


def test_a_long_sequence_without_any_mark_is_walked_through() -> None:
    """Too long for a table, and repetitive: what lies far from the changes pairs with what it is."""
    theirs = layers(2000)
    ours = [*theirs[:300], ("extra", -1), *theirs[300:5000], *theirs[5003:]]
    found = aligned(ours, theirs, marks=False)
    assert sum(found.get(number) == number for _, number in ours) >= len(ours) - 20


def test_the_longest_ascending_part() -> None:
    assert increasing([(0, 3), (1, 0), (2, 1), (3, 5), (4, 2)]) == [(1, 0), (2, 1), (4, 2)]
    assert increasing([]) == []
