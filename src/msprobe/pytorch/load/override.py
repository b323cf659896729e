"""Replacing inputs of modules by recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from msprobe.config.result import LoadConfig
from msprobe.format.tensor_file import TensorData

Observe: TypeAlias = Callable[[str, str, tuple[str, ...], torch.Tensor, TensorData], None]
"""`observe(entry, role, path, arrived, loaded)`, before a tensor is replaced: entry "Module.x.C.forward.0", role "input" or "kwargs"."""


class Override:
    """The replacement of module inputs in this process, as one configuration asks for it.

    Args:
        load: the `load` section.
        observe: is shown every tensor before it is replaced. What it raises is contained and told.
        entries: gives the module calls whose inputs are replaced, in the place of `load.modules`; asked when a step begins.

    Raises:
        ConfigError: nothing can be loaded from `load.path`.
    """

    def __init__(self, load: LoadConfig, *, observe: Observe | None = None, entries: Callable[[], Sequence[str]] | None = None) -> None:
        self.load = load

    def wants(self, step: int, rank: int | None) -> bool:
        """Whether inputs are replaced in this step and on this rank."""
        return (not self.load.step or step in self.load.step) and (not self.load.rank or rank in self.load.rank)

    def start(self, model: Any, step: int, rank: int | None) -> None:
        """Inputs are replaced from here. Raises UsageError at the first start of the process, if nothing can be loaded."""

    def stop(self) -> None:
        """No more inputs are replaced; entries that never came are told. Nothing of ours stays on the model."""

    def end_step(self) -> None:
        """The step ends: calls are counted from 0 again, and what was replaced is told in a line."""

    def forget(self) -> None:
        """Take everything off, and say nothing."""
