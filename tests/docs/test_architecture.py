"""docs/architecture.md is true: its tree is the source's, its arrows point downwards, its interfaces exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from docs.documents import ROOT, blocks

TREE, *INTERFACES = [block.text for block in blocks(ROOT / "docs" / "architecture.md")]
SOURCE = ROOT / "src" / "msprobe"
MODULES = {
    "numerics": "msprobe.numerics",
    "checksum": "msprobe.numerics.checksum",
    "config": "msprobe.config",
    "layout": "msprobe.format.layout",
    "names": "msprobe.format.names",
    "reader": "msprobe.format.reader",
    "tensor_file": "msprobe.format.tensor_file",
    "compare": "msprobe.comparison.compare",
    "describe": "msprobe.comparison.describe",
    "sentence": "msprobe.comparison.sentence",
}


def _shown() -> list[Path]:
    """The paths in the tree, in its order."""
    above: list[tuple[int, Path]] = []
    found: list[Path] = []
    for line in TREE.splitlines()[1:]:
        name = line.split()[0]
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        path = (above[-1][1] if above else SOURCE) / name
        if name.endswith("/"):
            above.append((indent, path))
        found.append(path)
    return found


def test_the_tree_is_that_of_the_source() -> None:
    shown = _shown()
    assert [path for path in shown if not path.exists()] == []
    for directory in {path.parent for path in shown}:  # a directory of which something is shown is shown in full
        there = {p for p in directory.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists()) and not p.name.startswith("__")}
        assert there == {path for path in shown if path.parent == directory}, directory


def _imported_rooms(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("msprobe.")}


def test_arrows_point_downwards() -> None:
    order = [path.stem for path in _shown() if path.parent == SOURCE]
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in order:
            above = set(order[: order.index(room)])
            assert _imported_rooms(file) & above == set(), file


@pytest.mark.parametrize("number", range(len(INTERFACES)))
def test_interfaces_exist(number: int) -> None:
    for module, name in re.findall(r"(?<![\w/])(\w+)\.([A-Za-z_]\w*)", INTERFACES[number]):
        if module in MODULES and (module, name) != ("config", "json"):
            assert hasattr(importlib.import_module(MODULES[module]), name), f"{module}.{name}"


@pytest.mark.parametrize(
    ("shown", "module", "name"),
    [
        ("load_config", "msprobe.config", "load_config"),
        ("compare", "msprobe.comparison.compare", "compare"),
        ("StepWriter", "msprobe.writer", "StepWriter"),
        ("TensorPool", "msprobe.writer", "TensorPool"),
    ],
)
def test_signatures(shown: str, module: str, name: str) -> None:
    match = re.search(rf"\b{shown}\((.*?)\)", "\n".join(INTERFACES))
    assert match is not None
    given = [part.split("=")[0].strip() for part in match[1].split(",")]
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert [word for word in given if word != "*"] == list(parameters)


def test_fields_of_the_configuration() -> None:
    from msprobe.config import Config

    (block,) = [text for text in INTERFACES if "load_config" in text]
    shown = block[block.index("Config: ") :].split("Section,")[0]
    assert [name for name in Config.__dataclass_fields__ if not re.search(rf"\b{name}\b", shown)] == []
