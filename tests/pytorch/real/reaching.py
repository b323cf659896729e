"""Which calls of a training step reach the loss, found without the tool: by a function mode and a walk over the graph behind the loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from nets import Training, seed
from torch.overrides import TorchFunctionMode

# How operators are written: `1 - x` may arrive as sub, rsub or __rsub__.
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_SPELLINGS = {f"{form}{operator}": operator for operator in _OPERATORS for form in ("r", "i")}
_SPELLINGS |= {"div": "truediv", "divide": "truediv", "true_divide": "truediv", "rdiv": "truediv", "idiv": "truediv", "subtract": "sub"}
_SPELLINGS |= {
    "multiply": "mul",
    "remainder": "mod",
    "floor_divide": "floordiv",
    "greater": "gt",
    "less": "lt",
    "equal": "eq",
    "negative": "neg",
}


def plain_name(api: str) -> str:
    """One name for all spellings of an operation: `__iadd__`, `add_`, `add` -> `add`."""
    name = api.rpartition(".")[2].strip("_")
    return _SPELLINGS.get(name, name)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


@dataclass
class _Watching(TorchFunctionMode):
    """Notes each outermost call whose inputs and outputs require grad: for each such output the edge that leads to it."""

    calls: list[tuple[str, list[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = any(t.requires_grad for t in tensors_in((args, kwargs)))
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if inputs and name != "__get__":
            outputs = [t for t in tensors_in(result) if t.requires_grad]
            if outputs:
                recorded = torch.is_grad_enabled()
                self.calls.append((plain_name(name), [_edge(t) for t in outputs] if recorded else []))
        return result


def _edge(tensor: torch.Tensor) -> Any:
    """What identifies a tensor's place in the graph; a leaf stands for itself. Tensors compare by element, so it is kept as an object."""
    return (tensor.grad_fn, tensor.output_nr) if tensor.grad_fn is not None else _Leaf(tensor)


@dataclass(frozen=True, eq=False)
class _Leaf:
    tensor: torch.Tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Leaf) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def _edges_behind(loss: torch.Tensor) -> set[Any]:
    found: set[Any] = set()
    todo: list[Any] = [(loss.grad_fn, loss.output_nr)]
    walked = set()
    while todo:
        node, number = todo.pop()
        if node is None:
            continue
        found.add((node, number))
        if node in walked:
            continue
        walked.add(node)
        if hasattr(node, "variable"):
            found.add(_Leaf(node.variable))
        todo.extend(node.next_functions)
    return found


@dataclass(frozen=True)
class Reached:
    """What one step consists of.

    Attributes:
        apis: plain name of an operation -> for each of its differentiable calls, in order, whether an output of it took part in the loss.
        modules: path of a module inside the model -> how often it was called.
    """

    apis: dict[str, list[bool]]
    modules: dict[str, int]


def calls_that_reach(make: Callable[[float], Training], dropout: float) -> Reached:
    """Trains one step, from the same seed as nets.train."""
    seed()
    training = make(dropout)
    modules: dict[str, int] = defaultdict(int)
    for path, module in training.model.named_modules():
        if path:
            module.register_forward_pre_hook(lambda _module, _args, path=path: modules.update({path: modules[path] + 1}))
    watching = _Watching()
    with watching:
        training.optimizer.zero_grad()
        loss = training.forward_backward(0)
        training.optimizer.step()
    behind = _edges_behind(loss)
    apis: dict[str, list[bool]] = defaultdict(list)
    for name, edges in watching.calls:
        apis[name].append(any(edge in behind for edge in edges))
    return Reached(dict(apis), dict(modules))
