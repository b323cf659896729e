"""What is below the frameworks belongs to none of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = ["recording", "writer", "format", "config", "numerics"]
FRAMEWORKS = {"torch", "torch_npu", "mindspore"}


def modules(room: str) -> list[Path]:
    return sorted((SOURCE / "msprobe" / room).rglob("*.py"))


def imported(file: Path) -> set[str]:
    """The packages that a file imports, wherever in it that stands; relative imports stay in the room."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_line_of_a_neutral_room_imports_a_framework(room: str) -> None:
    assert modules(room)
    assert {file.name: imported(file) & FRAMEWORKS for file in modules(room) if imported(file) & FRAMEWORKS} == {}


def test_a_framework_would_be_seen() -> None:
    assert "torch" in imported(SOURCE / "msprobe" / "pytorch" / "process.py")
    assert "mindspore" in imported(SOURCE / "msprobe" / "mindspore" / "process.py")


def test_importing_all_of_them_loads_no_framework() -> None:
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for room in ROOMS for file in modules(room)]
    code = f"import importlib, sys; [importlib.import_module(name) for name in {names}]; print({FRAMEWORKS} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)})
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_no_module_has_the_name_of_what_its_package_gives(framework: str) -> None:
    """`from package import save` gives the module once somebody has imported that, and not what `__getattr__` knows."""
    package = SOURCE / "msprobe" / framework
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    (names,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"]
    given = set(ast.literal_eval(names))
    assert "PrecisionDebugger" in given and given & {path.stem for path in package.iterdir()} == set()
