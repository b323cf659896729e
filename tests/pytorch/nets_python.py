"""Modules whose Python code would notice a tool: identity of objects, changed outputs, caught errors, own subclasses and modes."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from nets import Training, net, sgd
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class _Identity(nn.Module):
    """Asks whether objects are the caller's own; any other answer changes the result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.expected: dict[str, Any] = {}

    def forward(self, x: torch.Tensor, y: torch.Tensor, parts: list[Any], options: dict[str, Any], *, z: torch.Tensor) -> torch.Tensor:
        own = self.expected
        answers = (x is y, x is own["x"], parts is own["parts"], options is own["options"], parts[0] is own["inner"], z is own["z"])
        answers += (options["t"] is x, x.is_leaf, x.grad_fn is None, self.layer.weight is own["weight"], x._backward_hooks is None)
        parts.append("seen")
        return self.layer(x) * sum(2**i for i, answer in enumerate(answers) if answer) / 2048


@net
def identity_of_arguments(_: float) -> Training:
    model = nn.Sequential(_Identity())

    def forward_backward(_: int) -> torch.Tensor:
        x, z = torch.randn(3, 4, requires_grad=True), torch.randn(1)
        inner = [x]
        parts: list[Any] = [inner, 1]
        options = {"t": x, 3: None}
        module = model[0]
        module.expected = {"x": x, "z": z, "parts": parts, "inner": inner, "options": options, "weight": module.layer.weight}
        loss = module(x, x, parts, options, z=z).sum() * len(parts)
        loss = loss + (options["t"] is x) + (inner[0] is x)
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@dataclass
class _Output:
    logits: torch.Tensor
    states: list[torch.Tensor]
    loss: torch.Tensor | None = None


class _DictOutput(dict[str, Any]):
    """Field and item are one object, as in many libraries."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class _Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[_Output, _DictOutput]:
        y = self.layer(x)
        both = _DictOutput()
        both["logits"] = y * 2
        return _Output(y, [x, y]), both


@net
def outputs_changed_by_caller(_: float) -> Training:
    model = nn.Sequential(_Returns(), nn.Identity())

    def forward_backward(_: int) -> torch.Tensor:
        out, both = model(torch.randn(3, 4))
        out.loss = out.logits.square().mean() if out.states[1] is out.logits else out.logits.sum()
        out.states.append(out.loss)
        out.logits = out.logits.detach()
        scale = 1.0 if both.logits is both["logits"] else 7.0
        both["logits"] = both["logits"] * scale
        loss = out.loss + both["logits"].abs().mean() + len(out.states)
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


class _Careful(nn.Module):
    """Tries what fails: shape errors, a wrong index, an exception of a module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.right = nn.Linear(9, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        failed = 0
        for attempt in (lambda: torch.matmul(x, x), lambda: self.wide(x), lambda: x + "a", lambda: x[99], lambda: F.softmax(x, dim=7)):
            try:
                attempt()
            except (RuntimeError, TypeError, IndexError):
                failed += 1
        return 1 - self.right(x) * failed


@net
def caught_errors(_: float) -> Training:
    model = nn.Sequential(_Careful(), nn.Tanh())

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(3, 4)).sum()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


class _Tagged(torch.Tensor):
    """A subclass that counts the functions it meets."""

    met: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.met.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


class _CountingMode(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class _CountingDispatch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met.append(str(func))
        return func(*args, **(kwargs or {}))


@net
def subclasses_and_modes(_: float) -> Training:
    """What the user's own subclass and modes see is the same, call by call."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardswish(), nn.Linear(4, 2))
    met: list[str] = []

    def forward_backward(_: int) -> torch.Tensor:
        _Tagged.met.clear()
        x = torch.randn(3, 4).as_subclass(_Tagged)
        with _CountingMode() as functions, _CountingDispatch() as operators:
            y = model[:2](2 * x + 1 - x / 2)
            y = -y if (y == y).all() else y
        loss = model[2](y.as_subclass(torch.Tensor)).square().mean()
        loss.backward()
        met.extend([*_Tagged.met, "|", *functions.met, "|", *operators.met])
        return loss

    return Training(model, sgd(model), forward_backward, extra=lambda: {"met": torch.tensor(list("\n".join(met).encode()))})


@net
def threads(_: float) -> Training:
    """Four threads run the model, one after the other; their losses are added in the main one.

    torch numbers the nodes of a graph in each thread on its own, and goes back by these numbers: a tool that made nodes would change the
    order in which the four gradients of a weight are added.
    """
    for _ in range(200):
        torch.ones((), requires_grad=True).abs()  # the main thread's numbers are above the others' whatever ran before
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 1))

    def forward_backward(_: int) -> torch.Tensor:
        inputs = torch.randn(4, 3, 4)
        losses: list[Any] = [None] * 4

        def work(number: int) -> None:
            x = inputs[number]
            for _ in range(number % 3):
                x = x.requires_grad_() * 1.5
            losses[number] = (model(x) * (number + 1)).square().sum()

        for number in range(4):
            worker = threading.Thread(target=work, args=(number,))
            worker.start()
            worker.join()
        loss = losses[0] + losses[1] + losses[2] + losses[3]
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def list_of_models(_: float) -> Training:
    """Two models trained against each other, given to start() as a list."""
    made, judged = nn.Sequential(nn.Linear(3, 4), nn.ReLU(True)), nn.Sequential(nn.Linear(4, 1))

    def forward_backward(_: int) -> torch.Tensor:
        fake = made(torch.randn(4, 3))
        loss = F.softplus(judged(fake.detach())).mean() + F.softplus(-judged(torch.randn(4, 4))).mean() + F.softplus(-judged(fake)).mean()
        loss.backward()
        return loss

    return Training([made, judged], sgd(made, judged), forward_backward)


@contextlib.contextmanager
def _nothing() -> Any:
    yield


@net
def contexts(_: float) -> Training:
    """no_grad, inference_mode, enable_grad and a device context inside the window."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward_backward(_: int) -> torch.Tensor:
        x = torch.randn(3, 4)
        with torch.no_grad(), _nothing():
            scale = model(x).abs().max()
            with torch.enable_grad():
                loss = model(x).sum() / scale
        with torch.inference_mode():
            shift = model[0](x).mean().item()
        with torch.device("meta"):
            empty = torch.randn(2).device.type == "meta"
        loss = loss * (1 + empty) + shift
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)
