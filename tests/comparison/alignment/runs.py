"""Recorded runs of small models, as dumps on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe.comparison.compare import compare
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import PairReport
from msprobe.pytorch import PrecisionDebugger


def record(
    directory: Path, model: torch.nn.Module, step: Callable[[], Any], *, task: str = "statistics", level: str = "mix", **settings: Any
) -> Path:
    """Runs `step` once under the debugger; returns the directory with the dump. `settings`: other keys of config.json."""
    _forget()
    config = {"task": task, "dump_path": str(directory), "level": level, **settings}
    directory.parent.mkdir(parents=True, exist_ok=True)
    path = directory.parent / f"{directory.name}_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    debugger = PrecisionDebugger(config_path=str(path))
    debugger.start(model)
    step()
    debugger.stop()
    debugger.step()
    _forget()
    (dump,) = (directory / "step0").iterdir()
    return dump


def _forget() -> None:
    """One debugger in a process: each run has its own."""
    PrecisionDebugger._instance = None
    PrecisionDebugger._session = None


def training(model: torch.nn.Module, *inputs: Any) -> Callable[[], None]:
    """A forward and a backward pass."""

    def step() -> None:
        model(*inputs).square().mean().backward()

    return step


def compared(target: Path, golden: Path, output: Path, options: Options = DEFAULTS) -> PairReport:
    """The report of the only pair there is."""
    (report,) = compare(target, golden, output, options).reports
    return report
