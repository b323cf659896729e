"""Runs a model in this process with some of its inputs overridden, from a dump that is written by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from msprobe.pytorch import PrecisionDebugger


def source(
    directory: Path, tensors: dict[str, torch.Tensor], step: int = 0, place: str = "proc1", dump: dict[str, Any] | None = None
) -> Path:
    """A dump with these tensor files, named without `.pt`; without dump.json unless its `data` is given."""
    root = directory / "source"
    below = root / f"step{step}" / place
    (below / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        torch.save(tensor, below / "dump_tensor_data" / f"{name}.pt")
    if dump is not None:
        (below / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L0", "data": dump}))
    return root


def configured(directory: Path, modules: list[str], *, level: str = "L0", **load: Any) -> PrecisionDebugger:
    """A debugger that overrides these calls from `directory / "source"`; `dump_path` is `directory / "dump"`."""
    section = {"path": str(directory / "source"), "modules": modules, **load}
    path = directory / "config.json"
    path.write_text(json.dumps({"task": "tensor", "level": level, "dump_path": str(directory / "dump"), "load": section}))
    return PrecisionDebugger(config_path=str(path))


@contextlib.contextmanager
def overridden(directory: Path, modules: list[str], model: Any, **load: Any) -> Iterator[PrecisionDebugger]:
    """One step in which these calls of the model get recorded inputs."""
    debugger = configured(directory, modules, **load)
    debugger.start(model)
    try:
        yield debugger
    finally:
        debugger.stop()
        debugger.step()


class Takes(torch.nn.Module):
    """Keeps what its forward was given, and gives its first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.args, self.kwargs = args, kwargs
        return args[0] if args else None


class Around(torch.nn.Module):
    """A model with one module `inner`, which is called with what the model is called with."""

    def __init__(self, inner: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.inner = Takes() if inner is None else inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


TAKES = "Module.inner.Takes.forward.0"


def given(directory: Path, tensors: dict[str, torch.Tensor], *args: Any, load: dict[str, Any] | None = None, **kwargs: Any) -> Takes:
    """The inner module after one call with these arguments; `tensors` are the files of that call: "input.0" and so on."""
    source(directory, {f"{TAKES}.{name}": tensor for name, tensor in tensors.items()})
    model = Around()
    with overridden(directory, [TAKES], model, **(load or {})):
        model(*args, **kwargs)
    assert isinstance(model.inner, Takes)
    return model.inner


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes of a tensor, in row-major order."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).tolist() if flat.numel() else []


ZERO = torch.zeros(2)


def value(module: Any) -> float:
    """What the module was called with last."""
    return float(module.args[0].flatten()[0])


def numbered(directory: Path, calls: int = 3, steps: int = 1, name: str = "Module.inner.Takes") -> None:
    """A source whose input of call c in step s is 100 s + 10 c + 1."""
    for step in range(steps):
        source(directory, {f"{name}.forward.{c}.input.0": torch.full((2,), 100.0 * step + 10 * c + 1) for c in range(calls)}, step)


def clean(model: torch.nn.Module) -> bool:
    """No module has hooks."""
    return all(not m._forward_pre_hooks and not m._forward_hooks and not m._forward_pre_hooks_with_kwargs for m in model.modules())
