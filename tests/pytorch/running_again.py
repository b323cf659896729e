"""Runs a recorded call again, on its own, from its entry and its tensor files, and differentiates it with torch.autograd.grad."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from capturing import Step, tensors
from torch import nn
from torch.nn.utils import rnn

from msprobe.format import layout
from msprobe.format.names import ApiName, ModuleName, parse

PREFIXES: dict[str, Any] = {
    "Functional": torch.nn.functional,
    "Torch": torch,
    "Tensor": torch.Tensor,
    "VF": torch._VF,
    "Aten": torch.ops.aten,
}


class CannotRunAgain(Exception):
    """An argument is no value that dump.json can give back."""


def function_of(name: ApiName) -> Callable[..., Any]:
    """`Torch.linalg.norm` -> torch.linalg.norm."""
    found = PREFIXES[name.prefix] if name.prefix in PREFIXES else getattr(torch.ops, name.prefix)  # an operator of an extension
    for part in name.api.split("."):
        found = getattr(found, part)
    return found


def load(record: dict[str, Any], directory: Path) -> torch.Tensor:
    """The values of a tensor record."""
    if "data_name" not in record:
        if 0 not in record["shape"]:
            raise CannotRunAgain("a tensor without values")
        return torch.empty(record["shape"], dtype=getattr(torch, record["dtype"].removeprefix("torch.")))
    tensor = torch.load(directory / layout.TENSORS / record["data_name"], weights_only=True)
    assert isinstance(tensor, torch.Tensor)
    assert list(tensor.shape) == record["shape"] and str(tensor.dtype) == record["dtype"]
    return tensor


class Arguments:
    """The arguments of one call, rebuilt.

    Args:
        shared: True gives slots with equal values one tensor, as when a tensor was passed twice.

    Attributes:
        leaves: for each tensor that requires grad, in order, the leaf whose gradient is asked.
    """

    def __init__(self, entry: dict[str, Any], directory: Path, shared: bool) -> None:
        self._directory = directory
        self._shared = shared
        self._known: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.leaves: list[torch.Tensor] = []
        self.args = [self.value(record) for record in entry["input_args"]]
        self.kwargs = {key: self.value(record) for key, record in entry["input_kwargs"].items()}

    def value(self, record: Any) -> Any:
        """A value from its record."""
        if record is None:
            return None
        if isinstance(record, list):
            return [self.value(item) for item in record]
        kind = record.get("type") if isinstance(record.get("type"), str) else None
        if kind is None:
            values = {key: self.value(item) for key, item in record.items()}
            return rnn.PackedSequence(**values) if tuple(values) == rnn.PackedSequence._fields else values
        if kind == "torch.Tensor":
            return self._tensor(record)
        if kind in ("int", "float", "bool", "str"):
            return record["value"]
        if kind == "torch.dtype":
            return getattr(torch, record["value"].removeprefix("torch."))
        if kind == "torch.device":
            return torch.device(record["value"])
        if kind == "torch.Size":
            return torch.Size(record["value"])
        if kind == "torch.memory_format":
            return getattr(torch, record["format"])
        if kind == "slice":
            return slice(*record["value"])
        if kind == "ellipsis":
            return ...
        raise CannotRunAgain(kind)

    def _tensor(self, record: dict[str, Any]) -> torch.Tensor:
        tensor = load(record, self._directory)
        if not record["requires_grad"]:
            return tensor
        if self._shared:
            for leaf, given in self._known:
                if leaf.shape == tensor.shape and leaf.dtype == tensor.dtype and torch.equal(leaf, tensor):
                    self.leaves.append(leaf)
                    return given
        leaf = tensor.requires_grad_()
        # A leaf may not be changed in place, and the call may do that.
        given = leaf.clone()
        self._known.append((leaf, given))
        self.leaves.append(leaf)
        return given


def differentiable(value: Any) -> Iterator[torch.Tensor]:
    """All tensors that require grad in a result, in the order of dump.json."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from differentiable(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from differentiable(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from differentiable(getattr(value, field.name))


def requiring_grad(record: Any) -> list[dict[str, Any]]:
    return [t for t in tensors(record) if t.get("requires_grad")]


def same(recorded: torch.Tensor | None, expected: torch.Tensor | None, ulps: int, scale: float) -> bool:
    """Equal bits, or within so many units in the last place of the largest number involved, which is at least `scale`."""
    if recorded is None or expected is None:
        return recorded is expected
    if expected.layout != recorded.layout:
        return False
    if expected.layout != torch.strided:
        recorded, expected = recorded.to_dense(), expected.to_dense()
    if recorded.shape != expected.shape or recorded.dtype != expected.dtype:
        return False
    if torch.equal(recorded, expected):
        return True
    wide = torch.complex128 if expected.is_complex() else torch.float64
    largest = max(scale, expected.to(wide).abs().max().item())
    return (recorded.to(wide) - expected.to(wide)).abs().max().item() <= ulps * torch.finfo(expected.dtype).eps * largest


class Checker:
    """Holds every backward entry of a step against the call run again.

    Args:
        step: recorded at level mix with tensors.
        model: the model, or list of models, as it was before the step.
        context: entered around each call.
        ulps: how far a gradient may be from the one computed again.
    """

    def __init__(self, step: Step, model: Any, context: Callable[[], Any] = contextlib.nullcontext, ulps: int = 0) -> None:
        self.step = step
        self.data = step.data
        self.construct = step.construct
        self.explained = step.errors
        self.model: nn.Module = nn.ModuleList(model) if isinstance(model, list) else model
        self.context = context
        self.ulps = ulps

    def calls(self, direction: str) -> dict[str, ApiName | ModuleName]:
        """Names of the entries of one direction, taken apart."""
        parsed = {text: parse(text) for text in self.data}
        return {text: name for text, name in parsed.items() if isinstance(name, ApiName | ModuleName) and name.direction == direction}

    def is_explained(self, name: ApiName | ModuleName) -> bool:
        """Whether dump_error_info.log says why something about this call is missing."""
        backward = str(dataclasses.replace(name, direction="backward", extra_pass=0))
        return backward in self.explained or forward_of(name) in self.explained

    def wrong(self, text: str, name: ApiName | ModuleName) -> list[str]:
        """What is wrong with one backward entry."""
        backward, forward = self.data[text], self.data.get(forward_of(name))
        if forward is None:
            return [f"{text}: no forward entry"]
        inputs = [*requiring_grad(forward["input_args"]), *requiring_grad(forward["input_kwargs"])]
        if len(backward["output"]) != len(inputs):
            return [f"{text}: {len(backward['output'])} slots for {len(inputs)} inputs that require grad"]
        recorded = [None if r is None else load(r, self.step.directory) for r in backward["output"]]
        given = [r for r in backward["input"] if r is not None and r["Max"] is not None]
        scale = max((abs(r[key]) for r in given for key in ("Max", "Min")), default=0.0)
        found: list[str] = []
        for shared in (False, True):
            expected = self._run_again(name, forward, backward, shared)
            found = [
                f"{text}: slot {slot}: {_difference(got, wanted)}"
                for slot, (got, wanted) in enumerate(zip(recorded, expected, strict=True))
                if not same(got, wanted, self.ulps, scale) and not ((got is None or wanted is None) and self.is_explained(name))
            ]
            if not found:
                break
        return found

    def _run_again(
        self, name: ApiName | ModuleName, forward: dict[str, Any], backward: dict[str, Any], shared: bool
    ) -> list[torch.Tensor | None]:
        arguments = Arguments(forward, self.step.directory, shared)
        if isinstance(name, ApiName) and name.api == "__getitem__" and isinstance(arguments.args[1], list):
            arguments.args[1] = tuple(arguments.args[1])  # a tuple is a list in JSON
        call = function_of(name) if isinstance(name, ApiName) else self._module(name, forward)
        given = [None if record is None else load(record, self.step.directory) for record in backward["input"]]
        return gradients_of(call, arguments, given, self.context)

    def _module(self, name: ModuleName, forward: dict[str, Any]) -> nn.Module:
        """A copy of the module with the parameters it was called with."""
        module: nn.Module = copy.deepcopy(self.model.get_submodule(name.path))
        with torch.no_grad():
            for key, record in forward["parameters"].items():
                parameter = module._parameters[key]
                assert parameter is not None
                parameter.copy_(load(record, self.step.directory))
        return module

    def missing(self) -> list[str]:
        """Forward entries with a differentiable input and output that have no backward entry, and no reason in dump_error_info.log."""
        backward = {forward_of(name) for name in self.calls("backward").values()}
        found = []
        for text, name in self.calls("forward").items():
            entry = self.data[text]
            inputs = isinstance(name, ModuleName) or requiring_grad([entry["input_args"], entry["input_kwargs"]])
            if inputs and requiring_grad(entry.get("output")) and text not in backward and not self.is_explained(name):
                found.append(text)
        return found

    def ancestors(self, text: str) -> list[str]:
        """A call, its parent in construct.json, the parent's parent …"""
        found = []
        following: str | None = text
        while following is not None:
            found.append(following)
            following = self.construct[following]
        return found

    def wrong_parents(self) -> list[str]:
        """Backward entries whose parent in construct.json does not mirror their forward's."""
        found = []
        for text, name in self.calls("backward").items():
            parent = self.construct.get(forward_of(name), "missing")
            if parent:
                parent = parent.replace(".forward.", ".backward.") + (f".pass{name.extra_pass}" if name.extra_pass else "")
            if self.construct.get(text, "missing") != parent:
                found.append(f"{text}: parent {self.construct.get(text, 'missing')}, not {parent}")
        return found


def forward_of(name: ApiName | ModuleName) -> str:
    """The forward entry of a backward one."""
    return str(dataclasses.replace(name, direction="forward", extra_pass=0))


def gradients_of(
    call: Callable[..., Any], arguments: Arguments, given: list[torch.Tensor | None], context: Callable[[], Any]
) -> list[torch.Tensor | None]:
    """torch.autograd.grad of one call alone.

    Args:
        given: a gradient or None for each output that requires grad.

    Returns:
        A gradient or None for each input that requires grad.
    """
    with torch.enable_grad(), context():
        result = call(*arguments.args, **arguments.kwargs)
    outputs = list(differentiable(result))
    assert len(outputs) == len(given), f"{len(outputs)} outputs require grad, {len(given)} gradients are recorded"
    pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for output, gradient in zip(outputs, given, strict=True):
        if gradient is not None:
            assert gradient.shape == output.shape and gradient.dtype == output.dtype
            pairs.setdefault(id(output), (output, gradient))  # one tensor returned twice has the total in both slots
    leaves = list({id(leaf): leaf for leaf in arguments.leaves}.values())
    if not pairs or not leaves:
        return [None] * len(arguments.leaves)
    found = torch.autograd.grad([o for o, _ in pairs.values()], leaves, [g for _, g in pairs.values()], allow_unused=True)
    by_leaf = {id(leaf): gradient for leaf, gradient in zip(leaves, found, strict=True)}
    return [by_leaf[id(leaf)] for leaf in arguments.leaves]


def _difference(recorded: torch.Tensor | None, expected: torch.Tensor | None) -> str:
    if recorded is None or expected is None:
        return f"recorded {'nothing' if recorded is None else 'a gradient'}, expected {'none' if expected is None else 'one'}"
    if recorded.layout != expected.layout or recorded.shape != expected.shape or recorded.dtype != expected.dtype:
        kinds = [f"{t.dtype} {tuple(t.shape)} {t.layout}" for t in (recorded, expected)]
        return f"recorded {kinds[0]}, expected {kinds[1]}"
    recorded, expected = recorded.to_dense(), expected.to_dense()
    return f"differs by {(recorded - expected).abs().max().item():.3g}, the largest is {expected.abs().max().item():.3g}"
