"""async_dump: nothing waits for a device inside a step; what was computed and copied there is read when the step ends.

Tensors in host memory are recorded at once, as always. For a tensor on a device its statistics are computed there, in the order of its
stream, so that they are those at the time of the call; a copy stays there if its values are kept. Both are staged. When `MOST_RESULTS`
results or `MOST_BYTES` of copies are staged, all of them are read at once: the device is waited for, one warning says so, and the room is
free again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.format.unread import Note
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump import device_statistics, unusual
from msprobe.pytorch.dump.device_statistics import Launched
from msprobe.pytorch.dump.encoder import Encoder, Path, Side
from msprobe.pytorch.dump.summaries import Holds
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import StepWriter
from msprobe.writer.entry import Entry

MOST_RESULTS = 1 << 16
"""Tensors whose statistics may be staged; each takes about a kilobyte on its device."""
MOST_BYTES = 1 << 30
"""Bytes of copies that may be staged on devices; a tensor that is larger is written at once."""


class HoldingWriter(StepWriter):
    """Keeps the entries open whose records are not complete yet; until then their text has nulls where values are outstanding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.waiting: set[str] = set()
        """Names of entries with something staged."""
        self._held: list[Entry] = []
        super().__init__(*args, **kwargs)

    def finish(self, entry: Entry) -> None:
        """The entry is final, now or when what it waits for has been read."""
        if self._held or entry.name in self.waiting:  # what comes behind one that waits does too: the order stays
            self._held.append(entry)
        else:
            super().finish(entry)

    def release(self) -> None:
        """Everything has been read."""
        self.waiting.clear()
        held, self._held = self._held, []
        for entry in held:
            super().finish(entry)


class Staging:
    """What waits on the devices for the end of one step.

    Args:
        writer: of the step's files.
        report: called as `report(entry, reason)` for what could not be read.
    """

    def __init__(self, writer: HoldingWriter, report: Callable[[str, str], None]) -> None:
        self._writer = writer
        self._report = report
        self._lock = threading.RLock()
        self._results: list[tuple[Launched, dict[str, Any], str]] = []
        self._copies: list[tuple[torch.Tensor, Callable[[torch.Tensor], None], dict[str, Any], str]] = []
        self._bytes = 0
        self._told = False

    def stage(self, launched: Launched, record: dict[str, Any], entry: str) -> None:
        """Statistics or a checksum: the record gets them later."""
        with self._lock:
            self._writer.waiting.add(entry)
            self._results.append((launched, record, entry))
            if len(self._results) >= MOST_RESULTS:
                self._read_early(f"the statistics of {MOST_RESULTS} tensors")

    def keep(self, tensor: torch.Tensor, write: Callable[[torch.Tensor], None], record: dict[str, Any], entry: str) -> None:
        """Values: copied on the device now, `write(copy)` later; if that fails the record loses its `data_name`."""
        size = tensor.numel() * tensor.element_size()
        if size > MOST_BYTES:
            self._tell(f"a tensor of {size / 1e9:.1f} GB")
            write(tensor)
            return
        with self._lock:
            if self._bytes + size > MOST_BYTES:
                self._read_early(f"{self._bytes / 1e9:.1f} GB of tensors")
            with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                copy = tensor.detach().clone()
            self._writer.waiting.add(entry)
            self._bytes += size
            self._copies.append((copy, write, record, entry))

    def read(self) -> None:
        """Wait for the devices and complete all records; never raises."""
        with self._lock:
            results, self._results = self._results, []
            copies, self._copies = self._copies, []
            self._bytes = 0
            with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                self._read_results(results)
                copies.reverse()
                while copies:
                    self._write(*copies.pop())
            self._writer.release()

    def _read_results(self, results: list[tuple[Launched, dict[str, Any], str]]) -> None:
        try:
            _wait_for({part.device for launched, _, _ in results for part in launched.parts})
            found = device_statistics.read([launched for launched, _, _ in results])
        except Exception as error:
            let_through(error)
            for entry in dict.fromkeys(entry for _, _, entry in results):
                self._report(entry, f"values could not be read from the device: {error!r}")
            return
        for (launched, record, _), values in zip(results, found, strict=True):
            if launched.kind == "xor":
                record["md5"] = values[0]
            else:
                record["Max"], record["Min"], record["Mean"], record["Norm"] = values

    def _write(self, copy: torch.Tensor, write: Callable[[torch.Tensor], None], record: dict[str, Any], entry: str) -> None:
        try:
            write(copy)
        except Exception as error:
            let_through(error)
            self._report(entry, f"{record.pop('data_name', 'a tensor')}: values could not be kept: {error!r}")

    def _read_early(self, what: str) -> None:
        self._tell(what)
        self.read()

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                f'async_dump: {what} had to be read before the step ended, and the device was waited for; "list" can select less'
            )


def _wait_for(devices: set[torch.device]) -> None:
    """All streams of the devices: what was launched on one of them is read on another."""
    if torch.accelerator.is_available():
        for device in devices:
            torch.accelerator.synchronize(device)


class StagedEncoder(Encoder):
    """Makes records without waiting for a device: what is there is staged.

    Args:
        saver: writes values; None where none are kept.
        report: called as `report(entry, reason)` for what could not be recorded.
        holds: what the record of a tensor holds.
        staging: of this step.
        note: of `Encoder`.
    """

    def __init__(
        self,
        saver: TensorSaver | None,
        report: Callable[[str, str], None],
        holds: Holds,
        staging: Staging,
        note: Callable[[Note], None] | None = None,
    ) -> None:
        super().__init__(saver, report, holds, complex_statistics=False, note=note)
        self._saver = saver
        self._staging = staging

    def settle(self) -> None:
        """Read everything that is staged."""
        self._staging.read()

    def _described(self, tensor: torch.Tensor, side: Side) -> unusual.Described:
        def later(readable: torch.Tensor, record: dict[str, Any]) -> None:
            launch = device_statistics.launch_xor if self._holds is Holds.XOR else device_statistics.launch
            self._staging.stage(launch(readable), record, side.entry)

        return unusual.describe(tensor, self._holds, later)

    def _keep(self, tensor: torch.Tensor, record: dict[str, Any], path: Path, side: Side) -> None:
        saver = self._saver
        if saver is None or tensor.is_cpu:
            super()._keep(tensor, record, path, side)
            return
        try:
            name = saver.file_name(side, path)
            record["data_name"] = name
            self._staging.keep(tensor, lambda copy: saver.write(copy, name), record, side.entry)
        except Exception as error:
            let_through(error)
            record.pop("data_name", None)
            self._report(side.entry, f"{side.role} {'.'.join(path)}: values could not be kept: {error!r}")
