"""Which modules are looked through for functions that they have imported by name; needs no MindSpore."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from msprobe.mindspore.dump.api_dump.imported_names import imported_names

NAME = "msprobe_tests_of_the_user"


def function() -> None:
    """Stands for one of MindSpore's."""


def found() -> list[tuple[str, Any]]:
    return [(name, made) for module, name, made in imported_names({id(function): "made"}) if module.__name__ == NAME]


def test_a_module_that_is_gone_is_not_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(NAME)
    module.__dict__.update(__file__=str(tmp_path / "user.py"), by_another_name=function)
    monkeypatch.setitem(sys.modules, NAME, module)
    assert found() == [("by_another_name", "made")] == found()
    alive = weakref.ref(module)
    monkeypatch.undo()
    del module
    gc.collect()
    assert alive() is None


def test_a_getattr_of_a_modules_own_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> Any:
        raise RuntimeError(name)

    module = ModuleType(NAME)
    module.__dict__.update(__getattr__=fails, by_another_name=function)
    monkeypatch.setitem(sys.modules, NAME, module)
    assert found() == []
