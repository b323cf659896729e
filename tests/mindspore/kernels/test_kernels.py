"""Level L2 on a CPU: PyNative mode, what was compiled too early, which jit_level it is; see cases.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
NOTHING = "nothing was recorded: MindSpore has written no values to "


@pytest.fixture(scope="module")
def pynative(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("pynative")
    answer = run_mindspore("kernels/cases.py", directory, "pynative")
    return {**answer, "output": (directory / "output.txt").read_text(encoding="utf-8")}


def test_in_pynative_mode_what_jit_compiles_is_dumped_and_nothing_else(pynative: Any) -> None:
    kinds = {name.split(".")[0] for name in pynative["files"]}
    assert {"MatMul", "BiasAdd", "Tanh"} <= kinds and "Sin" not in kinds
    assert any(name.startswith("MatMul.Default_wide-Dense_") for name in pynative["files"])
    assert not any("first" in name for name in pynative["files"])
    assert any("operations outside of jit (only what is compiled is dumped)" in text for text in pynative["told"])
    assert NOTHING not in pynative["output"]


def test_a_scope_is_told_to_have_no_effect(pynative: Any) -> None:
    assert any('"tensor"."scope" has no effect at level "L2": name kernels in "list"' in text for text in pynative["told"])


def test_a_graph_that_was_compiled_before_start_is_told(run_mindspore: Callable[..., Any], tmp_path: Path) -> None:
    """MindSpore reads the settings of its dump once in a process."""
    answer = run_mindspore("kernels/cases.py", tmp_path, "late")
    assert answer["files"] == [] and any("has compiled something before start()" in text for text in answer["told"])
    assert f"{NOTHING}{tmp_path}/dump" in (tmp_path / "output.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("case", "level", "is_set"),
    [
        ("unset", "O0", False),
        ("context", "O2", True),
        ("cell", "O1", True),
        ("a cell without", "O2", True),
        ("does not say", "", False),
        ("pieces", "O0", False),
        ("whole", "O2", False),
        ("rank table", "O2", False),
        ("rank table, but a scheduler", "O0", False),
    ],
)
def test_the_jit_level_that_holds(pynative: Any, case: str, level: str, is_set: bool) -> None:
    """MindSpore's own rule; that of Ascend against stand-ins."""
    assert pynative["levels"][case] == [level, is_set]


def test_every_device_that_mindspore_counts(pynative: Any) -> None:
    assert pynative["levels"]["devices"] == 16
