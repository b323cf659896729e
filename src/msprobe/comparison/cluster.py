"""Units of work on the workers of a Dask cluster. Needs the extra `msprobe[cluster]`.

A worker need not share a disk with whoever asks: dumps named by fsspec URLs are fetched where they are compared, and the files that a unit
writes travel back with its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from msprobe.comparison.jobs import Progress
from msprobe.comparison.outcome import Failure, PairReport
from msprobe.comparison.temporary import temporary_directory
from msprobe.comparison.work import Unit, attempt
from msprobe.errors import UsageError

_PATIENCE = 20
"""Seconds to wait for the scheduler."""

Sent = tuple[PairReport | Failure, dict[str, bytes]]


def run(units: Sequence[Unit], address: str, progress: Progress | None = None) -> Iterator[PairReport | Failure]:
    """The results in the order of the units.

    Args:
        address: of Dask's scheduler, `tcp://host:8786`.

    Raises:
        UsageError: Dask is not installed, or nobody answers at the address.
        OSError: the results cannot be written.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError("--cluster needs Dask, which is not installed: pip install 'dask[distributed]' fsspec") from None
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {str(error).splitlines()[0] if str(error) else error!r}") from None
    with client:
        futures = client.map(send, units, pure=False, retries=1)
        numbers = {future.key: number for number, future in enumerate(futures)}
        waiting: dict[int, PairReport | Failure] = {}
        done = given = 0
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                number = numbers[future.key]
                unit = units[number]
                problem = future.exception()
                if isinstance(problem, distributed.KilledWorker):
                    waiting[number] = Failure(unit.pair, "the workers of the cluster that compared it died; the others went on")
                elif problem is not None:
                    raise problem
                else:
                    waiting[number] = _received(future.result(), unit)
                future.release()
                done += 1
                if progress is not None:
                    progress(done, len(units), unit.pair.title)
                while given in waiting:
                    yield waiting.pop(given)
                    given += 1
        finally:
            client.cancel(futures)


def send(unit: Unit) -> Sent:
    """On the worker: the result, and the files written, by name."""
    with temporary_directory() as temporary:
        result = attempt(replace(unit, output=Path(temporary)))
        return result, {path.name: path.read_bytes() for path in Path(temporary).iterdir()}


def _received(sent: Sent, unit: Unit) -> PairReport | Failure:
    """Puts the files where they belong. An existing one is not overwritten."""
    result, files = sent
    if isinstance(result, Failure):
        return result
    unit.output.mkdir(parents=True, exist_ok=True)
    written = {name: _written(unit.output, name, content) for name, content in files.items()}
    moved: dict[str, Any] = {}
    for kind in ("csv", "xlsx", "jsonl"):
        path = getattr(result, kind)
        if path is not None:
            moved[kind] = written[path.name]
    return replace(result, **moved)


def _written(directory: Path, name: str, content: bytes) -> Path:
    stem, dot, extension = name.rpartition(".")
    counter = 0
    while True:
        path = directory / (f"{stem}_{counter}{dot}{extension}" if counter else name)
        try:
            with open(path, "xb") as file:
                file.write(content)
            return path
        except FileExistsError:
            counter += 1
