"""Options that say which call belongs to which."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparison.dumps import api, module, read_csv, tensor, write_dump
from msprobe.cli.main import main

Captured = pytest.CaptureFixture[str]


def dumps(tmp_path: Path, ours: dict[str, object], theirs: dict[str, object]) -> list[str]:
    paths = [write_dump(tmp_path / side, data, construct={}, stack={}) for side, data in (("t", ours), ("g", theirs))]
    return ["compare", "-tp", str(paths[0]), "-gp", str(paths[1]), "-o", str(tmp_path / "o")]


def names(tmp_path: Path) -> list[tuple[str, str]]:
    (csv,) = (tmp_path / "o").glob("compare_result_*.csv")
    return [(row["NPU Name"], row["Bench Name"]) for row in read_csv(csv)]


def called(name: str) -> dict[str, object]:
    return {name: module([tensor()], [tensor()]) if name.startswith("M") else api([tensor()], [tensor()])}


@pytest.mark.parametrize(
    "options, text, ours, theirs",
    [
        (["-cm"], "fc1.MyLinear: fc2.Linear", "Module.fc1.MyLinear.forward.0", "Module.fc2.Linear.forward.0"),
        (["-am"], "Torch.mine: Torch.theirs", "Torch.mine.0.forward", "Torch.theirs.0.forward"),
        (["-lm"], "TopLayer: {net: module}", "Module.net.A.forward.0", "Module.module.B.forward.0"),
        (["--mapping"], "modules: {net: module}", "Module.net.A.forward.0", "Module.module.B.forward.0"),
        (["--mapping"], "calls: {Torch.mine: Torch.theirs}", "Torch.mine.0.forward", "Torch.theirs.0.forward"),
    ],
)
def test_names_that_are_mapped(tmp_path: Path, options: list[str], text: str, ours: str, theirs: str) -> None:
    """F19: the existing tool takes -lm and does nothing."""
    other = {"Torch.same.0.forward": api([tensor()], [tensor()])}
    arguments = dumps(tmp_path, {**called(ours), **other}, {**called(theirs), **other})
    (tmp_path / "m.yaml").write_text(text, encoding="utf-8")
    assert main(arguments) == 1
    for path in (tmp_path / "o").iterdir():
        path.unlink()
    assert main([*arguments, *options, str(tmp_path / "m.yaml")]) == 0
    assert (f"{ours}.input.0", f"{theirs}.input.0") in names(tmp_path)


def test_modules_of_another_class_or_root_pair_without_a_file(tmp_path: Path) -> None:
    """F19: -cm without a file; here it needs not be given."""
    arguments = dumps(tmp_path, called("Module.fc.MyLinear.forward.0"), called("Cell.fc.Dense.forward.0"))
    assert main([*arguments, "-cm"]) == 0
    assert main(arguments) == 0


def test_fuzzy_match(tmp_path: Path) -> None:
    ours = {"Torch.a.0.forward": api([tensor(shape=(2, 2))], []), "Torch.a.1.forward": api([tensor()], [])}
    theirs = {"Torch.a.4.forward": api([tensor(shape=(2, 2))], []), "Torch.a.7.forward": api([tensor()], [])}
    assert main([*dumps(tmp_path, ours, theirs), "-fm"]) == 0


@pytest.mark.parametrize("option", ["-cm", "-am", "-lm", "-dm", "--mapping"])
@pytest.mark.parametrize("content", ["[1, 2]", "a: [", None, "\xff"])
def test_a_wrong_file_is_one_line(tmp_path: Path, option: str, content: str | None, capsys: Captured) -> None:
    arguments = dumps(tmp_path, called("Torch.a.0.forward"), called("Torch.a.0.forward"))
    path = tmp_path / "m.yaml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    assert main([*arguments, option, str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("msprobe compare: error: the ") and error.count("\n") == 1 and str(path) in error
