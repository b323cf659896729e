"""Calls of which every row passes are found in C as `_judge_call` finds them, and none else."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from comparison.dumps import api, statistics, tensor
from msprobe.comparison import judge
from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.judge import Verdict, all_pass
from msprobe.comparison.match import match
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_many import measure_calls
from msprobe.comparison.measure_statistics import StatisticsMeasurer
from msprobe.comparison.rows import calls_of

_INSTEAD = Measure(("N/A",) * 8, Agreement.UNKNOWN)
VALUES: list[Any] = [
    tensor(1.0),
    tensor(1.0, requires_grad=True),
    tensor(1.0, requires_grad=None),
    tensor(1.0, dtype="float16"),
    tensor(1.0, shape=(7,)),
    tensor(1.0, shape=(0,)),
    tensor(1.0 + 1e-9),
    tensor(2.0),
    statistics(math.nan, 1.0, 1.0, 1.0),
    statistics(math.inf, 1.0, 1.0, 1.0),
    statistics(None, None, None, None),
    statistics(1, 1, None, None, dtype="torch.int64"),
    {"type": "float", "value": 0.5},
    {"type": "float", "value": -0.0},
    {"type": "float", "value": math.nan},
    {"type": "float", "value": 1.0},
    {"type": "int", "value": 1},
    {"type": "int", "value": 10**30},
    {"type": "bool", "value": True},
    {"type": "str", "value": "cpu"},
    {"type": "str", "value": "cuda:0"},
    {"type": "slice", "value": [None, 1, 2]},
    None,
]


def measured() -> list[MeasuredCall]:
    """Calls of random values, some alike on both sides, some measured otherwise than they are."""
    rng = random.Random(3)
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for number in range(400):
        values = rng.sample(VALUES, rng.randrange(4))
        others = [value if rng.random() < 0.8 else rng.choice(VALUES) for value in values]
        for side, inputs in zip(sides, (values, others), strict=True):
            side[f"Torch.a.{number}.forward"] = api(inputs, [rng.choice(VALUES[:8])] if rng.random() < 0.2 else [])
    calls = measure_calls(match(calls_of(sides[0], ""), calls_of(sides[1], "")), StatisticsMeasurer(), (), _INSTEAD)
    changes = [{"lost": True, "agreement": Agreement.UNKNOWN}, {"filled": True}, {"reason": "why"}]
    for index, call in enumerate(calls):
        if rng.random() < 0.2 and call.rows and call.rows[0].measure is not None:
            changed = Measured(call.rows[0].pair, call.rows[0].measure._replace(**rng.choice(changes)))
            calls[index] = call._replace(rows=(changed, *call.rows[1:]))
    return calls


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_as_in_python(mode: judge.Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    if judge._passing is None:
        pytest.skip("installed without a compiler")
    calls = measured()
    found = judge.judge(calls, mode, ())
    with monkeypatch.context() as patch:
        patch.setattr(judge, "_passing", None)
        assert found == judge.judge(calls, mode, ())
    at_once = [call for call, verdicts in zip(calls, found, strict=True) if verdicts is all_pass(len(verdicts))]
    assert 20 < len(at_once) < 380
    assert not any(row.measure is not None and row.measure.lost for call in at_once for row in call.rows)


def test_a_call_without_rows_passes() -> None:
    assert all_pass(0) == () and all_pass(2) == (Verdict("pass", ()),) * 2
    assert all_pass(2) is all_pass(2)
