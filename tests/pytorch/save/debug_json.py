"""Saves a few values in this process and reads back what came of it; shared by the tests of save()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from capturing import configured, parse

from msprobe.format import tensor_file
from msprobe.numerics import to_float64
from msprobe.pytorch import PrecisionDebugger


@dataclass
class Saved:
    """One step's directory of one process."""

    directory: Path

    @property
    def document(self) -> dict[str, Any]:
        return parse(self.directory / "debug.json")

    @property
    def data(self) -> dict[str, Any]:
        data = self.document["data"]
        assert isinstance(data, dict)
        return data

    @property
    def keys(self) -> list[str]:
        return list(self.data)

    @property
    def files(self) -> list[str]:
        below = self.directory / "dump_tensor_data"
        return sorted(path.name for path in below.iterdir()) if below.exists() else []

    @property
    def meta(self) -> dict[str, Any]:
        return parse(self.directory / "meta.json")

    @property
    def errors(self) -> str:
        path = self.directory / "dump_error_info.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def values(self, record: dict[str, Any]) -> list[Any]:
        """What the tensor file of a record holds."""
        path = self.directory / "dump_tensor_data" / record["data_name"]
        loaded = torch.load(path, weights_only=True)
        if loaded.layout == torch.strided and not loaded.is_complex():
            read = tensor_file.read(path)
            assert to_float64(read.data, read.dtype).ravel().tolist() == loaded.double().flatten().tolist()
        return loaded.tolist() if loaded.layout == torch.strided else loaded.to_dense().tolist()


def step_of(root: Path, number: int = 0) -> Saved:
    """The only process's directory of a step."""
    found = sorted((root / f"step{number}").iterdir())
    assert len(found) == 1, found
    return Saved(found[0])


def debugger_for(directory: Path, **config: Any) -> PrecisionDebugger:
    """A debugger at level debug that writes into `directory / "dump"`."""
    return configured(directory, level="debug", **config)


def save(directory: Path, body: Callable[[PrecisionDebugger], Any], **config: Any) -> Saved:
    """What `body` saves as step 0."""
    debugger = debugger_for(directory, **config)
    try:
        body(debugger)
    finally:
        debugger.step()
    return step_of(directory / "dump")
