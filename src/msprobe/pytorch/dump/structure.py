"""Task structure: no record of any value, and no statistics."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.pytorch.dump.encoder import Encoder, Path, Record, Side
from msprobe.recording.plain_values import PLAIN

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class StructureEncoder(Encoder):
    """Looks for the tensors that require grad, because backward entries need them; records nothing."""

    def __init__(self) -> None:
        super().__init__(None, lambda entry, reason: None)

    def positional(self, values: tuple[Any, ...], side: Side) -> list[Record]:
        """Nothing, after a look at the values."""
        self._look(values, side)
        return []

    def keyword(self, values: dict[str, Any], side: Side) -> dict[str, Record]:
        """Nothing, after a look at the values."""
        self._look(values.values(), side)
        return {}

    def gradient(self, gradient: Any, slot: int | str, side: Side) -> Record:
        """Nothing."""
        return None

    def tensor(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        """Nothing; the tensor is noted if it requires grad."""
        return self._unusual(tensor, path, side)

    def _look(self, values: Any, side: Side) -> None:
        for value in values:
            kind = type(value)
            if kind in _TENSORS:
                if value.requires_grad:
                    side.leaves.append(value)
            elif value is not None and kind not in PLAIN:
                self.value(value, ("",), side)

    def _unusual(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        if tensor.requires_grad:
            side.leaves.append(tensor)
        return None

    def _array(self, array: Any, path: Path, side: Side) -> Record:
        return None
