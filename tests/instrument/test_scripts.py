"""Scripts of many kinds: the right place is found, the enabled script compiles and records, and disabling gives the bytes back."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from instrument.corpus import HERE, SCRIPTS, Expected
from msprobe.format import layout, reader
from msprobe.instrument.candidates import Candidate
from msprobe.instrument.script import Script
from msprobe.instrument.source import read
from msprobe.instrument.undo import undo

NAMES = [one.name for one in SCRIPTS]
RUN = [one for one in SCRIPTS if one.steps is not None and not one.slow]
SLOW = [one for one in SCRIPTS if one.steps is not None and one.slow]


def chosen(script: Script) -> Candidate:
    """The place that is recommended."""
    (found,) = [one for one in script.candidates if one.recommended]
    return found


def test_there_are_many() -> None:
    assert len(SCRIPTS) >= 30


@pytest.mark.parametrize("expected", SCRIPTS, ids=NAMES)
def test_the_right_place_is_found(expected: Expected) -> None:
    found = chosen(Script(read(expected.path)))
    assert (found.code, found.models) == (expected.code, expected.models)


@pytest.mark.parametrize("expected", SCRIPTS, ids=NAMES)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_every_place_compiles_and_goes_again(expected: Expected, end: str, tmp_path: Path) -> None:
    path = tmp_path / expected.name
    path.write_bytes(expected.path.read_bytes().rstrip(b"\n").replace(b"\n", end.encode()))
    source = read(path)
    script = Script(source)
    for candidate in script.candidates:
        text = script.enabled(candidate, candidate.models, "./config.json")
        compile(source.encoded(text), expected.name, "exec", dont_inherit=True)
        assert text != source.text
        assert source.encoded(undo(text).text) == path.read_bytes()


@pytest.mark.parametrize("expected", SCRIPTS, ids=NAMES)
def test_nothing_but_our_calls_is_new(expected: Expected) -> None:
    """Without them the syntax tree is that of the original; so no statement of the user's was moved or lost."""
    script = Script(read(expected.path))
    text = script.enabled(chosen(script), expected.models, "./config.json", seed=True)
    names = {"debugger", "msprobe_debugger_2", "seed_all", "msprobe_seed_all"}
    assert ast.dump(_Without(names).visit(ast.parse(text))) == ast.dump(ast.parse(script.source.text))


class _Without(ast.NodeTransformer):
    """Leaves out the statements that `enable` puts in."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if (node.module or "").startswith("msprobe") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        ours = [one.id for one in ast.walk(call) if isinstance(one, ast.Name) and one.id in self.names]
        argumentless = isinstance(call.func, ast.Attribute) or (isinstance(call.func, ast.Name) and not call.args)
        return None if ours and argumentless else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST] | None:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == "msprobe_result":
            return ast.Return(node.value)
        ours = isinstance(target, ast.Name) and target.id in self.names and isinstance(node.value, ast.Call)
        return None if ours else node

    def visit_Return(self, node: ast.Return) -> ast.AST | None:
        return None if isinstance(node.value, ast.Name) and node.value.id == "msprobe_result" else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if ast.unparse(node).startswith("if accelerator.sync_gradients:\n    debugger."):
            return None
        self.generic_visit(node)
        return node


@dataclass(frozen=True)
class Ran:
    """A script that has run: as it was and enabled without seed_all()."""

    plain: str
    enabled: str
    codes: tuple[int, int]
    dump: Path


def run_all(scripts: list[Expected], root: Path) -> dict[str, Ran]:
    """Each script enabled, and as it was where it prints something to be compared with; all in processes forked from one."""
    jobs = []
    prints = {one.name: "print(" in one.path.read_text(encoding="utf-8") for one in scripts}
    for one in scripts:
        for kind in ("plain", "enabled") if prints[one.name] else ("enabled",):
            directory = root / one.name / kind
            directory.mkdir(parents=True)
            shutil.copy(HERE / "helper.py", directory)
            text = one.path.read_text(encoding="utf-8")
            if kind == "enabled":
                script = Script(read(one.path))
                text = script.enabled(chosen(script), one.models, "./config.json", seed=False)
                (directory / "config.json").write_text(json.dumps({"dump_path": "./dump", "level": "mix"}))
            (directory / one.name).write_text(text, encoding="utf-8")
            jobs.append({"directory": str(directory), "script": one.name, "output": str(directory / "output")})
    (root / "jobs.json").write_text(json.dumps(jobs))
    environment = os.environ | {"MSPROBE_LOG_LEVEL": "2", "PYTHONPATH": os.pathsep.join(["", *sys.path]), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, str(Path(__file__).parent / "run_scripts.py"), str(root / "jobs.json")], env=environment, check=True)

    def output(name: str, kind: str, end: str = "") -> str:
        if kind == "plain" and not prints[name]:
            return "0" if end else ""
        return (root / name / kind / f"output{end}").read_text(encoding="utf-8")

    return {
        one.name: Ran(
            output(one.name, "plain"),
            output(one.name, "enabled"),
            (int(output(one.name, "plain", ".code")), int(output(one.name, "enabled", ".code"))),
            root / one.name / "enabled" / "dump",
        )
        for one in scripts
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    return run_all(RUN, tmp_path_factory.mktemp("scripts"))


def check(expected: Expected, ran: Ran) -> None:
    assert ran.codes == (0, 0), ran.enabled
    assert "[WARNING]" not in ran.enabled  # `step 3 was not ended by step()` would be one
    if not expected.slow:  # trainers print how long they take
        assert ran.enabled == ran.plain
    steps = layout.steps(ran.dump)
    assert list(steps) == list(range(expected.steps or 0))
    for step in steps.values():
        (place,) = [*layout.procs(step).values(), *layout.ranks(step).values()]
        assert reader.read_dump(place).data, step


@pytest.mark.parametrize("expected", RUN, ids=[one.name for one in RUN])
def test_it_records_each_step(expected: Expected, ran: dict[str, Ran]) -> None:
    check(expected, ran[expected.name])


@pytest.mark.slow
@pytest.mark.parametrize("expected", SLOW, ids=[one.name for one in SLOW])
def test_it_records_each_step_of_a_trainer(expected: Expected, tmp_path: Path) -> None:
    for name in ("transformers", "pytorch_lightning", "accelerate"):
        pytest.importorskip(name)
    check(expected, run_all([expected], tmp_path)[expected.name])


def test_level_mix_of_a_list_of_models_names_both(ran: dict[str, Ran]) -> None:
    (place,) = layout.procs(layout.steps(ran["gan.py"].dump)[0]).values()
    names = reader.read_dump(place).data
    assert {name.split(".")[1] for name in names if name.startswith("Module.")} == {"0", "1"}


def test_an_accumulated_step_holds_all_its_iterations(ran: dict[str, Ran]) -> None:
    (place,) = layout.procs(layout.steps(ran["accumulation.py"].dump)[0]).values()
    calls: Callable[[str], int] = lambda kind: sum(f"linear.{n}.{kind}" in name for name in reader.read_dump(place).data for n in (0, 1, 2))
    assert (calls("forward"), calls("backward")) == (2, 2)
