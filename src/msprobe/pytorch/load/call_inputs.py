"""The arguments of one module call, with recorded tensors in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from msprobe.contain import let_through
from msprobe.errors import DumpFormatError
from msprobe.format.tensor_file import TensorData
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.load.containers import Copies, Rebuilding
from msprobe.pytorch.load.hooking import Exchanged
from msprobe.pytorch.load.source import StepSource, read_tensor
from msprobe.pytorch.load.values import in_place_of, shape_and_dtype

Observe: TypeAlias = Callable[[str, str, tuple[str, ...], torch.Tensor, TensorData], None]
"""`observe(entry, role, path, arrived, loaded)`, before a tensor is replaced: entry "Module.x.C.forward.0", role "input" or "kwargs"."""


class Warn(Protocol):
    def __call__(self, text: str, about: str = "") -> None: ...


Loaded: TypeAlias = "TensorData | torch.Tensor"
_CUT = "; the shapes differ, so the graph is cut here: no gradient flows to what made the current tensor"
_INTEGERS = "; the source has no gradients, so the graph is cut here: no gradient flows to what made the current tensor"


@dataclass
class _Call:
    """One call whose inputs are being exchanged."""

    source: StepSource
    entry: str
    recorded: str
    """The entry's name in the source."""
    silent: bool
    """It repeats a call that everything has been told of."""
    made: dict[int, list[tuple[Loaded, torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    """id of a tensor that arrived -> what it was replaced by, and that tensor itself, which keeps the id from being used again."""


class CallInputs:
    """Replaces tensors in the arguments of calls.

    Args:
        cast: whether a loaded tensor is converted to the dtype of the one that it replaces.
        warn: tells a text, once; or once for what it is about.
        observe: is shown every tensor before it is replaced.
        finite: finite values stay finite in the conversion.
    """

    def __init__(self, cast: bool, warn: Warn, observe: Observe | None = None, finite: bool = False) -> None:
        self._cast, self._warn, self._observe, self._finite = cast, warn, observe, finite
        self.replaced = 0
        """Tensors so far."""
        self._converted: set[str] = set()

    def exchange(
        self, source: StepSource, entry: str, args: tuple[Any, ...], kwargs: dict[str, Any], silent: bool = False, recorded: str = ""
    ) -> Exchanged | None:
        """The arguments with recorded tensors in the place of theirs; None where there is nothing to replace.

        Args:
            source: where the tensors are.
            entry: the call, `Module.{path}.{Class}.forward.{n}`.
            args, kwargs: of the call that is being made; they stay as they are.
            silent: no warnings and no observer.
            recorded: its name in the source; "" where that is `entry`.
        """
        call = _Call(source, entry, recorded or entry, silent)
        before = self.replaced
        copies: Copies = {}

        def walk(role: str, value: Any, name: str) -> Any:
            def exchange(tensor: torch.Tensor, path: tuple[str, ...]) -> torch.Tensor:
                return self._one(call, role, path, tensor)

            return Rebuilding(exchange, self._left_alone(entry), copies).value(value, (name,))

        new_args = tuple(walk("input", value, str(i)) for i, value in enumerate(args))
        new_kwargs = {key: walk("kwargs", value, key) for key, value in kwargs.items()}
        return (new_args, new_kwargs) if self.replaced != before else None

    def _left_alone(self, entry: str) -> Callable[[type], None]:
        def tell(kind: type) -> None:
            self._warn(f"{entry}: a {kind.__name__} among the arguments cannot be copied, so tensors inside it are not replaced")

        return tell

    def _one(self, call: _Call, role: str, path: tuple[str, ...], current: torch.Tensor) -> torch.Tensor:
        """What takes a tensor's place; the tensor itself where nothing can."""
        place = ".".join((call.entry, role, *path))
        try:
            loaded = self._load(call, role, path, current, place)
            if loaded is None:
                return current
            same = next((made for other, made, _ in call.made.get(id(current), ()) if _equal(other, loaded)), None)
            if self._observe is not None and not call.silent and isinstance(loaded, TensorData):
                self._show(call.entry, role, path, current, loaded)
            if same is None:
                self._tell_difference(call, place, loaded, current)
                same = in_place_of(current, loaded, current.dtype if self._cast else None, self._finite)
                call.made.setdefault(id(current), []).append((loaded, same, current))
        except Exception as error:
            let_through(error)
            self._warn(f"{place} could not be replaced, the value that arrived is kept: {_words(error)}", about=f"{place} unreadable")
            return current
        self.replaced += 1
        return same

    def _load(self, call: _Call, role: str, path: tuple[str, ...], current: torch.Tensor, place: str) -> Loaded | None:
        why = _why_left(current)
        if why:
            self._warn(f"{place} is {why} and is not replaced")
            return None
        try:
            file, values = call.source.find(call.recorded, role, path)
        except DumpFormatError as error:
            self._warn(f"{error}: files are looked for by the names of the calls", about="dump.json")
            file, values = call.source.find(call.recorded, role, path)
        if values is not None:
            return values
        if not file.exists():
            if current.numel():  # there is no file of an empty tensor
                self._tell_missing(call, place, file)
            return None
        return read_tensor(file)

    def _tell_missing(self, call: _Call, place: str, file: Path) -> None:
        why, always = call.source.why_missing(call.recorded)
        if always:
            self._warn(f"no source for {place}, nor for any other call: {why}; the values that arrived are kept", about=why)
        else:
            because = f" ({why})" if why else ""
            self._warn(f"no source for {place}: {file} does not exist{because}; the value that arrived is kept", about=f"{place} missing")

    def _show(self, entry: str, role: str, path: tuple[str, ...], current: torch.Tensor, loaded: TensorData) -> None:
        assert self._observe is not None
        try:
            self._observe(entry, role, path, current, loaded)
        except Exception as error:
            let_through(error)
            self._warn(f"{entry}: the tensor that arrived could not be looked at: {_words(error)}")

    def _tell_difference(self, call: _Call, place: str, loaded: Loaded, current: torch.Tensor) -> None:
        if call.silent:
            return
        shape, dtype = shape_and_dtype(loaded)
        layout = loaded.layout if isinstance(loaded, torch.Tensor) else torch.strided
        here = list(current.shape)
        same_dtype, same_layout = dtype is current.dtype, layout is current.layout
        if shape != here or not same_layout or not (same_dtype or self._cast):
            there, arrived = ("", "") if same_layout else (f" layout={layout}", f" layout={current.layout}")
            text = (
                f"tensor mismatch for {place}: source shape={shape} dtype={dtype}{there} vs "
                f"current shape={here} dtype={current.dtype}{arrived}, override may cause forward error"
            )
            if current.requires_grad and shape != here:
                text += _CUT
            elif current.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
                text += _INTEGERS
            self._warn(text)
        if self._cast and not same_dtype and place not in self._converted:
            self._converted.add(place)
            logger.info(f"[load] {place}: converted from {dtype} to {current.dtype} (cast)")


def _why_left(tensor: torch.Tensor) -> str:
    """Why no other tensor can stand in for this one, "" where one can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(tensor).__name__}"
    if torch_internals.is_functorch_wrapped(tensor):
        return "inside a torch.func transform"
    if tensor.is_nested:
        return "a nested tensor"
    return ""


def _equal(one: Loaded, other: Loaded) -> bool:
    """Whether two places of a call got the same values: then one tensor stands in both, as before."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return False
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return len(one.data) == 0 or bool(np.array_equal(np.frombuffer(one.data, np.uint8), np.frombuffer(other.data, np.uint8)))


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, DumpFormatError) else repr(error)
