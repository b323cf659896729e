"""Modules of vLLM that are called in other ways than `module(...)`, so that no hook of theirs is run; they are recorded like all others.

- A class that vLLM may compile has a `__call__` of its own, which calls `forward` directly (`LlamaModel`).
- The head that gives the logits is never called: `lm_head.quant_method.apply(lm_head, x)` stands in its place. It may be the embedding of
  the tokens, which then has two names: that of the head where the logits are made.
- One rotary embedding serves all layers: each call has the name that the calling layer knows it by.

For the window, the first two have an attribute of their own, `forward` or `apply`, which goes by way of `torch.nn.Module.__call__` and so
runs our hooks. Where anybody else has hooks there, which vLLM does not run, the module is left as it is and told as not recorded.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.hooks import HOOK_KEY, After, Before, ByCaller, HookPlan, hook_pair
from msprobe.pytorch.dump.module_dump.naming import checked_models

Skip = Callable[[str, str], None]

_ENGINE = "vllm"
_HEAD, _EMBEDDING, _LOGITS = "ParallelLMHead", "VocabParallelEmbedding", "LogitsProcessor"
_ABSENT = object()


def is_loaded() -> bool:
    """Whether this program uses vLLM."""
    return _ENGINE in sys.modules


class EngineModules:
    """The part of one window.

    Args:
        model: as start() takes it.
        plan: names and hooks of its modules, which are on.
        before, after, skip: as for ModuleHooks.
        caller: gives the name, without direction and number, of the module that runs now.
    """

    def __init__(self, model: object, plan: HookPlan, before: Before, after: After, skip: Skip, caller: Callable[[], str]) -> None:
        self._model, self._plan, self._skip = model, plan, skip
        self._before, self._after, self._caller = before, after, caller
        self._undo: list[Callable[[], Any]] = []

    def on(self) -> None:
        """Watch from now on."""
        found = self._plan.engine
        if found is None:
            found = self._plan.engine = list(self._found(self._plan.named()))
        for watch, name, owner, *names in found:
            module = owner()
            if module is not None:
                watch(self, name, module, *names)

    def _found(self, named: list[tuple[str, torch.nn.Module]]) -> Iterator[tuple[Any, ...]]:
        """How each is watched, its name, the module (the plan outlives the model and does not keep it alive), and what else that takes."""
        shared = list(_shared(self._model, named))
        tied = {id(module) for _, module, _ in shared}
        for name, module in named:
            if _is_bypassed(module):
                yield EngineModules._watch_bypassed, name, weakref.ref(module)
            if _is_head(module, _EMBEDDING if id(module) in tied else _HEAD):
                yield EngineModules._watch_head, name, weakref.ref(module)
        for name, module, names in shared:
            yield EngineModules._watch_shared, name, weakref.ref(module), names

    def _watch_bypassed(self, name: str, module: torch.nn.Module) -> None:
        self._replace(module, "forward", self._through(name, module, module.forward))

    def _watch_head(self, name: str, head: torch.nn.Module) -> None:
        method: Any = head.quant_method
        self._replace(method, "apply", self._apply(name, head, method.apply))

    def _watch_shared(self, name: str, module: torch.nn.Module, names: dict[str, str]) -> None:
        _, after = hook_pair(name, module, self._before, self._after)
        torch_internals.put_module_hooks(module, HOOK_KEY, ByCaller(self._before, name, module, names, self._caller), after)

    def off(self) -> None:
        """Undo `on`."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()

    def _replace(self, owner: Any, attribute: str, value: Any) -> None:
        variables = owner.__dict__
        before = variables.get(attribute, _ABSENT)

        def undo() -> None:
            if variables.get(attribute) is value:
                if before is _ABSENT:
                    del variables[attribute]
                else:
                    variables[attribute] = before

        self._undo.append(undo)
        variables[attribute] = value

    def _through(self, name: str, module: torch.nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
        """A `forward` that runs the module's hooks, and then the original one."""
        running: set[int] = set()
        told: list[bool] = []

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            if thread in running or not self._may_call(name, module, told):
                return original(*args, **kwargs)
            running.add(thread)
            try:
                return torch.nn.Module.__call__(module, *args, **kwargs)
            finally:
                running.discard(thread)

        return forward

    def _apply(self, name: str, head: torch.nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
        """What a head's quantization method does, as a call of the head; the method may serve other modules as well."""
        told: list[bool] = []

        @functools.wraps(original)
        def apply(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if layer is not head or not self._may_call(name, head, told):
                return original(layer, *args, **kwargs)
            before = head.__dict__.get("forward", _ABSENT)
            head.__dict__["forward"] = functools.partial(original, head)
            try:
                return torch.nn.Module.__call__(head, *args, **kwargs)
            finally:
                if before is _ABSENT:
                    head.__dict__.pop("forward", None)
                else:
                    head.__dict__["forward"] = before

        return apply

    def _may_call(self, name: str, module: torch.nn.Module, told: list[bool]) -> bool:
        """Whether a call by way of the hooks runs nobody's but ours; False where this version of torch does not tell."""
        try:
            if torch_internals.is_compiling():
                return False
            free = torch_internals.only_hooks_of(module, HOOK_KEY)
            why = "" if free else "it has hooks of somebody else's, which vLLM does not run, and neither do we"
        except Exception as error:
            let_through(error)
            free, why = False, f"whether it has hooks of somebody else's cannot be seen in this version of torch: {error!r}"
        if why and not told:
            told.append(True)
            self._skip(name, why)
        return free


def _is_bypassed(module: torch.nn.Module) -> bool:
    """Whether calling it calls `forward` and no hooks: a class that vLLM may compile, and does not."""
    return module.__dict__.get("do_not_compile") is True and type(module).__call__ is not torch.nn.Module.__call__


def _is_a(module: torch.nn.Module, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(module).__mro__)


def _is_head(module: torch.nn.Module, kind: str = _EMBEDDING) -> bool:
    method = module.__dict__.get("quant_method")
    return _is_a(module, kind) and hasattr(method, "__dict__") and callable(getattr(method, "apply", None))


def _shared(model: object, named: list[tuple[str, torch.nn.Module]]) -> Iterator[tuple[str, torch.nn.Module, dict[str, str]]]:
    """Modules that stand in several places: the name of the first one, the module, and the name by the caller's."""
    known = {id(module): name for name, module in named}
    for prefix, root in checked_models(model):
        places: dict[int, list[str]] = {}
        modules = dict(root.named_modules(remove_duplicate=False))
        for path, module in modules.items():
            places.setdefault(id(module), []).append(path)
        for identity, paths in places.items():
            if len(paths) < 2 or identity not in known:
                continue
            module = modules[paths[0]]
            names: dict[str, str] = {}
            for path in paths:
                outer = path.rpartition(".")[0]
                name = f"Module.{prefix}{path}.{type(module).__name__}"
                names.setdefault(f"Module.{prefix}{outer}.{type(modules[outer]).__name__}", name)
            if _is_head(module):
                logits = [path for path, other in modules.items() if _is_a(other, _LOGITS)]
                names.update((f"Module.{prefix}{path}.{type(modules[path]).__name__}", name) for path in logits)
            yield known[identity], module, names
