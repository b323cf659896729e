"""start() came before init_process_group: the step began without a rank, and ends with one.

Its directory `proc{pid}` becomes `rank{rank}` when the step ends and its files are at rest; the steps after it begin with the rank.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import Protocol

from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.pytorch.process import current_rank
from msprobe.recording.place import Place
from msprobe.writer import StepWriter

_HEAD = 1 << 16
_DATA_DIR = re.compile(rb'("dump_data_dir":\s*)("(?:[^"\\]|\\.)*")')


class Step(Protocol):
    """A step of calls, or of values saved by hand."""

    writer: StepWriter
    directory: str

    def close(self, late: int) -> None:
        """End it."""


def close_step(step: Step, place: Place | None, late: int) -> None:
    """End a step, in the directory of the rank that this process has by now.

    Args:
        step: the step.
        place: where it was begun.
        late: calls of earlier steps whose gradients came too late, not yet told.
    """
    rank = current_rank() if place is not None and place.rank is None else None
    if rank is not None:
        step.writer.meta["rank"] = rank
    step.close(late)
    if rank is not None:
        try:
            step.directory = _move(step.directory, rank)
        except Exception as error:
            let_through(error)
            logger.warning(f"{step.directory} could not become rank{rank}: {error!r}; its files are complete, under that name")


def _move(directory: str, rank: int) -> str:
    """Gives the directory's new name, the old one where it stays."""
    target = layout.rank_dir(os.path.dirname(directory), rank, os.getpid())
    if not os.path.isdir(directory):
        return directory
    if os.path.isdir(target) and os.listdir(target):
        logger.warning(f"{directory} stays what it is: {target} is there already, an earlier run's or another process's")
        return directory
    os.rename(directory, target)
    for document in (layout.DUMP, layout.DEBUG):
        path = os.path.join(target, document)
        if os.path.exists(path):
            _rewrite_head(path, os.path.basename(directory), os.path.basename(target))
    logger.info(f"the process group came after start(): {directory} is now {target}")
    return target


def _rewrite_head(path: str, before: str, after: str) -> None:
    """`dump_data_dir` names the directory; whatever interrupts this leaves the file as it was or as it is to be."""
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        found = _DATA_DIR.search(head)
        if found is None:
            return  # null: no tensor files
        parent, tensors = os.path.split(json.loads(found.group(2)))
        if os.path.basename(parent) != before:
            return
        renamed = os.path.join(os.path.dirname(parent), after, tensors)
        temporary = f"{path}.renamed"
        with open(temporary, "wb") as output:
            output.write(head[: found.start()] + found.group(1) + json.dumps(renamed).encode() + head[found.end() :])
            shutil.copyfileobj(file, output)
    os.replace(temporary, path)
