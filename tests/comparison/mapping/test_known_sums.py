"""A sum of gradients, of which the layer before recorded the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.mapping.rules import How, TensorRule, TensorRules
from msprobe.comparison.options import Options

from ..dumps import backward, module, read_csv, tensor, write_dump

RULE = TensorRule("qk.output.0", ("q.output.0", "k.output.0"), How(concat=-1))
WHOLE, PART = (2, 6), (2, 3)


def dump(directory: Path, names: list[str], made: list[float], before: float, **fields: Any) -> Path:
    """Projections of one input, in the order of their backward passes; `made`: the gradients they give, `before`: what the norm gets."""
    shape = WHOLE if len(names) == 1 else PART
    data: dict[str, Any] = {"Module.norm.N.forward.0": module([tensor(1.0)], [tensor(1.5)])}
    norm = 2**0.5 if len(names) == 1 else 1.0  # of a tensor twice as long
    for name in names:
        weight = tensor(3.0, shape=(shape[1], 3), Norm=5.0 * norm)
        data[f"Module.{name}.Linear.forward.0"] = module([tensor(1.5)], [tensor(2.0, shape=shape, Norm=2.25 * norm)], weight=weight)
    for name, value in zip(names, made, strict=True):
        data[f"Module.{name}.Linear.backward.0"] = backward([tensor(4.0, shape=shape, Norm=5.0 * norm)], [tensor(value, **fields)])
    data["Module.norm.N.backward.0"] = backward([tensor(before, **fields)], [tensor(9.0)])
    return write_dump(directory, data, level="L0", construct=dict.fromkeys(data), stack={})


def row(tmp_path: Path, target: Path, golden: Path) -> dict[str, str]:
    (report,) = compare(target, golden, tmp_path / "o", Options(tensors=TensorRules((RULE,)))).reports
    assert report.csv is not None
    return next(row for row in read_csv(report.csv) if row["NPU Name"] == "Module.qk.Linear.backward.0.output.0")


@pytest.mark.parametrize("there, word", [(7.0, "pass"), (7.5, "error")])
def test_it_is_compared_with_what_the_layer_before_got(tmp_path: Path, there: float, word: str) -> None:
    target, golden = dump(tmp_path / "t", ["qk"], [7.0], 7.0), dump(tmp_path / "g", ["q", "k"], [3.0, 4.0], there)
    found = row(tmp_path, target, golden)
    assert (found["Bench Name"], found["Result"]) == ("Module.norm.N.backward.0.input.0", word)


def test_not_where_the_layer_before_got_something_else(tmp_path: Path) -> None:
    """A residual adds to it: the sum is left open, with the advice."""
    target, golden = dump(tmp_path / "t", ["qk"], [7.0], 8.0), dump(tmp_path / "g", ["q", "k"], [3.0, 4.0], 8.0)
    found = row(tmp_path, target, golden)
    assert found["Result"] == "not compared" and "record both runs with task tensor" in found["Err_message"]
    assert found["Bench Name"].count(";") == 1


def test_zeros_say_nothing(tmp_path: Path) -> None:
    nothing = {"Max": 0.0, "Min": 0.0, "Mean": 0.0, "Norm": 0.0}
    target = dump(tmp_path / "t", ["qk"], [0.0], 0.0, **nothing)
    golden = dump(tmp_path / "g", ["q", "k"], [0.0, 0.0], 0.0, **nothing)
    assert row(tmp_path, target, golden)["Bench Name"].count(";") == 1
