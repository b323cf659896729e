"""Calls that ran in another order, or again, or are fewer: which belongs to which, where nothing but their values tells."""

from __future__ import annotations

import random

import pytest

from msprobe.comparison.alignment.reordered import _marks_of
from msprobe.comparison.alignment.side import Parents
from msprobe.comparison.match import Around, Matching, align
from msprobe.comparison.names import parse
from msprobe.comparison.rows import Call, Row, calls_of

from ..dumps import Json, api, backward, frame, module, tensor


def aligned(target: Json, golden: Json, parents: tuple[Parents, Parents] = ({}, {}), lines: tuple[Json, Json] | None = None) -> Matching:
    stacks = lines or ({}, {})
    around = Around(parents[0], lambda: stacks[0]), Around(parents[1], lambda: stacks[1])
    return align(calls_of(target, ""), calls_of(golden, ""), around)


def partner(matching: Matching) -> dict[str, str | None]:
    return {pair.target.name: pair.golden.name if pair.golden else None for pair in matching.pairs if pair.target is not None}


def linear(*calls: tuple[float, float]) -> Json:
    """Calls of linear: the value of the input, that of the weight."""
    return {f"Functional.linear.{n}.forward": api([tensor(x), tensor(w)], [tensor(x * w)]) for n, (x, w) in enumerate(calls)}


def names(*numbers: int | None) -> dict[str, str | None]:
    return {f"Functional.linear.{n}.forward": None if m is None else f"Functional.linear.{m}.forward" for n, m in enumerate(numbers)}


def test_two_calls_of_one_api_that_are_exchanged_find_each_other() -> None:
    matching = aligned(linear((1.5, 7.0), (1.5, 3.0), (1.5, 4.0)), linear((1.5, 3.0), (1.5, 7.0), (1.5, 4.0)))
    assert partner(matching) == names(1, 0, 2)
    assert matching.partners.moved == 2


def test_the_weights_tell_when_what_they_multiply_is_rounded() -> None:
    matching = aligned(linear((1.5, 7.0), (1.5, 3.0)), linear((1.5001, 3.0), (1.5002, 7.0)))
    assert partner(matching) == names(1, 0)


def test_experts_that_hold_each_others_weights_stay_where_their_tokens_are() -> None:
    matching = aligned(linear((1.5, 7.0), (2.5, 3.0)), linear((1.5, 3.0), (2.5, 7.0)))
    assert partner(matching) == names(0, 1)
    assert matching.partners.moved == 0


def test_calls_stay_at_their_line_of_code() -> None:
    """Weights that were exchanged, and not the calls: a checkpoint with q for k."""
    frames = {f"Functional.linear.{n}.forward": [frame("/home/me/m.py", n, "forward", f"a{n} = self.l{n}(x)")] for n in range(2)}
    assert partner(aligned(linear((1.5, 7.0), (1.5, 3.0)), linear((1.5, 3.0), (1.5, 7.0)), lines=(frames, frames))) == names(0, 1)
    turned = {name: frames[f"Functional.linear.{1 - n}.forward"] for n, name in enumerate(frames)}
    assert partner(aligned(linear((1.5, 7.0), (1.5, 3.0)), linear((1.5, 3.0), (1.5, 7.0)), lines=(turned, frames))) == names(1, 0)


def test_a_call_added_in_front_and_one_removed_behind_shift_nothing() -> None:
    golden = linear(*((1.5, 3.0 + n) for n in range(6)))
    target = linear((1.5, 40.0), *((1.5, 3.0 + n) for n in range(5)))
    assert partner(aligned(target, golden)) == names(None, 0, 1, 2, 3, 4)


def test_weights_count_for_more_than_values_that_other_layers_take_in_as_well() -> None:
    """The second of three layers is gone: the third takes in what the second did, and has its own weight."""
    golden = linear((1.5, 3.0), (4.5, 5.0), (22.5, 7.0))
    target = linear((1.5, 3.0), (4.5, 7.0))
    assert partner(aligned(target, golden)) == names(0, 2)


def test_a_second_micro_batch_is_not_run_again_by_the_backward_pass() -> None:
    """What both take in alike, a mask without gradient, and an optimizer that meets equal values."""

    def micro_batch(n: int) -> Json:
        return {
            f"Tensor.neg.{n}.forward": api([tensor(9.0)], [tensor(-9.0)]),
            f"Functional.linear.{n}.forward": api([tensor(1.5 + n), tensor(3.0)], [tensor(4.5, requires_grad=True)]),
            f"Functional.linear.{n}.backward": backward([tensor(0.5)], [tensor(0.25)]),
        }

    update = {f"Tensor.mul_.{n}.forward": api([tensor(5.0)], [tensor(4.0)]) for n in range(2)}
    matching = aligned({**micro_batch(0), **micro_batch(1), **update}, micro_batch(0))
    assert matching.partners.again == ({}, {})
    assert partner(matching)["Tensor.neg.0.forward"] == "Tensor.neg.0.forward"


def test_what_a_backward_pass_runs_again_is_told_apart() -> None:
    """Between the gradients of the last call and those of the first one."""
    once = {
        "Functional.linear.0.forward": api([tensor(1.5), tensor(3.0)], [tensor(4.5)]),
        "Functional.relu.0.forward": api([tensor(4.5)], [tensor(4.75)]),
        "Torch.sum.0.forward": api([tensor(4.75)], [tensor(9.0)]),
    }
    gradients = {
        "Torch.sum.0.backward": backward([tensor(1.0)], [tensor(0.5)]),
        "Functional.relu.0.backward": backward([tensor(0.5)], [tensor(0.25)]),
        "Functional.linear.0.backward": backward([tensor(0.25)], [tensor(0.75)]),
    }
    again = {f"Functional.{api}.1.forward": once[f"Functional.{api}.0.forward"] for api in ("linear", "relu")}
    first, *rest = gradients.items()
    matching = aligned({**once, **dict([first]), **again, **dict(rest)}, {**once, **gradients})
    assert matching.partners.again[0] == {
        "Functional.linear.1.forward": "Functional.linear.0.forward",
        "Functional.relu.1.forward": "Functional.relu.0.forward",
    }
    found = partner(matching)
    assert all(found[name] == name for name in (*once, *gradients))


def test_what_stands_under_one_heading_pairs_by_when_it_ran() -> None:
    """The gradient is clipped after each of two micro-batches, and should be clipped after the second."""

    def run(clipped: tuple[int, ...]) -> tuple[Json, Parents]:
        data: Json = {}
        parents: dict[str, str | None] = {}
        for n in range(2):
            data[f"Module.net.Net.forward.{n}"] = module([tensor(1.5 + n)], [tensor(2.5 + n)])
            parents[f"Module.net.Net.forward.{n}"] = None
            if n in clipped:
                name = f"Torch._foreach_norm.{len(data) - n - 1}.forward"
                data[name] = api([tensor(6.0 + n + len(clipped))], [tensor(7.0)])
                parents[name] = "clip_grad"
        return data, parents

    (target, ours), (golden, theirs) = run((0, 1)), run((1,))
    found = partner(aligned(target, golden, (ours, theirs)))
    assert found["Torch._foreach_norm.0.forward"] is None
    assert found["Torch._foreach_norm.1.forward"] == "Torch._foreach_norm.0.forward"


def test_marks_in_c() -> None:
    """What differs between two sides, found in C, is what Python finds, for values and checksums of all kinds."""
    marks = pytest.importorskip("msprobe.comparison.alignment._marks").differing
    rng = random.Random(0)
    statistics = [
        (1.0, 2.0, 3.0, 4.0),
        (1.0, 2.0, 3.0, 5.0),
        (1, 2, 3, 4),
        (0.0, 0.0, 0.0, 0.0),
        (None,) * 4,
        (1.0, 1.0, None, 2.0),
        ("a",) * 4,
    ]

    def call(number: int) -> Call:
        rows = []
        for place in range(rng.randrange(4)):
            kind, role, md5 = (
                rng.choice(["tensor", "scalar"]),
                rng.choice(["input", "output", "parameters"]),
                rng.choice([None, None, "a", 5]),
            )
            numel = rng.choice([0, 1, 6, 6, 6, None, True, 1.0, 10**30])
            rows.append(Row("", f"{role}.{place}", role, kind, "d", "[]", "N/A", rng.choice(statistics), numel, md5, None))
        return Call(f"Torch.a.{number}.forward", parse(f"Torch.a.{number}.forward"), tuple(rows))

    for _ in range(300):
        calls: list[Call | None] = [call(number) for number in range(rng.randrange(6))]
        others = [mine if rng.random() < 0.3 else None if rng.random() < 0.1 else call(number) for number, mine in enumerate(calls)]
        assert marks(calls, others) == (_marks_of(calls, others, 0), _marks_of(calls, others, 1))
