"""Functions of packages that are watched where the program has imported them: torch_npu, mindspeed.ops, and kernels of triton.

Nothing is imported for it: that could change the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from types import FunctionType, ModuleType
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import Api, ApiTable
from msprobe.pytorch.dump.api_dump.exchanged import Handler
from msprobe.pytorch.dump.api_dump.operation_files import PREFIXES
from msprobe.pytorch.dump.api_dump.watching import Watch, recording
from msprobe.pytorch.dump.distributed import c10d
from msprobe.pytorch.dump.recorder import Recorder

Found = tuple[Any, str, str]
"""Owner, attribute, and the name of the API."""

_MINDSPEED = "mindspeed.ops"
_TRITON = ("triton.runtime.jit", "triton.runtime.autotuner", "triton.runtime.interpreter")
_MAX_WRAPPERS = 20


def package_functions(table: ApiTable) -> Iterator[tuple[Any, str, Api]]:
    """Owner, attribute and Api of every function of a loaded package that support_wrap_ops.yaml names."""
    finders: dict[str, Callable[[list[str]], Iterator[Found]]] = {
        "torch_npu": lambda names: _in_module("torch_npu", names),
        "npu_distributed": lambda names: _in_module("torch_npu.distributed", names),
        "mindspeed": _in_mindspeed,
    }
    for category, find in finders.items():
        names = table.files.watched.get(category) or []
        for owner, attribute, name in find(names) if names else ():
            yield owner, attribute, table.api(PREFIXES[category], name)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _namespace(module: Any) -> dict[str, Any]:
    """A module's variables, without waking a module that is loaded only when it is first used."""
    if not isinstance(module, ModuleType):
        return {}
    return dict(object.__getattribute__(module, "__dict__"))


def _in_module(path: str, patterns: list[str]) -> Iterator[Found]:
    module = sys.modules.get(path)
    if module is None:
        return
    for name, value in _namespace(module).items():
        if not isinstance(value, type | ModuleType) and callable(value) and _matches(name, patterns):
            yield module, name, name


def _in_mindspeed(patterns: list[str]) -> Iterator[Found]:
    """Public functions of the modules below mindspeed.ops, under their path there: `gmm.npu_gmm`."""
    if _MINDSPEED not in sys.modules:
        return
    for path, module in list(sys.modules.items()):
        if path != _MINDSPEED and not path.startswith(f"{_MINDSPEED}."):
            continue
        for name, value in _namespace(module).items():
            if type(value) is not FunctionType or name.startswith("_") or value.__module__ != path:
                continue
            full = f"{path}.{name}".removeprefix(f"{_MINDSPEED}.")
            if _matches(full, patterns) or _matches(name, patterns):
                yield module, name, full


def triton_watches(table: ApiTable, recorder: Recorder) -> Iterator[Watch]:
    """Watches on what launches the kernels of triton, if that is loaded."""
    patterns = table.files.watched.get("triton") or []
    if not patterns or "triton" not in sys.modules:
        return
    seen: set[int] = set()
    for path in _TRITON:
        for value in _namespace(sys.modules.get(path)).values():
            if isinstance(value, type) and type(vars(value).get("run")) is FunctionType and id(value) not in seen:
                seen.add(id(value))
                yield Watch(value, "run", lambda original: _launching(original, patterns, table, recorder))


def _launching(original: Any, patterns: list[str], table: ApiTable, recorder: Recorder) -> Handler:
    apis: dict[str, Api | None] = {}

    def handle(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A warm-up compiles the kernel and launches nothing.
        if torch_internals.is_compiling() or not args or kwargs.get("warmup") or not recording(recorder):
            return original(*args, **kwargs)
        try:
            name = _kernel_name(args[0])
            if name not in apis:
                apis[name] = table.api(PREFIXES["triton"], name) if _matches(name, patterns) else None
            api = apis[name]
        except Exception as error:
            let_through(error)
            api = None
            recorder.lookup_failed(original, error)
        if api is None:
            return original(*args, **kwargs)
        launch = _Launch(original, args, kwargs)
        return launch.run(recorder, api)

    return handle


def _kernel_name(kernel: Any) -> str:
    """Name of the Python function behind a kernel, through autotuners and heuristics around it."""
    for _ in range(_MAX_WRAPPERS):
        inner = getattr(kernel, "fn", None)
        if inner is None:
            break
        kernel = inner
    return str(getattr(kernel, "__name__", type(kernel).__name__))


class _Launch:
    """One launch of a kernel. It gives nothing back and writes into its arguments: their values after it are its output."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._shown = {key: value for key, value in kwargs.items() if key != "warmup"}
        self._grad = torch.is_grad_enabled()
        self._result: Any = None

    def run(self, recorder: Recorder, api: Api) -> Any:
        # autograd does not see kernels. An argument that requires grad would look like a call with gradients of its own.
        self._set_grad(False)
        try:
            recorder.api(api, self._in_the_middle, self._args[1:], self._shown)
        finally:
            self._set_grad(self._grad)
        return self._result

    def _in_the_middle(self, *_: Any, **__: Any) -> Any:
        self._set_grad(self._grad)
        try:
            self._result = self._function(*self._args, **self._kwargs)
        finally:
            self._set_grad(False)
        return (*self._args[1:], *self._shown.values())

    def _set_grad(self, enabled: bool) -> None:
        if self._grad:
            with torch_internals.NoTorchFunction():
                c10d.set_grad_enabled(enabled)
