"""record(): one step around a block or a function, whatever becomes of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured

from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger, recording_context, torch_internals


def net(width: int = 3) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, width), nn.ReLU())


X = torch.ones(2, 3)


@pytest.fixture
def debugger(tmp_path: Path) -> PrecisionDebugger:
    return configured(tmp_path, level="mix", risk_level="ALL")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


def linears(run: Run, step: int = 0) -> int:
    """How many calls of a Linear module were recorded."""
    return sum(".Linear.forward." in name for name in run.step(step).names)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_block_is_a_step(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()
    for _ in range(2):
        with debugger.record(model) as given:
            model(X).sum().backward()
            assert given is PrecisionDebugger
        torch.tanh(X)
    assert run.steps == [0, 1]
    for step in range(2):
        assert "Module.0.Linear.backward.0" in run.step(step).names
        assert not any("tanh" in name for name in run.step(step).names)


def test_the_same_as_by_hand(tmp_path: Path, run: Run, debugger: PrecisionDebugger) -> None:
    model = net()
    debugger.start(model)
    model(X).sum().backward()
    debugger.stop()
    debugger.step()
    model.zero_grad(set_to_none=True)
    with debugger.record(model):
        model(X).sum().backward()
    assert run.step(0).data == run.step(1).data
    assert run.step(0).construct == run.step(1).construct


def test_arguments_of_start(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()
    with debugger.record(model, token_range=[1, 2], rank_id=7):
        for _ in range(4):
            model(X)
    assert run.step().directory.name == "rank7"
    assert linears(run) == 2


def test_frames_show_only_the_users_code(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()

    @debugger.record(model)
    def train() -> None:
        model(X)

    train()
    frames = "\n".join(run.step().frames("Module.0.Linear.forward.0"))
    assert "in train" in frames and "src/msprobe" not in frames


def test_level_debug(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="debug")
    for value in (1.0, 2.0):
        with debugger.record() as given:
            given.save(torch.full((2,), value), "x")
    for step in range(2):
        (path,) = (tmp_path / "dump" / f"step{step}").glob("*/debug.json")
        assert "x.0.debug" in path.read_text()


class Mine(Exception):
    pass


@pytest.mark.parametrize("kind", [Mine, KeyboardInterrupt, SystemExit])
def test_an_exception_passes_and_the_step_is_on_disk(debugger: PrecisionDebugger, run: Run, kind: type[BaseException]) -> None:
    model, error = net(), kind("x")
    with pytest.raises(kind) as caught, debugger.record(model):
        model(X)
        raise error
    assert caught.value is error and error.__cause__ is None and error.__context__ is None
    assert linears(run) == 1
    session = PrecisionDebugger._session
    assert session is not None and not session.on and session.number == 1 and not model[0]._forward_hooks
    with debugger.record(model):
        model(X)
    assert linears(run, 1) == 1


@pytest.mark.parametrize("place", ["start", "stop", "end_step"])
@pytest.mark.parametrize("before", [True, False])
def test_ctrl_c_while_a_step_begins_or_ends(
    debugger: PrecisionDebugger, run: Run, monkeypatch: pytest.MonkeyPatch, place: str, before: bool
) -> None:
    """In the middle of what record() does, where no block is left any more that would end it: the next step is one of its own."""
    model = net()
    session = PrecisionDebugger._session
    assert session is not None
    done, came = getattr(session, place), []

    def interrupted(*args: Any) -> None:
        if not came and before:
            came.append(True)
            raise KeyboardInterrupt
        done(*args)
        if not came:
            came.append(True)
            raise KeyboardInterrupt

    monkeypatch.setattr(session, place, interrupted)
    with pytest.raises(KeyboardInterrupt), debugger.record(model):
        model(X)
    assert not session.on and not model[0]._forward_hooks
    first = session.number
    for _ in range(2):
        with debugger.record(model):
            model(X)
    assert session.number == first + 2 and not session.on
    assert [linears(run, step) for step in run.steps] == [1] * len(run.steps)


def interrupted_at(line: int, source: str, enters: bool, block: Callable[[], Any], recording: Any) -> bool:
    """Whether there was such a line of a source file, counted from 1, while a block is entered or left: there Ctrl-C comes."""
    count = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        outermost = frame.f_code.co_name in ("__exit__", "end")  # where nothing can be done yet, as in any context manager
        if event == "line" and (frame.f_lineno > frame.f_code.co_firstlineno + 10 or not outermost):
            count += 1
            if count == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return local

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename == source else None

    before = sys.gettrace()
    try:
        sys.settrace(trace if enters else None)
        with recording:
            sys.settrace(None)
            block()
            sys.settrace(None if enters else trace)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("enters", [True, False])
def test_ctrl_c_in_any_line_of_record_itself(debugger: PrecisionDebugger, enters: bool, by_hand: bool) -> None:
    model = net()
    session = PrecisionDebugger._session
    assert session is not None
    line, hit = 0, True
    while hit:
        line += 1
        if by_hand:
            debugger.start(model)
        hit = interrupted_at(line, recording_context.__file__, enters, lambda: model(X), debugger.record(model))
        assert session.on is by_hand and session.recordings.of_this_thread() == 0, line
        if by_hand:
            debugger.stop()
            debugger.step()
        assert not model[0]._forward_hooks and not torch_internals.modes_of_this_thread(torch.overrides.TorchFunctionMode), line
    assert line > 10


def test_a_wrong_model_is_told_and_nothing_stays_open(debugger: PrecisionDebugger, run: Run) -> None:
    with pytest.raises(UsageError, match="model is missing"), debugger.record():
        raise AssertionError("the block must not run")
    for wrong in ("model", lambda: None):
        with pytest.raises(UsageError, match="only above a function"), debugger.record(wrong):
            pass
    model = net()
    with debugger.record(model):
        model(X)
    assert run.steps == [0]


def test_without_a_debugger() -> None:
    with pytest.raises(UsageError, match="construct one first"), PrecisionDebugger.record(net()):
        pass


def test_steps_that_are_not_selected_count(tmp_path: Path) -> None:
    debugger, model = configured(tmp_path, level="L0", step=[1]), net()
    for _ in range(3):
        with debugger.record(model):
            model(X)
    assert Run(tmp_path / "dump").steps == [1]


# --- functions ------------------------------------------------------------------------------------------------------------------------
def test_each_call_of_a_function_is_a_step(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()

    @PrecisionDebugger.record(model)
    def train(x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        """Trains."""
        return model(x).sum() * scale

    assert train.__name__ == "train" and train.__doc__ == "Trains."
    assert str(inspect.signature(train)) == "(x: 'torch.Tensor', *, scale: 'float' = 2.0) -> 'torch.Tensor'"
    assert torch.equal(train(X, scale=1.0) * 2, train(X))
    assert run.steps == [0, 1]


class Training:
    def __init__(self) -> None:
        self.model = net()
        self.parts = {"other": net(4)}

    @PrecisionDebugger.record("self.model")
    def by_path(self) -> torch.Tensor:
        return self.model(X)

    @PrecisionDebugger.record("model")
    def by_attribute(self) -> torch.Tensor:
        return self.model(X)

    @PrecisionDebugger.record(lambda self, name: self.parts[name])
    def by_function(self, name: str) -> torch.Tensor:
        return self.parts[name](X)

    @PrecisionDebugger.record(["model", lambda self: self.parts["other"]])
    def several(self) -> None:
        self.parts["other"](X)
        self.model(X)

    @PrecisionDebugger.record("model")
    @staticmethod
    def by_argument(x: torch.Tensor, model: nn.Module) -> torch.Tensor:
        return model(x)

    @PrecisionDebugger.record("model")
    @classmethod
    def of_the_class(cls, model: nn.Module = net()) -> torch.Tensor:  # noqa: B008
        return model(X)

    @PrecisionDebugger.record("modell")
    def misspelt(self) -> None:
        raise AssertionError("it must not run")


def test_the_model_of_a_method(debugger: PrecisionDebugger, run: Run) -> None:
    training = Training()
    training.by_path()
    training.by_attribute()
    training.by_function("other")
    training.by_function(name="other")
    Training.by_argument(X, training.model)
    Training.of_the_class()
    for step in range(6):
        assert linears(run, step) == 1, step
    training.several()
    assert {"Module.0.0.Linear.forward.0", "Module.1.0.Linear.forward.0"} <= set(run.step(6).names)
    with pytest.raises(UsageError, match=r'no argument is called "modell", and "self" \(Training\) has no attribute "modell"'):
        training.misspelt()
    with pytest.raises(TypeError, match="by_argument"):
        Training.by_argument(X)  # type: ignore[call-arg]  # the function's own complaint


def test_a_model_among_further_arguments(debugger: PrecisionDebugger, run: Run) -> None:
    @debugger.record("model")
    def train(**given: Any) -> None:
        given["model"](X)

    model = net()
    train(model=model, x=X)
    with pytest.raises(UsageError, match='called without an argument "model"'):
        train(x=X)

    @debugger.record("model")
    def by_keyword(x: torch.Tensor, **given: Any) -> None:
        given["model"](x)

    by_keyword(X, model=model)
    assert [linears(run, step) for step in range(2)] == [1, 1]


def test_what_is_no_function(debugger: PrecisionDebugger) -> None:
    model = net()

    @debugger.record  # type: ignore[arg-type]
    def forgotten(x: torch.Tensor) -> None:
        raise AssertionError("it must not run")

    for call in (
        lambda: forgotten(X),
        lambda: forgotten(),
        lambda: forgotten(model),
        lambda: forgotten(X, 1),
        lambda: debugger.record()(int),
    ):
        with pytest.raises(UsageError, match=r"with parentheses of its own: @debugger\.record\(model\)"):
            call()
    with pytest.raises(UsageError, match='has no argument "model"'):
        debugger.record("model")(lambda: None)


# --- one inside the other -------------------------------------------------------------------------------------------------------------
def test_nested_and_recursive(debugger: PrecisionDebugger, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    recording = debugger.record(model)

    @recording
    def train(depth: int) -> None:
        model(X)
        if depth:
            train(depth - 1)

    train(2)
    with recording, recording, debugger.record(model[0]), debugger.record():
        model(X)
    model(X)
    assert run.steps == [0, 1] and linears(run) == 3 and linears(run, 1) == 1
    assert warnings_of(caplog) == []


def test_another_model_inside_is_told(debugger: PrecisionDebugger, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    model, other = net(), net(5)
    with debugger.record(model):
        model(X)
        for _ in range(2):
            with debugger.record(other):
                other(X)
        with pytest.raises(UsageError, match="int, not a"), debugger.record([1]):
            pass
        model(X)
    assert run.steps == [0] and linears(run) == 2
    assert [text for text in warnings_of(caplog) if "another model" in text] == warnings_of(caplog) and len(warnings_of(caplog)) == 1


def test_inside_start_and_stop(debugger: PrecisionDebugger, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    debugger.start(model)
    with debugger.record(model):
        model(X)
    model(X)
    debugger.stop()
    debugger.step()
    assert run.steps == [0] and linears(run) == 2
    assert "inside of start() and stop()" in warnings_of(caplog)[0]


def test_stop_and_step_inside(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()
    with debugger.record(model):
        model(X)
        debugger.stop()
        model(X)
        debugger.start(model)
        model(X)
    with debugger.record(model):
        model(X)
        debugger.step()  # the user's own: this step is not ended twice
    with debugger.record(model):
        model(X)
        debugger.step()
        debugger.start(model)
        model(X)
    assert run.steps == [0, 1, 2, 3]
    assert [linears(run, step) for step in range(4)] == [2, 1, 1, 1]


# --- generators, async functions, threads ---------------------------------------------------------------------------------------------
def test_a_generator_is_one_step_from_its_first_instruction_to_its_last(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()

    @debugger.record(model)
    def tokens(count: int) -> Iterator[Any]:
        got = []
        for _ in range(count):
            got.append((yield model(X)))
        return got

    assert inspect.isgeneratorfunction(tokens)
    made = tokens(2)
    model(X)  # not begun yet
    next(made)
    made.send("a")
    with pytest.raises(StopIteration) as stopped:
        made.send("b")
    assert stopped.value.value == ["a", "b"]
    assert run.steps == [0] and linears(run) == 2
    abandoned = tokens(5)
    next(abandoned)
    abandoned.close()
    thrown = tokens(5)
    next(thrown)
    with pytest.raises(Mine):
        thrown.throw(Mine())
    session = PrecisionDebugger._session
    assert run.steps == [0, 1, 2] and session is not None and not session.on


def test_async_functions(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()

    @debugger.record("model")
    async def train(model: nn.Module) -> str:
        model(X)
        await asyncio.sleep(0)
        model(X)
        return "done"

    @debugger.record(model)
    async def stream() -> AsyncIterator[Any]:
        try:
            got = yield model(X)
            yield got
        except Mine:
            yield "caught"

    async def body() -> None:
        assert await train(model) == "done"
        assert await asyncio.gather(train(model), train(model)) == ["done", "done"]  # they overlap: one step
        assert [type(item) async for item in stream()] == [torch.Tensor, type(None)]
        made = stream()
        await made.asend(None)
        assert await made.asend("sent") == "sent"
        assert await made.athrow(Mine()) == "caught"
        await made.aclose()

    assert inspect.iscoroutinefunction(train) and inspect.isasyncgenfunction(stream)
    asyncio.run(body())
    assert run.steps == [0, 1, 2, 3]
    assert [linears(run, step) for step in range(4)] == [2, 4, 1, 1]
    session = PrecisionDebugger._session
    assert session is not None and not session.on


def test_objects_that_are_called_like_async_functions(debugger: PrecisionDebugger, run: Run) -> None:
    class Train:
        async def __call__(self, model: nn.Module) -> None:
            await asyncio.sleep(0)
            model(X)

    asyncio.run(debugger.record("model")(Train())(net()))  # type: ignore[arg-type]
    assert linears(run) == 1


def test_a_decorator_that_hides_an_async_function_is_told(debugger: PrecisionDebugger, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    model = net()

    def hides(function: Any) -> Any:
        return functools.wraps(function)(lambda: function())

    @debugger.record(model)
    @hides
    async def train() -> None:
        model(X)

    @debugger.record(model)
    @hides
    def batches() -> Iterator[Any]:
        yield model(X)

    asyncio.run(train())
    asyncio.run(train())
    assert len(list(batches())) == 1
    told = [text for text in warnings_of(caplog) if "its code runs when the step is over" in text]
    assert ["coroutine" in text for text in told] == [True, False]


def test_an_error_of_ours_while_another_thread_enters(debugger: PrecisionDebugger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("planted")

    model, done = net(), []

    def second() -> None:
        with debugger.record(model):
            done.append(model(X))

    with debugger.record(model):
        for name in ("modes_of_this_thread", "remove_mode"):
            with monkeypatch.context() as patch:
                patch.setattr(torch_internals, name, fails)
                thread = threading.Thread(target=second)
                thread.start()
                thread.join(20)
    assert len(done) == 2
    with debugger.record(model):
        model(X)
    assert linears(run, 1) == 1


def test_threads_that_overlap_are_one_step(debugger: PrecisionDebugger, run: Run) -> None:
    """The second thread was there before the window: its API calls are recorded all the same, and nothing it does after leaving."""
    model, first_in, second_in, first_out = net(), threading.Event(), threading.Event(), threading.Event()
    ready = threading.Event()

    def second() -> None:
        ready.set()
        first_in.wait(20)
        with debugger.record(model):
            second_in.set()
            first_out.wait(20)
            model(torch.sin(X))
        torch.cos(X)

    thread = threading.Thread(target=second)
    thread.start()
    ready.wait(20)
    with debugger.record(model):
        first_in.set()
        second_in.wait(20)
        model(torch.exp(X))
    torch.tan(X)  # this thread has left, the other goes on
    first_out.set()
    thread.join(20)
    assert run.steps == [0] and linears(run) == 2
    names = " ".join(run.step().names)
    assert "Torch.sin.0" in names and "Torch.exp.0" in names and "tan" not in names and "cos" not in names
    session = PrecisionDebugger._session
    assert session is not None and not session.on and session.number == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_leaves_it_in_peace(debugger: PrecisionDebugger, run: Run) -> None:
    model = net()
    with debugger.record(model):
        model(X)
        child = os.fork()
        if not child:
            code = 1
            try:
                with debugger.record(model):
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        model(X)
    assert run.steps == [0] and linears(run) == 2


def test_compiled_code(debugger: PrecisionDebugger, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Around it: recorded eagerly. Inside of it: told, and without effect."""
    model = net()
    compiled = torch.compile(model, backend="eager")
    with debugger.record(compiled):
        compiled(X)
    assert linears(run) == 1

    def inside(x: torch.Tensor) -> torch.Tensor:
        with PrecisionDebugger.record(model):
            return model(x) + 1

    decorated = PrecisionDebugger.record(model)(lambda x: model(x) + 1)
    for function in (inside, decorated):
        assert torch.equal(torch.compile(function, backend="eager")(X), model(X) + 1)
    assert run.steps == [0]
    assert any("is being compiled" in text for text in warnings_of(caplog))


def test_bits_are_the_same(debugger: PrecisionDebugger) -> None:
    def train(recorded: bool) -> list[torch.Tensor]:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        if recorded:
            step = debugger.record(model)(step)
        torch.manual_seed(5)
        losses = [step(torch.randn(4, 3)) for _ in range(3)]
        return [*losses, *(p.detach() for p in model.parameters())]

    assert all(torch.equal(a, b) for a, b in zip(train(False), train(True), strict=True))


def test_what_a_function_gives_is_not_asked_for_its_class(debugger: PrecisionDebugger, run: Run) -> None:
    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("not bound yet")

    proxy = Proxy()

    @debugger.record(net())
    def function() -> Proxy:
        torch.relu(X)
        return proxy

    assert function() is proxy
    assert run.steps == [0]
