"""vllm-ascend has msprobe built in: `--additional-config` with `dump_config_path` or `dump_config`. A stand-in of what its runner does.

From its public documentation: both fields become the path of a file; the runner reads `debugger.config.level` to decide whether start() is
given the model, and calls start, stop and step in execute_model, on every way out of it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.vllm.standin import Net
from pytorch.capturing import Run, forget_debugger


class NPUModelRunner:
    """What matters of it."""

    def __init__(self, additional_config: dict[str, Any]) -> None:
        self.model = Net()
        path = additional_config.get("dump_config_path")
        content = additional_config.get("dump_config")
        if content is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
                json.dump(content, file, ensure_ascii=False, indent=2)
            path = file.name
        self.debugger: Any = None
        if path is not None:
            from msprobe.pytorch import PrecisionDebugger

            self.debugger = PrecisionDebugger(path)

    def _start_dump_data(self) -> None:
        if self.debugger is None:
            return
        level = str(getattr(getattr(self.debugger, "config", None), "level", "L1")).upper()
        if level in ("L0", "MIX"):
            self.debugger.start(model=self.model)
        else:
            self.debugger.start()

    def _finalize_dump_data(self) -> None:
        if self.debugger is not None:
            if hasattr(self.debugger, "stop"):
                self.debugger.stop()
            self.debugger.step()

    @torch.inference_mode()
    def execute_model(self, tokens: list[int]) -> torch.Tensor | None:
        self._start_dump_data()
        if not tokens:
            self._finalize_dump_data()
            return None
        logits = self.model.head(self.model(torch.tensor(tokens)))
        self._finalize_dump_data()
        return logits


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("field", ["dump_config", "dump_config_path"])
def test_both_ways(tmp_path: Path, level: str, field: str) -> None:
    config = {"task": "statistics", "dump_path": str(tmp_path / "dump"), "rank": [], "step": [], "level": level, "async_dump": False}
    config["statistics"] = {"scope": [], "list": [], "tensor_list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    value: Any = config
    if field == "dump_config_path":
        value = str(tmp_path / "config.json")
        Path(value).write_text(json.dumps(config))
    runner = NPUModelRunner({field: value})
    recorded = [runner.execute_model([1, 2, 3]), runner.execute_model([4])]
    assert runner.debugger.config.level == level and runner.debugger.config.dump_path == str(tmp_path / "dump")
    forget_debugger()
    plain = NPUModelRunner({})
    for ours, theirs in zip(recorded, (plain.execute_model([1, 2, 3]), plain.execute_model([4])), strict=True):
        assert ours is not None and theirs is not None and torch.equal(ours, theirs)
    run = Run(tmp_path / "dump")
    assert run.steps == [0, 1]
    names = run.step(1).names
    assert any(name.startswith("Module.") for name in names) is (level != "L1")
    assert any(name.startswith("Functional.") for name in names) is (level != "L0")


def test_a_step_without_tokens_counts_as_its_runner_counts(tmp_path: Path) -> None:
    config = {"task": "statistics", "dump_path": str(tmp_path / "dump"), "level": "L0", "step": [0, 2]}
    runner = NPUModelRunner({"dump_config": config})
    for tokens in ([1], [], [2]):
        runner.execute_model(tokens)
    assert Run(tmp_path / "dump").steps == [0, 2]
