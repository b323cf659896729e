"""Where save() was called, as meta.json tells it."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest
import torch
from debug_json import debugger_for, save, step_of

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.save import call_sites

HERE = __file__


def lines(saved: Any) -> dict[str, list[str]]:
    """Key -> the lines of its frames in this file, innermost first."""
    return {
        key: [text.partition("\n ")[2] for text in frames if text.startswith(f"File {HERE}, line ")]
        for keys, frames in saved.meta["saved_at"]
        for key in keys
    }


def test_each_line_once_and_a_name_where_its_line_changes(tmp_path: Path) -> None:
    def body(debugger: PrecisionDebugger) -> None:
        for _ in range(50):
            debugger.save(torch.ones(2), "x")
        PrecisionDebugger.save(torch.ones(2, requires_grad=True), "x")
        debugger.save(1, "y"), debugger.save(2, "z")

    saved = save(tmp_path, body)
    found = lines(saved)
    assert list(found) == ["x.0.debug", "x.50.debug", "y.0.debug", "z.0.debug"]
    assert [frames[0] for frames in found.values()] == [
        'debugger.save(torch.ones(2), "x")',
        'PrecisionDebugger.save(torch.ones(2, requires_grad=True), "x")',
        *['debugger.save(1, "y"), debugger.save(2, "z")'] * 2,
    ]
    assert len(saved.meta["saved_at"]) == 3
    assert "saved_at" not in saved.document and set(saved.document) == {"task", "level", "framework", "dump_data_dir", "data"}


def test_who_called_the_helper_is_told_too(tmp_path: Path) -> None:
    def helper(debugger: PrecisionDebugger, name: str) -> None:
        debugger.save(torch.ones(2), name)

    def body(debugger: PrecisionDebugger) -> None:
        helper(debugger, "a")
        helper(debugger, "b")

    found = lines(save(tmp_path, body))
    assert [frames[:2] for frames in found.values()] == [["debugger.save(torch.ones(2), name)", f'helper(debugger, "{x}")'] for x in "ab"]


def test_every_step_has_its_own(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    for _ in range(2):
        debugger.save(1, "x")
        debugger.step()
    for step in (0, 1):
        assert list(lines(step_of(tmp_path / "dump", step))) == ["x.0.debug"]


def test_a_value_is_saved_although_its_line_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("a loader of the user's")

    monkeypatch.setattr(linecache, "getline", broken)
    saved = save(tmp_path, lambda debugger: debugger.save(torch.ones(2), "x"))
    assert saved.data["x.0.debug"]["Max"] == 1.0 and saved.meta["saved_at"] == []
    assert "x.0.debug: the line that saves it could not be noted: RuntimeError" in saved.errors


def test_code_made_as_the_program_goes_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sites, "_MOST_SITES", 5)

    def body(debugger: PrecisionDebugger) -> None:
        for number in range(20):
            exec(compile(f"debugger.save({number}, 'x{number}')", HERE, "exec"), {"debugger": debugger})

    saved = save(tmp_path, body)
    assert len(saved.keys) == 40 and len(lines(saved)) == 5
