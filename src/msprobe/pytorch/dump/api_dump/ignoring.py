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
        spread = value if issubclass(type(value), tuple) and not hasattr(type(value), "_fields") else (value,)
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


def _walk(value: Any, side: Side, seen: set[int], depth: int) -> None:
    try:
        kind = type(value)
        if issubclass(kind, torch.Tensor):
            if value.requires_grad:
                side.leaves.append(value)
            return
        if depth > _MAX_DEPTH or len(seen) > _MAX_CONTAINERS or id(value) in seen:
            return
        if issubclass(kind, Mapping):
            items = list(value.values())
        elif issubclass(kind, list | tuple):
            items = list(value)
        elif dataclasses.is_dataclass(kind):
            items = [getattr(value, one.name, None) for one in dataclasses.fields(value)]
        else:
            return
        seen.add(id(value))
        for item in items:
            _walk(item, side, seen, depth + 1)
    except Exception as error:  # whatever a user's object does when looked at stays out of the user's run
        let_through(error)
