"""Records a few lines of code in this process and reads back what came of it; shared by the tests of the capture."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe.pytorch import PrecisionDebugger

GOLDEN = Path(__file__).parent.parent / "golden" / "dump"
STATISTICS = ("Max", "Min", "Mean", "Norm")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded = dict(pairs)
    if len(loaded) != len(pairs):
        keys = [key for key, _ in pairs]
        raise AssertionError(f"a key stands twice in one object: {sorted(key for key in loaded if keys.count(key) > 1)}")
    return loaded


_checked: dict[Path, tuple[int, ...]] = {}
"""Files without a key that stands twice -> what they were then, so that the next reading of the same file need not look again."""


def parse(path: Path) -> dict[str, Any]:
    """A JSON file; a key that stands twice is an error."""
    status = path.stat()
    version = (status.st_ino, status.st_size, status.st_mtime_ns)
    loaded = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=None if _checked.get(path) == version else _no_duplicates)
    _checked[path] = version
    assert isinstance(loaded, dict)
    return loaded


@dataclass
class Step:
    """One step's directory of one process."""

    directory: Path

    @property
    def dump(self) -> dict[str, Any]:
        return parse(self.directory / "dump.json")

    @property
    def data(self) -> dict[str, Any]:
        data = self.dump["data"]
        assert isinstance(data, dict)
        return data

    @property
    def names(self) -> list[str]:
        return list(self.data)

    @property
    def construct(self) -> dict[str, Any]:
        return parse(self.directory / "construct.json")

    @property
    def stack(self) -> dict[str, Any]:
        return parse(self.directory / "stack.json")

    @property
    def errors(self) -> str:
        path = self.directory / "dump_error_info.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def forward(self) -> dict[str, Any]:
        return {name: entry for name, entry in self.data.items() if ".forward" in name}

    def only(self, part: str) -> dict[str, Any]:
        """The one entry with `part` in its name."""
        found = [entry for name, entry in self.data.items() if part in name]
        assert len(found) == 1, f"{part} in {self.names}"
        return found[0]

    def frames(self, name: str) -> list[str]:
        """The stack of one entry."""
        found = [frames for names, frames in self.stack.values() if name in names]
        assert len(found) == 1, f"{name} stands {len(found)} times in stack.json"
        return found[0]


@dataclass
class Run:
    """All steps below one dump path."""

    root: Path

    def step(self, number: int = 0) -> Step:
        below = self.root / f"step{number}"
        directories = sorted(below.iterdir())
        assert len(directories) == 1, directories
        return Step(directories[0])

    @property
    def steps(self) -> list[int]:
        return sorted(int(p.name.removeprefix("step")) for p in self.root.iterdir()) if self.root.exists() else []


def configured(directory: Path, **config: Any) -> PrecisionDebugger:
    """A debugger with this config.json; `dump_path` is `directory / "dump"`. Fields of a section may be given flat."""
    config.setdefault("dump_path", str(directory / "dump"))
    config.setdefault("task", "statistics")
    section = {key: config.pop(key) for key in ("list", "scope", "data_mode", "tensor_list", "summary_mode") if key in config}
    if section:
        config[config["task"]] = section
    path = directory / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return PrecisionDebugger(config_path=str(path))


def record(
    directory: Path, body: Callable[[], Any], *, model: Any = None, level: str = "L1", risk_level: str = "ALL", **config: Any
) -> Step:
    """Record what `body` does as step 0."""
    debugger = configured(directory, level=level, risk_level=risk_level, **config)
    debugger.start(model)
    try:
        body()
    finally:
        debugger.stop()
        debugger.step()
    return Run(Path(config.get("dump_path", directory / "dump"))).step()


def no_default_device() -> None:
    """As if no device had ever been set: after `set_default_device(None)`, torch 2.6 cannot say which one is the default."""
    torch.set_default_device(None)
    vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def forget_debugger() -> None:
    """End what is recorded and let the next construction make a new debugger."""
    if PrecisionDebugger._session is not None:
        PrecisionDebugger.stop()
        if PrecisionDebugger._session.step is not None or PrecisionDebugger._session.saving.step is not None:
            PrecisionDebugger.step()
    PrecisionDebugger._instance = None
    PrecisionDebugger._session = None


def golden(case: str) -> dict[str, Any]:
    """What the reference tool recorded: `config`, and `steps`: number -> `data`, `construct`. Its md5 sums are left out."""
    return json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))


def tensors(record: Any) -> Iterator[dict[str, Any]]:
    """All tensor records in a record, in order."""
    if isinstance(record, dict):
        if record.get("type") == "torch.Tensor" or ("shape" in record and "dtype" in record):
            yield record
            return
        for value in record.values():
            yield from tensors(value)
    elif isinstance(record, list):
        for value in record:
            yield from tensors(value)


def statistics(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[key] for key in STATISTICS)


class TooLong(BaseException):
    """No Exception: nobody on the way is meant to contain it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """What would hang fails instead."""

    def expired(number: int, frame: Any) -> None:
        raise TooLong(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def without_cost(line: str) -> str:
    """A closing line without time and size: meta.json tells the time, too, and so its length differs between two runs."""
    return re.sub(r", [\d.]+ MB, \+[\d.]+ m?s", "", line)


def environment() -> dict[str, str]:
    """For a child process that imports the package under test."""
    import msprobe

    source = str(Path(msprobe.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", "")))), "OMP_NUM_THREADS": "1"}
