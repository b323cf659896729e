"""Inputs and outputs of a call that are left out (builtin_ignore_ops.yaml): null stands in their place, and no file is written.

Gradients are not concerned: they are recorded for what was left out too, each in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch.dump import containers
from msprobe.pytorch.dump.encoder import Encoder, Record, Side

_MAX_CONTAINERS = 10_000
_MAX_DEPTH = 50


@dataclass(frozen=True)
class Ignored:
    """What is left out of the calls of one API.

    Attributes:
        all_inputs, all_outputs: everything.
        inputs, outputs: positions, from 0.
        keywords: names of keyword arguments.
    """

    all_inputs: bool = False
    inputs: frozenset[int] = frozenset()
    keywords: frozenset[str] = frozenset()
    all_outputs: bool = False
    outputs: frozenset[int] = frozenset()

    def encoder(self, encoder: Encoder) -> IgnoringEncoder:
        """What encodes such a call, in place of `encoder`."""
        return IgnoringEncoder(encoder, self)


class IgnoringEncoder:
    """The encoder's three methods for the sides of a call, with null where something is left out."""

    def __init__(self, encoder: Encoder, ignored: Ignored) -> None:
        self._encoder, self._ignored = encoder, ignored

    def positional(self, values: tuple[Any, ...], side: Side) -> list[Record]:
        """Records of positional arguments, in order."""
        ignored = self._ignored
        return self._some(values, side, ignored.all_inputs, ignored.inputs)

    def keyword(self, values: Mapping[str, Any], side: Side) -> dict[str, Record]:
        """Records of keyword arguments."""
        ignored = self._ignored
        records: dict[str, Record] = {}
        for key, value in values.items():
            if ignored.all_inputs or key in ignored.keywords:
                _note_leaves(value, side)
                records[key] = self._encoder.left_out((key,), side)
            else:
                records.update(self._encoder.keyword({key: value}, side))
        return records

    def output(self, value: Any, side: Side) -> list[Record]:
        """Records of a result: a tuple is spread, everything else is one element."""
        ignored = self._ignored
        kind = type(value)
        spread = containers.spread(value, kind) if issubclass(kind, tuple) and not hasattr(kind, "_fields") else (value,)
        return self._some(spread, side, ignored.all_outputs, ignored.outputs)

    def _some(self, values: tuple[Any, ...], side: Side, every: bool, positions: frozenset[int]) -> list[Record]:
        records: list[Record] = []
        for i, value in enumerate(values):
            if every or i in positions:
                _note_leaves(value, side)
                records.append(self._encoder.left_out((str(i),), side))
            else:
                records.append(self._encoder.value(value, (str(i),), side))
        return records


def _note_leaves(value: Any, side: Side) -> None:
    """The tensors that require grad, as the encoder would have noted them."""
    _walk(value, side, set(), 0)


def _field(value: Any, kind: type, name: str) -> Any:
    try:
        return containers.field(value, kind, name)
    except containers.RunsCode:
        return None


def _walk(value: Any, side: Side, seen: set[int], depth: int) -> None:
    try:
        kind = type(value)
        if issubclass(kind, torch.Tensor):
            if value.requires_grad:
                side.leaves.append(value)
            return
        if depth > _MAX_DEPTH or len(seen) > _MAX_CONTAINERS or id(value) in seen:
            return
        if containers.is_mapping(kind):
            items = [item for _, item in containers.items(value, kind) or ()]
        elif issubclass(kind, list):
            items = list(containers.elements(value, kind))
        elif issubclass(kind, tuple):
            items = list(containers.spread(value, kind))
        elif dataclasses.is_dataclass(kind):
            items = [item for item in (_field(value, kind, name) for name in containers.field_names(kind)) if item is not None]
        else:
            return
        seen.add(id(value))
        for item in items:
            _walk(item, side, seen, depth + 1)
    except Exception as error:  # whatever a user's object does when looked at stays out of the user's run
        let_through(error)
