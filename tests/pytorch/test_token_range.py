"""start(token_range=[first, last]): inference loops."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured

from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger

X = torch.ones(1, 2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's lines."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")
    yield lambda level=logging.INFO: [record.getMessage() for record in caplog.records if record.levelno >= level]
    logger.removeHandler(caplog.handler)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def generate(model: Any, tokens: int) -> None:
    """An inference loop: something before each call of the model."""
    for _ in range(tokens):
        torch.relu(X)
        model(X)


def test_the_sample(tmp_path: Path, run: Run) -> None:
    """`token` of the reference, with its fault left out: a second range holds, a start without one records everything."""
    debugger = configured(tmp_path, level="mix")
    model = net()
    debugger.start(model, token_range=[1, 3], rank_id=7)
    generate(model, 6)
    debugger.stop()
    debugger.step()
    debugger.start(model, token_range=[1, 1])
    for _ in range(3):
        model(X)
    debugger.stop()
    debugger.step()
    debugger.start([model, model], rank_id=3)
    model(X)
    debugger.stop()
    debugger.step()
    first = run.step(0)
    assert first.directory.name == "rank7"
    one = ("Functional.linear.{}.forward", "Module.0.Linear.forward.{}", "Functional.relu.{}.forward", "Module.1.ReLU.forward.{}")
    assert first.names == [name.format(i) for i in range(3) for name in ("Torch.relu.{}.forward", *one)] + ["Torch.relu.3.forward"]
    assert first.construct["Functional.linear.2.forward"] == "Module.0.Linear.forward.2" and first.construct["Torch.relu.3.forward"] is None
    assert run.step(1).names == [name.format(0) for name in one]
    assert run.step(2).names == [name.format(0).replace("Module.", "Module.0.") for name in one]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize(("tokens", "calls"), [([0, 0], 1), ([0, 2], 3), ([2, 2], 1), ([3, 9], 2), ((4, 4), 1), ([5, 9], 0), ([7, 9], 0)])
def test_ranges(tmp_path: Path, run: Run, told: Any, level: str, tokens: Any, calls: int) -> None:
    """Five calls, of which some lie in the range."""
    debugger = configured(tmp_path, level=level)
    model = net()
    debugger.start(model, token_range=tokens)
    for _ in range(5):
        model(X)
    debugger.stop()
    assert not model._forward_hooks and not model._forward_pre_hooks and not model[0]._forward_hooks
    debugger.step()
    linear = "Module.0.Linear.forward" if level == "L0" else "Functional.linear"
    names = run.step().names if run.steps else []
    assert sum(name.startswith(linear) for name in names) == calls
    warned = any("none of these tokens was recorded" in line and "5 times" in line for line in told(logging.WARNING))
    assert warned == (calls == 0)


def test_nothing_is_hooked_and_no_mode_is_on_outside_of_the_range(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="mix")
    model = net()
    debugger.start(model, token_range=[1, 1])
    modes = torch._C._len_torch_function_stack()
    watched = []
    for _ in range(3):
        watched.append((torch._C._len_torch_function_stack() - modes, len(model[0]._forward_hooks)))
        model(X)
    assert watched == [(0, 0), (1, 1), (1, 1)]
    assert torch._C._len_torch_function_stack() == modes and not model[0]._forward_hooks
    debugger.step()


def test_start_again_changes_nothing_and_a_new_range_needs_a_stop(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    model = net()
    debugger.start(model, token_range=[1, 1])
    debugger.start(model, token_range=[0, 5])
    debugger.start(model)
    model(X)
    debugger.start(model)
    model(X)
    model(X)
    debugger.stop()
    assert [name for name in run_names(run, debugger) if "Linear" in name] == ["Module.0.Linear.forward.0"]


def run_names(run: Run, debugger: Any) -> list[str]:
    debugger.step()
    return run.step().names


def test_several_ranges_in_one_step(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    model = net()
    for tokens in ([0, 0], [1, 2]):
        debugger.start(model, token_range=tokens)
        for _ in range(4):
            model(X)
        debugger.stop()
    assert [name for name in run_names(run, debugger) if "Linear" in name] == [f"Module.0.Linear.forward.{i}" for i in range(3)]


def test_of_several_models_the_first_is_counted(tmp_path: Path, run: Run) -> None:
    """A draft model that runs more often than the one it drafts for."""
    debugger = configured(tmp_path, level="L0")
    target, draft = net(), net()
    debugger.start([target, draft], token_range=[1, 1])
    for _ in range(3):
        draft(X)
        draft(X)
        target(X)
    debugger.stop()
    debugger.step()
    names = [name for name in run.step().names if "Linear" in name]
    counts = {prefix: sum(name.startswith(prefix) for name in names) for prefix in ("Module.0.", "Module.1.")}
    assert counts == {"Module.0.": 1, "Module.1.": 4}


@pytest.mark.parametrize("arguments", [{}, {"model": None}, {"model": []}])
def test_it_needs_a_model_at_every_level(tmp_path: Path, arguments: dict[str, Any]) -> None:
    debugger = configured(tmp_path, level="L1")
    with pytest.raises(UsageError, match="model is missing"):
        debugger.start(**arguments, token_range=[0, 1])
    with pytest.raises(UsageError, match="str"):
        debugger.start("net", token_range=[0, 1])


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_call_that_raises_counts(tmp_path: Path, run: Run, kind: type[BaseException]) -> None:
    class Raises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            y = self.fc(x)
            if self.calls in (1, 3):
                raise kind
            return y

    debugger = configured(tmp_path, level="L0")
    model = Raises()
    debugger.start(model, token_range=[1, 2])
    for _ in range(5):
        try:
            model(X)
        except kind:
            pass
    debugger.stop()
    assert run_names(run, debugger) == [f"Module.fc.Linear.forward.{i}" for i in range(2)]
    assert model.calls == 5


def test_results_are_the_same_and_copies_take_nothing_along(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="mix")
    torch.manual_seed(1)
    model = net()
    plain = [model(X) for _ in range(4)]
    debugger.start(model, token_range=[1, 2])
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert all(torch.equal(a, model(X)) for a in plain)
    for twin in (copied, pickled):
        assert torch.equal(twin(X), plain[0])
    debugger.step()
    session = PrecisionDebugger._session
    assert session is not None and session.tokens is None and session.window is None


def test_a_loop_in_another_thread(tmp_path: Path, run: Run) -> None:
    """As an inference server has it; stop() comes from the main thread."""
    debugger = configured(tmp_path, level="mix")
    model = net()
    debugger.start(model, token_range=[1, 2])
    thread = threading.Thread(target=lambda: generate(model, 5))
    thread.start()
    thread.join()
    debugger.stop()
    names = run_names(run, debugger)
    assert sum(name.startswith("Module.0.Linear") for name in names) == 2
    assert sum(name.startswith("Functional.linear") for name in names) == 2


class Own(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@pytest.mark.parametrize("how", ["torch.compile(model)", "model.compile()"])
def test_a_compiled_model(tmp_path: Path, run: Run, how: str) -> None:
    """It is counted, and not compiled anew: neither for the counting nor after it."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = Own(net())
    compiled = torch.compile(model, backend=backend) if how == "torch.compile(model)" else model
    if compiled is model:
        model.compile(backend=backend)
    compiled(X)
    before = len(graphs)
    assert before > 0
    debugger = configured(tmp_path, level="L0")
    debugger.start(compiled, token_range=[1, 2])
    for _ in range(5):
        compiled(X)
    assert len(graphs) == before
    debugger.stop()
    compiled(X)
    assert len(graphs) == before
    assert run_names(run, debugger) == [
        f"Module.{name}.forward.{i}" for i in range(2) for name in ("inner.0.Linear", "inner.1.ReLU", "inner.Sequential")
    ]


def test_a_scripted_model(tmp_path: Path, run: Run, told: Any) -> None:
    model = torch.jit.script(net())
    debugger = configured(tmp_path, level="L1")
    debugger.start(model, token_range=[1, 1])
    generate(model, 3)
    debugger.stop()
    debugger.step()
    assert not told(logging.ERROR)
    assert run.step().names == ["Torch.relu.0.forward", "Torch.relu.1.forward"]


def test_a_model_with_an_inference_fast_path_keeps_it(tmp_path: Path, run: Run) -> None:
    """Off its fast path it gives other results, in the last bits."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True).eval()
    x, mask = torch.randn(2, 3, 16), torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=mask)
        hook = model.register_forward_pre_hook(lambda *_: None)
        assert not torch.equal(plain, model(x, src_key_padding_mask=mask)), "a hook on the model would be seen"
        hook.remove()
        debugger = configured(tmp_path, level="L1")
        debugger.start(model, token_range=[1, 2])
        assert all(torch.equal(plain, model(x, src_key_padding_mask=mask)) for _ in range(5))
        assert PrecisionDebugger._session is not None and PrecisionDebugger._session.tokens is not None
        assert PrecisionDebugger._session.tokens.calls == 4, "it is counted until the range has ended"
        debugger.step()
        assert torch.equal(plain, model(x, src_key_padding_mask=mask))


def test_an_error_of_ours_stays_with_us(tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the range begins, recording fails: the model goes on, and the next start() records again."""
    debugger = configured(tmp_path, level="L0")
    model = net()
    for planted in (ValueError("planted"), UsageError("planted")):
        with monkeypatch.context() as patch:

            def fail(*_: Any, planted: Exception = planted) -> None:
                raise planted

            patch.setattr("msprobe.pytorch.session.StepRecord", fail)
            debugger.start(model, token_range=[1, 2])
            generate(model, 4)
            debugger.stop()
        assert not model._forward_hooks and not model[0]._forward_hooks
    assert sum("planted" in line for line in told(logging.ERROR)) == 2
    debugger.start(model, token_range=[0, 0])
    generate(model, 2)
    debugger.step()
    assert Run(tmp_path / "dump").step().data


@pytest.mark.parametrize("calls", [1, 4])
def test_a_program_that_ends_without_stop(tmp_path: Path, run: Run, told: Any, calls: int) -> None:
    configured(tmp_path, level="L0")
    PrecisionDebugger.start(net(), token_range=[3, 3])
    session = PrecisionDebugger._session
    assert session is not None and session.tokens is not None
    generate(session.tokens._model, calls)
    session.at_exit()
    warnings = told(logging.WARNING)
    assert len(warnings) == 1
    assert ("none of these tokens was recorded" if calls == 1 else "was not ended by step()") in warnings[0]
    assert len(run.steps) == (calls == 4)


def test_with_steps_that_are_not_selected(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0", step=[1])
    model = net()
    for _ in range(3):
        debugger.start(model, token_range=[0, 0])
        model(X)
        debugger.stop()
        assert not model._forward_hooks
        debugger.step()
    assert run.steps == [1]


def test_scripting_and_tracing_while_the_range_is_waited_for(tmp_path: Path) -> None:
    """torch.jit.script compiles a module's hooks: it does not get to see ours."""
    debugger = configured(tmp_path, level="mix")
    model = net()
    plain = model(X)
    debugger.start(model, token_range=[1, 1])
    scripted, traced = torch.jit.script(model), torch.jit.trace(model, X)
    debugger.stop()
    assert torch.equal(scripted(X), plain) and torch.equal(traced(X), plain)
    assert not model._forward_hooks
    debugger.step()
    again = torch.jit.script(model)
    assert torch.equal(again(X), plain)


def test_a_forked_child_counts_nothing(tmp_path: Path) -> None:
    import multiprocessing

    debugger = configured(tmp_path, level="L0")
    model = net()
    debugger.start(model, token_range=[1, 1])
    model(X)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=generate, args=(model, 3))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    model(X)
    debugger.step()
    assert [name for name in Run(tmp_path / "dump").step().names if "Linear" in name] == ["Module.0.Linear.forward.0"]
