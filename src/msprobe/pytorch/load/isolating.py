"""What `msprobe isolate` asks of the process that it starts: a session that does as its orders say, whatever the script's configuration is.

Inputs are compared with the golden ones where they arrive, a line each; no second copy of them is written.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from msprobe import numerics
from msprobe.config.result import Config, LoadConfig, Section
from msprobe.contain import let_through
from msprobe.format import isolation
from msprobe.format.tensor_file import TensorData
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.naming import named_modules
from msprobe.pytorch.dump.summaries import Holds
from msprobe.pytorch.dump.unusual import describe
from msprobe.pytorch.live_config import LiveConfig
from msprobe.pytorch.load.changed_in_place import ChangedInPlace
from msprobe.pytorch.load.override import Override
from msprobe.pytorch.process import current_rank
from msprobe.pytorch.session import Session

_PATIENCE = 60.0
"""Seconds that a process waits for the others' step to end before it ends the script."""
_DROPOUT = (
    torch.nn.Dropout,
    torch.nn.Dropout1d,
    torch.nn.Dropout2d,
    torch.nn.Dropout3d,
    torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
)
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


class _Fixed(LiveConfig):
    """A configuration that comes from no file and never changes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.watched = False


class IsolatedSession(Session):
    """The session of a process that `msprobe isolate` has started.

    Args:
        path: of the orders.

    Raises:
        OSError, DumpFormatError: there are none.
    """

    def __init__(self, path: str) -> None:
        self._orders = orders = isolation.Orders.read(path)
        self._rank: int | None = None
        self._leaving = False
        self._unwritten: set[str] = set()
        self._told_recording = False
        self._changed = ChangedInPlace(self._line)
        super().__init__(_Fixed(_config(path, orders)))
        self.told.add("last")  # that it was the last step is nothing that the user has chosen
        self._event("constructed")

    def use(self, config: Config) -> None:
        super().use(config)
        if config.load is not None:
            self.override = Override(config.load, observe=self._arrived, entries=self._entries, finite=True, by_path=True)

    def start(self, model: Any, token_range: Any, rank_id: int | None) -> None:
        self._rank = current_rank() if rank_id is None else rank_id
        self._event("start", step=self.number, rank=self._rank)
        if isolation.label_of(self._rank, self._orders.labels) is not None:  # else the parent says that the golden run has no such rank
            super().start(model, token_range, rank_id)

    def open(self, model: Any, *arguments: Any, **more: Any) -> None:
        super().open(model, *arguments, **more)
        if self.step is None:
            return
        if not self._told_recording:
            self._told_recording = True
            self._event("recording", step=self.number, rank=self._rank, directory=self.step.directory)
        self._write_code(model, self.step.directory)
        if self.override is not None:
            self._changed.put(model, self.recorder.state)

    def close(self) -> None:
        self._changed.remove()
        super().close()

    def at_exit(self) -> None:
        self._leaving = True
        if self.step is None and self.saving.step is None and not self._told_recording:
            return  # the parent says so; which step it takes is none of the user's settings
        super().at_exit()

    def end_step(self) -> None:
        step, number = self.step, self.number
        super().end_step()
        if step is None or os.getpid() != self.pid:
            return
        self._event("recorded", step=number, rank=self._rank, directory=step.directory, at_exit=self._leaving)
        if number == self._orders.step and not self._leaving and not self._orders.to_the_end:
            self._leave()

    def _leave(self) -> None:
        """End the script: what comes after this step is of no use to the search, and may take days."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._wait_for_others()
        logger.info(f"msprobe isolate: step {self._orders.step} is recorded, the script is ended here (--to-the-end lets it go on)")
        raise SystemExit(0)

    def _wait_for_others(self) -> None:
        """A rank that leaves early would break the communication of those whose step still runs."""
        until = time.monotonic() + _PATIENCE
        while len(self._orders.labels) > 1 and time.monotonic() < until:
            lines = list(isolation.read_lines(Path(self._orders.events)))
            done = {line.get("rank") for line in lines if line.get("event") == "recorded" and line.get("step") == self._orders.step}
            if len(done) >= len(self._orders.labels):
                return
            time.sleep(0.05)

    def _entries(self) -> tuple[str, ...]:
        label = isolation.label_of(self._rank, self._orders.labels)
        return self._orders.calls.get(label, ()) if label is not None else ()

    def _event(self, kind: str, **more: Any) -> None:
        self._append(self._orders.events, {"event": kind, "pid": os.getpid(), **more})

    def _line(self, line: dict[str, Any]) -> None:
        if self.step is not None:
            self._append(os.path.join(self.step.directory, isolation.ARRIVED), line)

    def _append(self, path: str, line: dict[str, Any]) -> None:
        try:
            isolation.append_line(path, line)
        except OSError as error:
            if path not in self._unwritten:
                self._unwritten.add(path)
                logger.error(f"msprobe isolate: {path} cannot be written: {error.strerror}")

    def _arrived(self, entry: str, role: str, path: tuple[str, ...], tensor: torch.Tensor, loaded: TensorData | torch.Tensor) -> None:
        """A tensor is about to be replaced: how far it is from the golden one."""
        line: dict[str, Any] = {"call": entry, "key": ".".join(["input", *map(str, path)])}
        try:
            line.update(_measured(tensor, loaded))
        except Exception as error:
            let_through(error)
            line["reason"] = f"could not be compared: {error}"
        self._line(line)

    def _write_code(self, model: Any, directory: str) -> None:
        """What the verdict may need to know of each module that no dump holds."""
        path = os.path.join(directory, isolation.CODE)
        if os.path.exists(path):
            return
        modules = [*named_modules(model), *([("", model)] if isinstance(model, torch.nn.Module) else [])]
        found = {
            name: {**_lines_of_forward(module), "buffers": list(module._buffers), "random": _draws(module)} for name, module in modules
        }
        try:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(found, file)
        except OSError as error:
            logger.error(f"msprobe isolate: {path} cannot be written: {error.strerror}")


def _config(path: str, orders: isolation.Orders) -> Config:
    union = tuple(dict.fromkeys(name for names in orders.calls.values() for name in names))
    load = LoadConfig(orders.golden, union, step=frozenset((orders.step,)), dump_after_load=True, cast=True) if union else None
    return Config(
        framework="pytorch",
        source=path,
        task="tensor",
        dump_path=orders.work,
        level="L0",
        rank=frozenset(),
        step=frozenset((orders.step,)),
        async_dump=False,
        dump_enable=None,
        extra_info=True,
        precision="low",
        risk_level="ALL",
        load=load,
        section=Section(list=orders.record),
    )


def _measured(tensor: torch.Tensor, loaded: TensorData | torch.Tensor) -> dict[str, Any]:
    golden = loaded if isinstance(loaded, TensorData) else _data(loaded)
    line: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "golden_dtype": golden.dtype,
        "shape": list(tensor.shape),
        "golden_shape": list(golden.shape),
    }
    if line["shape"] != line["golden_shape"] or tensor.numel() == 0:
        return line
    metrics = numerics.compare_arrays(_data(tensor), golden)
    if metrics.equal < metrics.numel:
        line["metrics"] = asdict(metrics)
    return line


def _data(tensor: torch.Tensor) -> TensorData:
    """The values of a tensor of any kind, in host memory. Raises ValueError for one without values."""
    with torch.no_grad(), torch_internals.NoTorchFunction(), torch_internals.no_dispatch_modes():
        plain = tensor.detach()
        odd = type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.is_conj() or tensor.is_neg()
        if odd or tensor.layout != torch.strided:
            described = describe(tensor, Holds.NULLS)
            if described.plain is None:
                raise ValueError(described.reason)
            plain = described.plain.detach()
            plain = (plain if plain.layout == torch.strided else plain.to_dense()).resolve_conj().resolve_neg()
        plain = plain.cpu().contiguous()
        raw = plain.reshape(-1).view(torch.uint8).numpy()
        return TensorData(str(plain.dtype).removeprefix("torch."), tuple(plain.shape), memoryview(raw).cast("B"))


def _draws(module: torch.nn.Module) -> bool:
    """Whether its forward may draw random numbers, as far as one can see: dropout, as a layer or as a number.

    Also where it is not training: the golden run may have been.
    """
    if isinstance(module, _DROPOUT):
        return module.p > 0
    if any(isinstance(layer, _DROPOUT) and layer.p > 0 for layer in module._modules.values()):
        return True  # some models keep a layer for its number only
    return any("drop" in name and type(value) in (int, float) and value > 0 for name, value in vars(module).items())


def _lines_of_forward(module: torch.nn.Module) -> dict[str, Any]:
    """Where its forward stands, "" for torch's own, and its last line."""
    nowhere = {"forward": "", "last": 0}
    try:
        code = getattr(inspect.unwrap(module.forward), "__code__", None)
    except Exception as error:
        let_through(error)
        return nowhere
    if code is None or os.path.abspath(code.co_filename).startswith(_TORCH) or code.co_filename.startswith("<"):
        return nowhere
    return {"forward": f"{code.co_filename}:{code.co_firstlineno}", "last": _last_line(code)}


def _last_line(code: CodeType) -> int:
    """Of a function, with those inside it."""
    own = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return max([own, *(_last_line(inner) for inner in code.co_consts if isinstance(inner, CodeType))])
