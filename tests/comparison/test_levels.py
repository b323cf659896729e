"""Two runs recorded at different levels: what one level leaves out is not blamed, what both record is."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.levels import records
from msprobe.comparison.names import parse
from msprobe.errors import UsageError

from .dumps import Json, api, frame, module, tensor, write_dump

BLOCK, FC, MUL = "Module.block.Block.forward.0", "Module.block.fc.Linear.forward.0", "Tensor.__mul__.0.forward"
LINEAR, SCALE, EXP = "Functional.linear.0.forward", "Module.block.scale.Scale.forward.0", "Torch.exp.0.forward"
NOISE = "Module.noise.Noise.forward.0"


def dump(directory: Path, level: str, *, factor: float = 2.0, gain: float = 1.0, scale: bool = False, noise: float = 0.0) -> Path:
    """Block(its own code multiplies by `factor`, fc multiplies by `gain`), as a level records it: fc is one call of linear.

    Args:
        scale: the multiplication is a module's.
        noise: rounding in a module before it.
    """
    out = factor * gain
    data: Json = {NOISE: module([tensor(0.5)], [tensor(1.0 + noise)]), MUL: api([tensor(1.0)], [tensor(factor)])}
    if scale:
        data[SCALE] = module([tensor(1.0)], [tensor(factor)])
    data[LINEAR] = api([tensor(factor)], [tensor(out)])
    data[FC] = module([tensor(factor)], [tensor(out)], weight=tensor(3.0))
    data[BLOCK] = module([tensor(1.0)], [tensor(out)])
    modules = {name: entry for name, entry in data.items() if name.startswith("Module.")}
    apis = {name: entry for name, entry in data.items() if name not in modules}
    parents = {NOISE: None, MUL: SCALE if scale else BLOCK, SCALE: BLOCK, LINEAR: FC, FC: BLOCK, BLOCK: None}
    kept = {"L0": modules, "L1": apis, "mix": data}[level]
    construct = {name: parents[name] if level != "L1" else None for name in kept}
    stack = {name: [frame("/home/me/net.py", 20 + number, "forward", name)] for number, name in enumerate(data)}
    return write_dump(directory, kept, level=level, construct=construct, stack={name: stack[name] for name in kept})


def told(tmp_path: Path, target: Path, golden: Path) -> list[str]:
    return [line.text for line in describe(compare(target, golden, tmp_path / "o"))]


EITHER_WAY = pytest.mark.parametrize(("level", "golden_level"), [("L0", "mix"), ("mix", "L0")])


@EITHER_WAY
def test_code_between_modules(level: str, golden_level: str, tmp_path: Path) -> None:
    """The mix side has the multiplication that makes what differs; the L0 side makes it as well, and records no APIs."""
    text = told(tmp_path, dump(tmp_path / "t", level, factor=2.5), dump(tmp_path / "g", golden_level))
    assert text[0] == "Inputs equal, the code of `block` before it calls `block.fc` differs (forward): net.py:23"
    assert "likely cause" not in "\n".join(text)


@EITHER_WAY
def test_a_module(level: str, golden_level: str, tmp_path: Path) -> None:
    """The call of linear inside it is on the mix side alone."""
    text = told(tmp_path, dump(tmp_path / "t", level, gain=1.5), dump(tmp_path / "g", golden_level))
    assert text[0] == "Inputs equal, weights equal, `block.fc` differs (forward): net.py:23"
    assert "likely cause" not in "\n".join(text)
    assert "not the same ones on both sides" not in "\n".join(text)


@EITHER_WAY
def test_a_modules_own_code_behind_the_last_module_in_it(level: str, golden_level: str, tmp_path: Path) -> None:
    def side(name: str, recorded: str, factor: float) -> Path:
        """Block(fc, then its own code multiplies)."""
        after = {MUL: api([tensor(2.0)], [tensor(factor)])} if recorded == "mix" else {}
        data: Json = {FC: module([tensor(1.0)], [tensor(2.0)]), **after, BLOCK: module([tensor(1.0)], [tensor(factor)])}
        stack = {FC: [frame("/home/me/net.py", 21, "forward", "fc")], BLOCK: [frame("/home/me/net.py", 9, "train", "model(x)")]}
        construct = {FC: BLOCK, MUL: BLOCK, BLOCK: None}
        return write_dump(tmp_path / name, data, level=recorded, construct={key: construct[key] for key in data}, stack=stack)

    text = told(tmp_path, side("t", level, 5.0), side("g", golden_level, 4.0))
    assert text[0] == "Inputs equal, `block` differs in its own code (forward): behind net.py:21"
    assert "likely cause" not in "\n".join(text)


@EITHER_WAY
def test_a_module_that_one_side_alone_calls_is_still_the_cause(level: str, golden_level: str, tmp_path: Path) -> None:
    """Both levels record modules."""
    target = dump(tmp_path / "t", level, factor=2.5, scale=True, noise=1e-7)
    text = told(tmp_path, target, dump(tmp_path / "g", golden_level))
    assert text[0] == (
        "Inputs equal, the code of `block` before it calls `block.fc` differs by what the target alone calls, `block.scale` "
        "(forward): net.py:22"
    )


@pytest.mark.parametrize(
    ("level", "modules", "apis"),
    [("L0", True, False), ("L1", False, True), ("mix", True, True), (None, True, True), ("debug", True, True)],
)
def test_what_a_level_records(level: str | None, modules: bool, apis: bool) -> None:
    for name in (FC, "Module.block.fc.Linear.parameters_grad.0", "Cell.block.fc.Dense.backward.0"):
        assert records(level, parse(name)) is modules
    for name in (MUL, "Functional.linear.0.backward"):
        assert records(level, parse(name)) is apis
    assert records(level, parse("a name of no known pattern"))


@pytest.mark.parametrize(("target", "golden"), [("L0", "L1"), ("L1", "L0")])
def test_two_levels_that_have_no_call_in_common(tmp_path: Path, target: str, golden: str) -> None:
    paths = dump(tmp_path / "t", target), dump(tmp_path / "g", golden)
    with pytest.raises(UsageError, match=f"level {target} recorded the one, level {golden} the other.*record both at one level"):
        compare(*paths, tmp_path / "o")
