"""What `msprobe run` and the processes below it tell each other: orders in the environment, and lines about what was seen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from msprobe.errors import UsageError
from msprobe.format.lines import append_line, read_lines

VARIABLE = "MSPROBE_RUN"
"""Environment variable: the orders as JSON, so that they also reach processes on other machines."""

EVENTS = "MSPROBE_RUN_EVENTS"
"""Environment variable: the file that the parent reads; also used by `injected/sitecustomize.py`, which knows no JSON."""

_events: str | None = None
"""What `EVENTS` said when this process was armed: the script may clear its environment."""

StepOn = Literal["auto", "optimizer", "forward"]
Models = Literal["auto", "all"]


@dataclass(frozen=True)
class Orders:
    """What to record.

    Attributes:
        config: absolute path of config.json, None for the packaged defaults.
        arguments: fields that go before the file.
        step_on: what ends a step.
        forwards: how many calls of a model are one step, where calls end it.
        optimizer_steps: how many steps of optimizers are one step, where these end it.
        models: "all": every module that is called outermost is a model, whether an optimizer trains it or not.
    """

    config: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    step_on: StepOn = "auto"
    forwards: int = 1
    optimizer_steps: int = 1
    models: Models = "auto"

    def text(self) -> str:
        """As it stands in the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls) -> Orders:
        """Those of this process. Raises UsageError where they are none of ours."""
        global _events
        _events = os.environ.get(EVENTS)
        try:
            return cls(**json.loads(os.environ[VARIABLE]))
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(
                f"the environment variable {VARIABLE} holds no orders of msprobe run ({error!r}); is it set by hand?"
            ) from None


def processes() -> frozenset[int]:
    """The processes of this run that have said something so far; none where another machine holds what they say."""
    if not _events:
        return frozenset()
    try:
        return frozenset(line["pid"] for line in read_lines(Path(_events)))
    except OSError:
        return frozenset()


def tell(event: str, **more: Any) -> bool:
    """A line for the parent; whether it can be there: another machine has no such file."""
    path = _events
    if not path or not os.path.exists(path):
        return False
    try:
        append_line(path, {"event": event, "pid": os.getpid(), **more})
    except OSError:
        return False
    return True
