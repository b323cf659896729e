"""The call that only one side has, and that makes what differs, is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe

from .dumps import Json, api, frame, module, tensor, write_dump

BLOCK, LINEAR = "Module.block.Block.forward.0", "Functional.linear.0.forward"
NEXT = "Functional.relu.0.forward"


def frames(line: int, source: str, *, library: bool = False) -> list[str]:
    if library:
        inner = frame("/venv/lib/python3.11/site-packages/transformers/models/m.py", line, "forward", source)
        return [inner, frame("/home/me/train.py", 9, "train", "model(x)")]
    return [frame("/home/me/patch.py", line, "patched", source), frame("/home/me/train.py", 9, "train", "model(x)")]


def dump(directory: Path, extra: list[tuple[str, float, float]], *, noise: float = 0.0, out: float | None = None) -> Path:
    """Block(linear, then `extra` calls: name, what goes in, what comes out), and a relu on what the block gives."""
    out = out or (extra[-1][2] if extra else 2.0)
    data: Json = {
        "Torch.exp.0.forward": api([tensor(0.5)], [tensor(1.0 + noise)]),
        LINEAR: api([tensor(1.0)], [tensor(2.0)]),
    }
    data |= {name: api([tensor(came)], [tensor(went)]) for name, came, went in extra}
    data |= {BLOCK: module([tensor(1.0)], [tensor(out)]), NEXT: api([tensor(out)], [tensor(out)])}
    construct = dict.fromkeys((LINEAR, *(name for name, _, _ in extra)), BLOCK) | {BLOCK: None, NEXT: None, "Torch.exp.0.forward": None}
    stack = {name: frames(20 + number, name) for number, name in enumerate(data)}
    stack[BLOCK] = [frame("/home/me/train.py", 9, "train", "model(x)")]
    return write_dump(directory, data, construct=construct, stack=stack)


def told(tmp_path: Path, target: Path, golden: Path) -> list[str]:
    return [line.text for line in describe(compare(target, golden, tmp_path / "o"))]


MUL = ("Tensor.__mul__.0.forward", 2.0, 2.5)


def test_a_patched_forward_that_rounding_before_it_had_hidden(tmp_path: Path) -> None:
    """The first difference to the last bit lies before; the call without partner is named all the same."""
    text = told(tmp_path, dump(tmp_path / "t", [MUL], noise=1e-7), dump(tmp_path / "g", []))
    assert text[0] == "Inputs equal, `block` differs by what the target alone calls, `__mul__` (forward): patch.py:22"
    assert any("the likely cause is Tensor.__mul__.0.forward, which the target alone calls" in line for line in text)
    assert "  the likely cause at /home/me/patch.py:22 in patched: Tensor.__mul__.0.forward" in text


def test_a_call_that_leads_nowhere_is_not_the_cause(tmp_path: Path) -> None:
    """It stands first, and is no more than mentioned."""
    text = told(tmp_path, dump(tmp_path / "t", [("Tensor.abs.0.forward", 2.0, 7.0), MUL]), dump(tmp_path / "g", []))
    assert text[0] == "Inputs equal, `block` differs by what the target alone calls, `__mul__` (forward): patch.py:23"
    assert any(line.startswith("  First call without partner (earlier than that): Tensor.abs.0.forward") for line in text)


def test_several_in_a_row(tmp_path: Path) -> None:
    extra = [("Tensor.abs.0.forward", 2.0, 7.0), MUL, ("Tensor.__add__.0.forward", 2.5, 3.5)]
    text = told(tmp_path, dump(tmp_path / "t", extra), dump(tmp_path / "g", []))
    assert text[0] == "Inputs equal, `block` differs by what the target alone calls, `__mul__` and 1 more (forward): patch.py:23"
    assert any("Tensor.__mul__.0.forward (and 1 more behind it), which the target alone calls" in line for line in text)


def test_a_call_that_the_target_lost(tmp_path: Path) -> None:
    """Its line is that of the golden run."""
    text = told(tmp_path, dump(tmp_path / "t", [], noise=1e-7), dump(tmp_path / "g", [MUL]))
    assert text[0] == "Inputs equal, `block` differs by what the golden run alone calls, `__mul__` (forward): patch.py:22"


def test_a_result_that_was_not_recorded_as_it_left(tmp_path: Path) -> None:
    """Nothing leads to the output (it was changed in place): what stands behind the last call of both is all there is."""
    target = dump(tmp_path / "t", [("Tensor.mul_.0.forward", 2.0, 2.4)], noise=1e-7, out=2.5)
    text = told(tmp_path, target, dump(tmp_path / "g", []))
    assert text[0] == "Inputs equal, `block` differs by what the target alone calls, `mul_` (forward): patch.py:22"


def test_code_between_two_calls(tmp_path: Path) -> None:
    """The block's own code scales what it hands to the relu in it."""

    def side(name: str, factor: float) -> Path:
        data: Json = {"Torch.exp.0.forward": api([tensor(0.5)], [tensor(factor)]), LINEAR: api([tensor(1.0)], [tensor(2.0)])}
        if factor != 1.0:
            data["Tensor.__mul__.0.forward"] = api([tensor(2.0)], [tensor(2.5)])
        handed = 2.0 if factor == 1.0 else 2.5
        data |= {NEXT: api([tensor(handed)], [tensor(handed)]), BLOCK: module([tensor(1.0)], [tensor(handed)])}
        construct = dict.fromkeys(data, BLOCK) | {BLOCK: None, "Torch.exp.0.forward": None}
        stack = {name: frames(20 + number, name) for number, name in enumerate(data)}
        return write_dump(tmp_path / name, data, construct=construct, stack=stack)

    text = told(tmp_path, side("t", 1.0 + 1e-7), side("g", 1.0))
    assert text[0] == (
        "Inputs equal, the code of `block` before it calls `relu` differs by what the target alone calls, `__mul__` (forward): patch.py:22"
    )


def test_code_outside_of_modules(tmp_path: Path) -> None:
    def side(name: str, *extra: tuple[str, float, float]) -> Path:
        data: Json = {"Torch.exp.0.forward": api([tensor(0.5)], [tensor(1.0 + (1e-7 if extra else 0.0))])}
        data |= {called: api([tensor(came)], [tensor(went)]) for called, came, went in extra}
        data["Functional.softmax.0.forward"] = api([tensor(extra[-1][2] if extra else 1.0)], [tensor(3.0)])
        return write_dump(tmp_path / name, data, level="L1")

    text = told(tmp_path, side("t", ("Tensor.__mul__.0.forward", 1.0, 1.5)), side("g"))
    assert text[0].startswith("`input.0` of `softmax` differs, nothing recorded before it does by what the target alone calls, `__mul__`")


@pytest.mark.parametrize("library", [True, False])
def test_the_line_of_a_library_where_the_users_line_only_calls_the_model(library: bool, tmp_path: Path) -> None:
    """An argument inside of a model that is installed: the line that calls the model tells nothing."""

    def side(name: str, eps: float) -> Path:
        add = "Tensor.__add__.0.forward"
        data: Json = {add: api([tensor(1.0), {"type": "float", "value": eps}], [tensor(2.0)]), BLOCK: module([tensor(1.0)], [tensor(2.0)])}
        stack = {add: frames(66, "x + self.eps", library=library), BLOCK: [frame("/home/me/train.py", 9, "train", "model(x)")]}
        return write_dump(tmp_path / name, data, construct={add: BLOCK, BLOCK: None}, stack=stack)

    text = told(tmp_path, side("t", 1e-5), side("g", 1e-6))
    assert text[0] == f"Argument `input.1` of `__add__` in `block` differs (forward): {'m' if library else 'patch'}.py:66"
