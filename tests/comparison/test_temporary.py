"""Temporary directories and Ctrl-C."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.temporary import temporary_directory


def test_it_is_there_inside_and_gone_after() -> None:
    with temporary_directory() as name:
        Path(name, "file").write_text("x")
    assert not Path(name).exists()


def test_an_interruption_while_it_is_removed_comes_through_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    remove, calls = shutil.rmtree, 0

    def interrupted(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        remove(*args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), temporary_directory() as name:
        Path(name, "file").write_text("x")
    assert not Path(name).exists()
    assert calls == 2
