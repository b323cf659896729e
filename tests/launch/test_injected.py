"""The start of a Python process: ours is not to be seen there, and the user's own sitecustomize alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from launch.runs import Runs

LOOK = """
import json, sys
own = sys.modules.get("sitecustomize")
print(json.dumps([sys.path, sys.argv, sys.modules["__main__"].__file__, own and own.__file__]))
print(json.dumps([sorted(sys.path_importer_cache), sorted(sys.modules)]))
"""


@pytest.mark.parametrize("own", ["", "import sys\nsys.own = 1\n", "raise ValueError('mine')\n", "raise ImportError('mine')\n"])
def test_a_process_looks_as_without(own: str, alone: Runs) -> None:
    site = alone.directory / "site"
    site.mkdir()
    if own:
        (site / "sitecustomize.py").write_text(own)
    (alone.directory / "look.py").write_text(LOOK)
    alone.environment["PYTHONPATH"] += os.pathsep + str(site)
    without, done = (run(sys.executable, "look.py", "a b", "--step") for run in (alone.plain, alone.recorded))
    assert without.out == done.out
    assert without.others * 2 == done.others and bool(without.others) == own.startswith("raise")  # msprobe is such a process, too
    page = "more in docs/run.md of msprobe's repository: Nothing was recorded"
    assert done.said == [f"nothing was recorded: Python ran, but torch was never imported ({page})"]


def package(directory: Path, name: str, text: str) -> None:
    (directory / name).mkdir()
    (directory / name / "__init__.py").write_text(text)


ASK = """
import importlib.util, sys
print(importlib.util.find_spec("torch") is not None, "torch" in sys.modules)
import torch
print(torch.NAME, type(torch.__loader__).__name__, torch.__loader__ is torch.__spec__.loader)
print([type(finder).__name__ for finder in sys.meta_path if "torch" in repr(getattr(finder, "__dict__", ""))])
"""


def test_whoever_asks_for_torch_gets_it_as_it_is(alone: Runs) -> None:
    """A package of this name that we cannot work with: the script does not notice, and the user is told."""
    package(alone.directory, "torch", "NAME = 'mine'\n")
    (alone.directory / "ask.py").write_text(ASK)
    without, done = (run(sys.executable, "ask.py") for run in (alone.plain, alone.recorded))
    assert (without.code, without.out, without.others) == (done.code, done.out, done.others) and done.code == 0
    assert "True False\nmine SourceFileLoader True" in done.out
    assert done.said[0].startswith("nothing is recorded in process ") and "ModuleNotFoundError: No module named 'torch." in done.said[0]
    assert done.said[1].startswith("recording failed in process")


def test_a_torch_that_cannot_be_imported_can_be_tried_again(alone: Runs) -> None:
    package(alone.directory, "torch", "raise ImportError('broken')\n")
    (alone.directory / "ask.py").write_text(
        "for _ in range(2):\n    try:\n        import torch\n    except ImportError as error:\n        print(error)\n"
    )
    done = alone.recorded(sys.executable, "ask.py")
    assert done.out == "broken\nbroken\n" and "torch was never imported" in done.said[0]


def test_a_command_without_python(alone: Runs) -> None:
    done = alone.recorded("echo", "hello")
    assert done.out == "hello\n" and done.code == 0
    assert done.said[0].startswith("nothing was recorded: no Python process below the command could be reached")


@pytest.mark.parametrize("how", [["-m", "tool"], ["./tool/run"]])
@pytest.mark.slow
def test_a_package_and_an_installed_program(how: list[str], alone: Runs) -> None:
    package(alone.directory, "tool", "")
    main = alone.directory / "tool" / "__main__.py"
    main.write_text(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 2))\ntorch.manual_seed(0)\nprint(model(torch.zeros(1, 2)).shape)\n"
    )
    program = alone.directory / "tool" / "run"
    program.write_text(f"#!{sys.executable}\n" + main.read_text())
    program.chmod(0o755)
    command = [sys.executable, *how] if how[0] == "-m" else how
    without, done = alone.plain(*command), alone.recorded(*command)
    assert (without.code, without.out, without.others) == (done.code, done.out, done.others)
    assert done.calls(0) == ["0.Linear.0"]
