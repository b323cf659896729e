"""Fields and values that are checked but whose effect is not built yet. When one gets built, its row goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msprobe.config.messages import Loc
from msprobe.config.result import Config
from msprobe.config.values import LEVELS, TASKS_OF, one_of


@dataclass(frozen=True)
class Row:
    """One thing that is not built: the field (of the chosen task's section after `section.`), the values that need it, the words for it.

    `instead`: what to do about it; where empty (task, level), the values that are built are named. `framework`: where it is missing.
    """

    field: str
    needs: Callable[[Any], bool]
    feature: str
    instead: str = ""
    framework: str = "pytorch"


def _among(*values: str) -> Callable[[Any], bool]:
    return lambda value: any(item in values for item in (value if isinstance(value, tuple) else (value,)))


NOT_YET: tuple[Row, ...] = (
    Row("task", _among("acc_check"), "task acc_check"),
    Row("level", _among("L2"), "recording PyTorch's kernels (level L2)"),
)


def built(field: str, values: tuple[str, ...], framework: str = "pytorch") -> tuple[str, ...]:
    """Those of `values` of a field outside the sections that are there to be used."""
    rows = [row for row in NOT_YET if row.field == field and row.framework == framework]
    return tuple(value for value in values if not any(row.needs(value) for row in rows))


def not_yet(config: Config) -> Iterator[tuple[Loc, Any, str]]:
    """Place, value and message for everything in `config` that would need what is not built."""
    for row in NOT_YET:
        head, _, name = row.field.rpartition(".")
        value = getattr(config.section if head else config, name)
        if row.framework == config.framework and row.needs(value):
            loc: Loc = (config.task, name) if head else (name,)
            choices = TASKS_OF[config.framework] if name == "task" else LEVELS
            instead = row.instead or f"use {one_of(built(name, choices, config.framework))}"
            yield loc, value, f"{row.feature} is not available yet: {instead}"
