"""What the override leaves as it is: other hooks, copies of the model, compiled and scripted code, inference paths, child processes."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, forget_debugger
from overriding import TAKES, ZERO, Around, clean, configured, numbered, overridden, source, value
from torch import nn

from msprobe.pytorch import PrecisionDebugger


def test_other_hooks_of_the_user(tmp_path: Path) -> None:
    """Hooks that were there see what arrived; those of the recorder, and those that come later, what was put in."""
    numbered(tmp_path)
    model, seen = Around(), []
    model.inner.register_forward_pre_hook(lambda m, args: seen.append(float(args[0][0])))
    model.inner.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
    with overridden(tmp_path, [TAKES], model, dump_after_load=True):
        model.inner.register_forward_pre_hook(lambda m, args: seen.append(float(args[0][0])))
        model(ZERO)
    assert seen == [0, 1]
    assert Run(tmp_path / "dump").step().data[TAKES]["input_args"][0]["Max"] == 1
    assert len(model.inner._forward_pre_hooks) == 3


def test_nothing_of_ours_goes_along_with_a_copy(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        copied = copy.deepcopy(model)
        shallow = copy.copy(model.inner)
        stream = io.BytesIO()
        torch.save(model, stream)
        for other in (copied, pickle.loads(pickle.dumps(model))):
            other(ZERO)
            assert value(other.inner) == 0
        shallow(ZERO)
        assert value(shallow) == 0
        model(ZERO)
        assert value(model.inner) == 1
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    loaded(ZERO)
    assert value(loaded.inner) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripting_inside_the_window(tmp_path: Path) -> None:
    source(tmp_path, {"Module.inner.ReLU.forward.0.input.0": torch.ones(2)})
    model = Around(nn.ReLU())
    with overridden(tmp_path, ["Module.inner.ReLU.forward.0"], model):
        scripted = torch.jit.script(model.inner)
        assert scripted(ZERO - 1).tolist() == [0, 0]
        assert model(ZERO).tolist() == [1, 1]


def test_a_scripted_module_is_told(tmp_path: Path, log: list[str]) -> None:
    model = Around(torch.jit.script(nn.ReLU()))
    name = f"Module.inner.{type(model.inner).__name__}.forward.0"
    source(tmp_path, {f"{name}.input.0": torch.ones(2)})
    with overridden(tmp_path, [name], model):
        assert model(ZERO).tolist() == [0, 0]
    assert any("it is a scripted module, which takes no hooks" in line for line in log)


def test_compiled_code_sees_it(tmp_path: Path) -> None:
    source(tmp_path, {"Module.inner.ReLU.forward.0.input.0": torch.ones(2)})
    model = Around(nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    assert compiled(ZERO).tolist() == [0, 0]
    with overridden(tmp_path, ["Module.inner.ReLU.forward.0"], compiled):
        assert compiled(ZERO).tolist() == [1, 1]
    assert compiled(ZERO).tolist() == [0, 0]
    assert clean(model)


def test_the_inference_path_of_an_encoder_stays(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    model = Around(encoder)
    entry = "Module.inner.TransformerEncoder.forward.0"
    recorded, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
    source(tmp_path, {f"{entry}.input.0": recorded, f"{entry}.kwargs.src_key_padding_mask": mask})
    with torch.no_grad():
        expected = encoder(recorded, src_key_padding_mask=mask)
        with overridden(tmp_path, [entry], model):
            found = model(torch.randn(2, 3, 8), src_key_padding_mask=torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(found, expected)  # padded rows are zero on that path only
    assert clean(model)


def test_an_error_of_ours_leaves_the_value(tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(tmp_path)
    model, x = Around(), torch.zeros(2)

    def fails(*_: Any) -> None:
        raise RuntimeError("ours")

    with overridden(tmp_path, [TAKES], model):
        monkeypatch.setattr("msprobe.pytorch.load.source.StepSource.find", fails)
        model(x)
        assert model.inner.args[0] is x
    assert any("could not be replaced, the value that arrived is kept: RuntimeError('ours')" in line for line in log)


def test_an_exception_of_the_users_signal_handler_is_not_swallowed(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()

    class Timeout(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Timeout

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with overridden(tmp_path, [TAKES], model):
            session = PrecisionDebugger._session
            assert session is not None and session.override is not None
            session.override._inputs._observe = lambda *_: os.kill(os.getpid(), signal.SIGUSR1)
            with pytest.raises(Timeout):
                model(ZERO)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_replaces_nothing(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        pid = os.fork()
        if pid == 0:
            try:
                model(ZERO)
                os._exit(0 if value(model.inner) == 0 and clean(model) else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        model(ZERO)
        assert value(model.inner) == 1


@pytest.mark.parametrize("loads", [False, True])
def test_the_rest_of_a_training_has_the_same_bits(tmp_path: Path, loads: bool) -> None:
    """Calls that are not named are as ever; what is put in draws no random numbers. The values loaded are those that arrive anyway."""

    def train(debugger: PrecisionDebugger | None) -> list[torch.Tensor]:
        torch.manual_seed(5)
        layers = [nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 1)]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            if debugger is not None:
                debugger.start(model)
            model(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if debugger is not None:
                debugger.stop()
                debugger.step()
        return [*model.state_dict().values(), torch.get_rng_state()]

    expected = train(None)
    train(PrecisionDebugger(task="tensor", level="L0", dump_path=str(tmp_path / "source")))
    forget_debugger()
    number = 0 if loads else 9
    names = ["0.Linear", "1.ReLU", "2.Dropout", "3.BatchNorm1d", "4.ReLU", "5.Linear"]
    found = train(configured(tmp_path, [f"Module.{name}.forward.{number}" for name in names]))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
