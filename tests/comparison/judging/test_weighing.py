"""Differences against what rounding explains."""

from __future__ import annotations

import math
from typing import Any

import pytest

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.gradient_slots import not_measured
from msprobe.comparison.judging.weighing import weigh
from msprobe.comparison.match import match
from msprobe.comparison.measure import Agreement
from msprobe.comparison.measure_many import measure_calls
from msprobe.comparison.measure_statistics import StatisticsMeasurer
from msprobe.comparison.rows import calls_of

from ..dumps import Json, api, backward, module, statistics

LOWEST = -3.4028234663852886e38
ROUNDING, DIFFERENT, SAME, UNKNOWN = Agreement.ROUNDING, Agreement.DIFFERENT, Agreement.SAME, Agreement.UNKNOWN


def value(error: float = 0.0, norm: float = 8.0, shape: tuple[int, ...] = (8, 64), dtype: str = "float32", largest: float = 2.0) -> Json:
    """A tensor whose statistics are off by the relative size `error`."""
    return statistics(largest * (1 + error), -largest, 0.01, norm * (1 + error), shape=list(shape), dtype=dtype)


def weighed(target: Json, golden: Json) -> dict[str, MeasuredCall]:
    measurer = StatisticsMeasurer()
    pairs = match(calls_of(target, "t"), calls_of(golden, "g"))
    calls = measure_calls(pairs, measurer, (), not_measured(measurer.columns, "N/A"))
    return {call.name: call for call in weigh(calls, sampled=True)}


def agreement(calls: dict[str, MeasuredCall], call: str, key: str) -> Agreement:
    (found,) = (row.measure for row in calls[call].rows if row.pair.target is not None and row.pair.target.key == key)
    assert found is not None
    return found.agreement


def one(name: str, given: float, result: float, *others: Json, **shape: Any) -> Agreement:
    """Agreement of the output of one call whose input and output are off by that much."""
    target = {name: api([value(given), *others], [value(result, **shape)])}
    golden = {name: api([value(), *others], [value(**shape)])}
    return agreement(weighed(target, golden), name, "output.0")


@pytest.mark.parametrize(
    ("name", "given", "result", "expected"),
    [
        ("Functional.relu.0.forward", 0.0, 3e-8, ROUNDING),
        ("Functional.relu.0.forward", 0.0, 3e-6, DIFFERENT),  # nothing to add up, nothing that came in
        ("Functional.relu.0.forward", 1e-5, 3e-5, ROUNDING),  # what came in explains it
        ("Functional.relu.0.forward", 1e-5, 3e-4, DIFFERENT),
        ("Functional.layer_norm.0.forward", 0.0, 2e-6, ROUNDING),  # sums over 64 elements
        ("Functional.layer_norm.0.forward", 0.0, 2e-5, DIFFERENT),
        ("Torch.unknown.0.forward", 0.0, 9e-5, ROUNDING),  # of which nothing is known: the table
        ("Torch.unknown.0.forward", 0.0, 2e-4, DIFFERENT),
    ],
)
def test_what_an_operation_may_add(name: str, given: float, result: float, expected: Agreement) -> None:
    assert one(name, given, result) is expected


def test_longer_sums_may_err_more() -> None:
    short = value(shape=(64, 64))
    long = value(shape=(64, 4096), norm=512.0)
    assert one("Functional.linear.0.forward", 0.0, 1e-5, short) is DIFFERENT
    target, golden = (
        {"Functional.linear.0.forward": api([value(shape=(8, 4096), norm=64.0), long], [value(error, norm=512.0)])} for error in (1e-5, 0.0)
    )
    assert agreement(weighed(target, golden), "Functional.linear.0.forward", "output.0") is ROUNDING


def test_a_sum_that_cancels_keeps_the_error_of_its_terms() -> None:
    def data(error: float, result: float) -> Json:
        return {"Torch.sub.0.forward": api([value(error), value()], [value(result, norm=8e-3, largest=2e-3)])}

    assert agreement(weighed(data(1e-7, 5e-5), data(0, 0)), "Torch.sub.0.forward", "output.0") is ROUNDING
    assert agreement(weighed(data(1e-7, 5e-3), data(0, 0)), "Torch.sub.0.forward", "output.0") is DIFFERENT


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_an_eps_that_is_ten_times_larger_is_no_rounding(scale: float) -> None:
    """Whether what is normalised is of size 1 or near zero: sizes are relative."""
    name = "Module.norm.LlamaRMSNorm.forward.0"

    def data(result: float) -> Json:
        return {name: module([value(norm=22.6 * scale, largest=3 * scale)], [value(result, norm=22.6, largest=3.0)], weight=value())}

    assert agreement(weighed(data(-1e-5), data(0.0)), name, "output.0") is DIFFERENT
    assert agreement(weighed(data(1e-7), data(0.0)), name, "output.0") is ROUNDING


def test_errors_add_up_over_a_chain_and_stay_rounding() -> None:
    """Each call adds its own; in the end they are far beyond what one alone may add."""

    def data(on: bool) -> Json:
        error = [0.004 * math.sqrt(n + 1) if on else 0.0 for n in range(40)]
        dtype = "bfloat16" if on else "float32"
        return {
            f"Functional.silu.{n}.forward": api(
                [value(error[n], norm=8.0 + n, dtype=dtype)], [value(error[n + 1], norm=9.0 + n, dtype=dtype)]
            )
            for n in range(39)
        }

    calls = weighed(data(True), data(False))
    assert {max(call.inputs, call.outputs) for call in calls.values()} == {ROUNDING}


def test_a_real_difference_explains_nothing() -> None:
    """What follows from it stays a difference, however large it was."""

    def data(error: float) -> Json:
        return {
            "Functional.relu.0.forward": api([value()], [value(error, norm=9.0)]),
            "Functional.silu.0.forward": api([value(error, norm=9.0)], [value(error / 2, norm=10.0)]),
        }

    calls = weighed(data(0.1), data(0.0))
    assert agreement(calls, "Functional.relu.0.forward", "output.0") is DIFFERENT
    assert agreement(calls, "Functional.silu.0.forward", "input.0") is DIFFERENT
    assert agreement(calls, "Functional.silu.0.forward", "output.0") is DIFFERENT


def test_one_value_has_one_verdict() -> None:
    """An input takes over that of the output it was."""

    def data(error: float) -> Json:
        return {
            "Functional.relu.0.forward": api([value()], [value(error, norm=9.0)]),
            "Torch.unknown.0.forward": api([value(error, norm=9.0)], [value(norm=10.0)]),
        }

    assert agreement(weighed(data(5e-6), data(0.0)), "Torch.unknown.0.forward", "input.0") is DIFFERENT  # the table alone would let it pass


def test_gradients_depend_on_what_the_forward_call_kept() -> None:
    def data(kept: float, gradient: float) -> Json:
        return {
            "Functional.silu.0.forward": api([value(kept)], [value(kept, norm=9.0)]),
            "Functional.silu.0.backward": backward([value(norm=3.0)], [value(gradient, norm=4.0)]),
        }

    assert agreement(weighed(data(1e-5, 3e-5), data(0.0, 0.0)), "Functional.silu.0.backward", "output.0") is ROUNDING
    assert agreement(weighed(data(0.0, 3e-5), data(0.0, 0.0)), "Functional.silu.0.backward", "output.0") is DIFFERENT


def test_a_gradient_that_is_almost_zero_may_err_by_what_its_terms_may() -> None:
    """The bias before a normalisation: its gradient is zero but for rounding, and differs by all of itself."""

    def data(error: float) -> Json:
        given, weight = value(), value(shape=(64, 64))
        bias = value(error, shape=(64,), norm=1e-8, largest=1e-9)
        return {
            "Functional.linear.0.forward": api([given, weight, value(shape=(64,))], [value(norm=9.0)]),
            "Functional.linear.0.backward": backward([value(norm=1.0)], [value(norm=2.0), value(shape=(64, 64), norm=3.0), bias]),
        }

    assert agreement(weighed(data(0.9), data(0.0)), "Functional.linear.0.backward", "output.2") is ROUNDING


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        ((0.0, -math.inf, -math.inf, math.inf), (0.0, LOWEST, -1.7e38, 3e38), ROUNDING),
        ((0.0, -1.7976931348623157e308, -8.988465674311579e307, math.inf), (0.0, LOWEST, -1.7014117331926443e38, 3e38), ROUNDING),
        ((0.0, LOWEST, -1.1e38, 2e38), (0.0, LOWEST, -1.7e38, 3e38), DIFFERENT),  # masks more
        ((3.0, LOWEST, -1.7e38, 3e38), (6.0, LOWEST, -1.7e38, 3e38), DIFFERENT),  # the rest differs
        ((6.0 + 1e-6, LOWEST, -1.7e38, 3e38), (6.0, LOWEST, -1.7e38, 3e38), ROUNDING),
        ((0.0, -1.0, -0.5, 3.0), (0.0, LOWEST, -1.7e38, 3e38), DIFFERENT),  # not masked at all
    ],
)
def test_masks(target: Any, golden: Any, expected: Agreement) -> None:
    data = [{"Torch.op.0.forward": api([], [statistics(*side, dtype="float32")])} for side in (target, golden)]
    assert agreement(weighed(*data), "Torch.op.0.forward", "output.0") is expected


def test_a_weight_in_another_order_shows_in_the_last_digits_of_its_norm() -> None:
    def data(error: float) -> Json:
        weights = {f"Module.l{n}.Linear.forward.0": module([], [value(norm=n + 1.0)], weight=value(norm=n + 5.0)) for n in range(3)}
        moved = statistics(2.0, -2.0, 0.01, 8.0 * (1 + error), shape=[64, 64], dtype="float32")
        return {**weights, "Module.x.Linear.forward.0": module([], [value()], weight=moved)}

    assert agreement(weighed(data(4e-16), data(0.0)), "Module.x.Linear.forward.0", "parameters.weight") is DIFFERENT


def test_on_another_machine_last_digits_say_nothing() -> None:
    def data(error: float) -> Json:
        return {
            f"Module.l{n}.Linear.forward.0": module(
                [], [value(norm=n + 1.0)], weight=statistics(2.0, -2.0, 0.01, (n + 5.0) * (1 + error), dtype="float32")
            )
            for n in range(3)
        }

    calls = weighed(data(4e-16), data(0.0))
    assert {call.parameters for call in calls.values()} <= {ROUNDING, SAME}


def test_a_mask_that_only_one_side_passes_is_no_difference_where_the_outputs_agree() -> None:
    name = "Module.attn.Attention.forward.0"

    def data(mask: Any, result: float, weights: Any) -> Json:
        return {name: module([value(), mask], [value(result, norm=9.0), weights])}

    calls = weighed(data(None, 1e-7, None), data(value(norm=3.0), 0.0, value(norm=4.0)))
    assert agreement(calls, name, "input.1") is UNKNOWN and agreement(calls, name, "output.1") is UNKNOWN
    assert calls[name].inputs is SAME and calls[name].outputs is ROUNDING
    calls = weighed(data(None, 0.1, None), data(value(norm=3.0), 0.0, value(norm=4.0)))
    assert agreement(calls, name, "input.1") is DIFFERENT
