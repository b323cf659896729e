"""Which differences of dtype `--accept-dtype` accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparison.commands import compare
from comparison.dumps import api, tensor, write_dump
from msprobe.comparison.judging.accepted import is_acceptable


@pytest.mark.parametrize(
    ("pair", "accepted"),
    [
        (("bfloat16", "float32"), True),
        (("float64", "float8_e4m3fn"), True),
        (("complex64", "complex128"), True),
        (("float32", "float32"), False),
        (("complex64", "float32"), False),
        (("int32", "int64"), False),
        (("int32", "float32"), False),
        (("bool", "bfloat16"), False),
        (("float4_e2m1fn_x2", "float32"), False),
        (("unheard_of", "float32"), False),
    ],
)
def test_two_precisions_of_one_kind_of_number(pair: tuple[str, str], accepted: bool) -> None:
    names = [f"torch.{name}" for name in pair]
    assert is_acceptable(names[0], names[1]) is is_acceptable(names[1], names[0]) is accepted


def sides(tmp_path: Path, ours: object, theirs: object) -> tuple[Path, Path]:
    dumps = [{"Tensor.to.0.forward": api([tensor(1.0), value], [tensor(2.0, dtype)])} for value, dtype in (ours, theirs)]  # type: ignore[attr-defined]
    return write_dump(tmp_path / "t", dumps[0]), write_dump(tmp_path / "g", dumps[1])


def test_an_argument_that_names_the_dtype(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = [({"type": "torch.dtype", "value": f"torch.{dtype}"}, dtype) for dtype in ("bfloat16", "float32")]
    paths = sides(tmp_path, *named)
    assert compare(capsys, *paths, tmp_path / "plain").code == 1
    ran = compare(capsys, *paths, tmp_path / "meant", "--accept-dtype")
    assert ran.code == 0
    assert ran.result("Tensor.to.0.forward.input.1") == "pass"


@pytest.mark.parametrize(("ours", "theirs"), [("torch.int32", "torch.float32"), ("cubic", "linear")])
def test_other_arguments_stay_errors(ours: str, theirs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sides(tmp_path, *[({"type": "str", "value": value}, "float32") for value in (ours, theirs)])
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.result("Tensor.to.0.forward.input.1") == "error"


def test_a_difference_beyond_rounding_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def dump(side: str, value: float, dtype: str) -> Path:
        return write_dump(tmp_path / side, {"Functional.linear.0.forward": api([tensor(1.0)], [tensor(value, dtype)])})

    ran = compare(capsys, dump("t", 2.5, "bfloat16"), dump("g", 2.0, "float32"), tmp_path / "o", "--accept-dtype")
    assert ran.code == 1
    assert ran.messages("Functional.linear.0.forward.output.0")[0] == "error: The output differs although the inputs and parameters agree."
    assert "`linear` differs" in ran.out.splitlines()[0]


def test_a_dtype_that_changes_before_a_weight_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weight is no matter of the dtype: the sentence is about it, with the option or without."""

    def dump(side: str, weight: float, dtype: str) -> Path:
        data = {
            "Functional.linear.0.forward": api([tensor(1.0), tensor(3.0)], [tensor(2.0, dtype)]),
            "Functional.linear.1.forward": api([tensor(2.0, dtype), tensor(weight)], [tensor(weight * 2, dtype)]),
        }
        return write_dump(tmp_path / side, data)

    paths = dump("t", 4.5, "bfloat16"), dump("g", 4.0, "float32")
    for options in ((), ("--accept-dtype",)):
        assert "`weight` of `linear`" in compare(capsys, *paths, tmp_path / "o", *options).out.splitlines()[0]
