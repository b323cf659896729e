"""Exceptions of every class: they reach the user as they are, and what comes later is recorded under true names and parents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured, record


class Fails(nn.Module):
    """Raises in the middle of its forward while `error` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.error: BaseException | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        if self.error is not None:
            raise self.error
        return torch.relu(x)


class Inside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fails = Fails()
        self.out = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.fails(x))


ERRORS = [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, MemoryError, asyncio.CancelledError, RecursionError]


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_an_exception_in_a_forward(tmp_path: Path, kind: type[BaseException], level: str) -> None:
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    model = nn.Sequential(Inside(), nn.Linear(2, 2))
    error = kind("on purpose")
    x = torch.ones(1, 2, requires_grad=True)

    def attempt() -> None:
        model[0].fails.error = error
        with pytest.raises(kind) as raised:
            model(x)
        assert raised.value is error and raised.value.__context__ is None and raised.value.__cause__ is None
        model[0].fails.error = None
        model(x).sum().backward()

    for _ in range(2):
        debugger.start(model)
        attempt()
        debugger.stop()
        debugger.step()
    debugger.start(model)
    model(x).sum().backward()
    debugger.stop()
    debugger.step()

    run = Run(tmp_path / "dump")
    for number in (0, 1):
        step = run.step(number)
        again = 1  # the number of the second, complete call
        if level != "L1":
            construct = step.construct
            assert construct[f"Module.0.Inside.forward.{again}"] is None
            assert construct[f"Module.0.fails.Fails.forward.{again}"] == f"Module.0.Inside.forward.{again}"
            assert construct[f"Module.0.fails.fc.Linear.forward.{again}"] == f"Module.0.fails.Fails.forward.{again}"
            assert construct["Module.0.out.Linear.forward.0"] == f"Module.0.Inside.forward.{again}"
            assert construct["Module.1.Linear.forward.0"] is None
            assert step.data[f"Module.0.fails.Fails.forward.{again}"]["output"][0]["shape"] == [1, 2]
            # What was under way is recorded with its inputs and without a result.
            assert step.data["Module.0.fails.Fails.forward.0"]["input_args"][0]["shape"] == [1, 2]
            assert step.data["Module.0.fails.Fails.forward.0"]["output"] == [None]
            assert f"Module.0.fails.Fails.backward.{again}" in step.data and "Module.0.fails.Fails.backward.0" not in step.data
        if level != "L0":
            assert "output" in step.data["Torch.relu.0.forward"] and "Torch.relu.1.forward" not in step.data
            assert "Torch.relu.0.backward" in step.data
        if level == "mix":
            assert step.construct["Torch.relu.0.forward"] == f"Module.0.fails.Fails.forward.{again}"
            assert step.construct["Tensor.sum.0.forward"] is None
    clean = run.step(2)
    assert all(not name.endswith(".forward.1") for name in clean.data)
    if level != "L1":
        assert clean.construct["Module.0.fails.Fails.forward.0"] == "Module.0.Inside.forward.0"


CALLS: dict[str, Callable[[], Any]] = {
    "in C": lambda: torch.matmul(torch.ones(2, 3), torch.ones(2, 3)),
    "in Python": lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([5, 9])),
    "an operator": lambda: torch.ones(2) + torch.ones(3),
    "an operator that does not exist": lambda: torch.ones(2) + "a",  # type: ignore[operator]
    "an index": lambda: torch.ones(2)[5],
    "a method": lambda: torch.ones(2).reshape(3),
    "no such argument": lambda: torch.relu(torch.ones(2), nonsense=1),  # type: ignore[call-arg]
    "in place on a leaf": lambda: torch.ones(2, requires_grad=True).add_(1),
}


@pytest.mark.parametrize("label", CALLS)
def test_a_call_that_raises_changes_nothing_for_later_calls(tmp_path: Path, label: str) -> None:
    """F15. Its own number is free again; its inputs stay when no call of that name follows."""
    call = CALLS[label]
    with pytest.raises(Exception) as plain:
        call()

    def body() -> None:
        for _ in range(2):
            with pytest.raises(Exception) as watched:
                call()
            assert type(watched.value) is type(plain.value) and str(watched.value) == str(plain.value)
        a = torch.ones(2, 2) @ torch.ones(2, 2)
        (1 + a).reshape(4)[0].add(1)
        torch.matmul(a, a)

    data = record(tmp_path, body).data
    assert [n for n in data if n in COMPLETE] == COMPLETE
    assert all("output" in data[name] for name in COMPLETE)


COMPLETE = ["Tensor.__matmul__.0.forward", "Tensor.__radd__.0.forward", "Tensor.reshape.0.forward", "Tensor.__getitem__.0.forward"]
COMPLETE += ["Tensor.add.0.forward", "Torch.matmul.0.forward"]


def test_inputs_of_a_call_that_raised(tmp_path: Path) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError):
            torch.matmul(torch.ones(2, 3), torch.ones(2, 3))

    entry = record(tmp_path, body).only("matmul")
    assert [r["shape"] for r in entry["input_args"]] == [[2, 3], [2, 3]] and "output" not in entry


def test_the_stack_of_a_name_is_that_of_its_call(tmp_path: Path) -> None:
    """A number that became free again: the name stands once in stack.json, with the call that has it."""

    def fails() -> None:
        with pytest.raises(RuntimeError):
            torch.matmul(torch.ones(2, 3), torch.ones(2, 3))

    def works() -> None:
        torch.matmul(torch.ones(2, 2), torch.ones(2, 2))

    step = record(tmp_path, lambda: (fails(), works()))
    assert "in works" in step.frames("Torch.matmul.0.forward")[0]


def test_an_operator_that_fails_does_not_rename_the_next_call(tmp_path: Path) -> None:
    def body() -> None:
        x = torch.ones(2)
        with pytest.raises(TypeError):
            x + "a"  # type: ignore[operator]
        x.add(x)
        torch.add(x, x)

    assert [n for n in record(tmp_path, body).names if "output"][-2:] == ["Tensor.add.0.forward", "Torch.add.0.forward"]


def test_exceptions_in_a_backward(tmp_path: Path) -> None:
    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise ValueError("not backwards")

    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    for fails in (True, False):
        debugger.start(model)
        y = model(torch.ones(1, 2, requires_grad=True))
        y = Refuses.apply(y) if fails else y * 2
        if fails:
            with pytest.raises(ValueError, match="not backwards"):
                y.sum().backward()
            model(torch.ones(1, 2)).sum().backward()
        else:
            y.sum().backward()
        debugger.stop()
        debugger.step()
    first, second = (Run(tmp_path / "dump").step(i) for i in (0, 1))
    assert "Module.1.Tanh.backward.1" in first.data and "Module.1.Tanh.backward.0" not in first.data
    assert "Tensor.sum.0.backward" in first.data
    assert "Module.1.Tanh.backward.0" in second.data and "Module.0.Linear.backward.0" in second.data


def test_a_step_that_ends_by_an_exception(tmp_path: Path) -> None:
    """The usual shape: no stop() is reached; the next start() goes on in the same step."""
    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(Inside())
    model[0].fails.error = ValueError()
    debugger.start(model)
    with pytest.raises(ValueError):
        model(torch.ones(1, 2))
    debugger.step()
    model[0].fails.error = None
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.step()
    assert not model[0]._forward_hooks
    construct = Run(tmp_path / "dump").step(1).construct
    assert construct["Functional.linear.1.forward"] == "Module.0.out.Linear.forward.0"


def test_a_forward_left_for_good(tmp_path: Path) -> None:
    """A generator that is dropped in the middle of a module (GeneratorExit), and one that never goes on."""

    class Streams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            def items() -> Any:
                for _ in range(3):
                    yield self.fc(x)

            return items()

    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(Streams(), nn.Linear(2, 2))
    kept = []
    debugger.start(model)
    for _ in range(2):
        stream = model[0](torch.ones(1, 2))
        model[1](next(stream))
        kept.append(stream)
    kept.pop(0).close()
    model[1](torch.ones(1, 2))
    debugger.step()
    step = Run(tmp_path / "dump").step()
    assert step.data["Module.0.Streams.forward.0"]["output"] == [None]
    assert [step.construct[f"Module.1.Linear.forward.{i}"] for i in range(3)] == [None] * 3
    assert step.construct["Module.0.fc.Linear.forward.0"] is None  # it runs after Streams has returned


def test_a_module_called_inside_a_generator(tmp_path: Path) -> None:
    class Takes(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, parts: Any) -> torch.Tensor:
            return torch.cat([self.inner(part) for part in parts])

    model = nn.Sequential(Takes(nn.Linear(2, 2)), nn.Linear(2, 2))
    step = record(tmp_path, lambda: model[0](model[1](torch.ones(1, 2)) for _ in range(2)), model=model, level="mix")
    construct = step.construct
    # The generator's items are made while Takes runs.
    assert construct["Module.1.Linear.forward.1"] == construct["Module.0.inner.Linear.forward.1"] == "Module.0.Takes.forward.0"
    assert construct["Torch.cat.0.forward"] == "Module.0.Takes.forward.0"


def test_coroutines_that_interleave(tmp_path: Path) -> None:
    """Two forwards open at once in one thread: nothing raises, every call is there with its own values."""

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        async def run(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = self.fc(x)
                await asyncio.sleep(0)
            return x

        def forward(self, x: torch.Tensor) -> Any:
            return self.run(x)

    model = nn.Sequential(Waits())

    async def both() -> list[torch.Tensor]:
        return await asyncio.gather(model[0](torch.ones(1, 2)), model[0](torch.zeros(1, 2)))

    outputs: list[Any] = []
    step = record(tmp_path, lambda: outputs.append(asyncio.run(both())), model=model, level="mix")
    assert len(outputs[0]) == 2
    assert [n for n in step.data if "fc.Linear" in n] == [f"Module.0.fc.Linear.forward.{i}" for i in range(6)]
