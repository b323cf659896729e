"""Calls of APIs are recorded in C in the common case and by Python in every other: both write the same files, whatever the program does."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, configured, forget_debugger
from odd_values import sample_arguments
from sample_calls import sample_calls
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump import common_case
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.writer import _entry

pytestmark = pytest.mark.skipif(common_case.hot is None, reason="there was no compiler when msprobe was installed")

PROGRAMS: list[Callable[[], Any]] = []


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a program into PROGRAMS."""
    PROGRAMS.append(make)
    return make


@program
def each_kind_of_call() -> None:
    for call in sample_calls()().values():
        call()


@program
def each_kind_of_value() -> None:
    for args, kwargs in sample_arguments().values():
        for value in (*args, *kwargs.values()):
            with contextlib.suppress(Exception):  # it is recorded before the function finds out what it was given
                F.dropout(value, p=0.0, training=value)


@program
def calls_that_raise_and_are_made_again() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    for other in (torch.ones(3), torch.ones(2), "nothing"):
        try:
            torch.matmul(x, other)  # type: ignore[arg-type]
        except (RuntimeError, TypeError):
            pass
    (x @ x).sum().backward()


@program
def operators_from_both_sides() -> None:
    x = torch.tensor([1.5, -2.0], requires_grad=True)
    y = 1 + x - 2 * x / 3 + x**2 - (x % 2) + 2 / (x + 5) + abs(x) + -x + +x
    y = y + (x > 0) * 1.0 + (x != 1) * 2.0
    y = y @ torch.ones(2)
    y.backward()
    z = torch.zeros(3)
    z += 1
    z *= 2
    z[0] = 5
    z[z > 3] = 0
    assert (z == 0).any()


@program
def changes_in_place_and_views() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    y[1:].mul_(3)
    y.add_(1).relu_()
    torch.add(torch.ones(2), 1, out=torch.zeros(2))
    a, b = torch.split(y, 2)
    (a * b).sum().backward()


@program
def results_of_several_kinds() -> None:
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    values, indices = x.max(0)
    torch.linalg.svd(x.detach())
    F.max_pool1d(x.unsqueeze(0), 2, return_indices=True)
    nn.LSTM(3, 2)(x.unsqueeze(0))
    torch.topk(x, 1)
    assert indices.tolist()
    assert x.shape == torch.Size([2, 3]) and x.tolist()
    values.sum().backward()


@program
def written_in_several_forms() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    F.softmax(x, dim=-1)
    F.softmax(x, -1, dtype=torch.float64)
    F.layer_norm(x, (3,))
    F.layer_norm(x, normalized_shape=[3], eps=1e-3)
    F.cross_entropy(input=x, target=torch.tensor([0, 1]), label_smoothing=0.1)
    F.dropout(x, training=False)
    arguments, options = (x,), {"p": 0.0}
    F.dropout(*arguments, **options)
    torch.norm(x)
    x.norm(p=1)
    torch.nn.init.ones_(torch.zeros(2))


@program
def not_a_number_and_infinite() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf")], requires_grad=True)
    (x / torch.tensor([0.0, 1.0, 1.0])).sum().backward()
    torch.nan_to_num(x, nan=float("inf"))
    torch.full((2,), float("-inf"))


@program
def without_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))
    with torch.no_grad():
        weight * 2
    with torch.inference_mode():
        weight * 3
    with torch.autocast("cpu"):
        F.linear(torch.ones(1, 2), torch.ones(2, 2, requires_grad=True)).sum().backward()


@program
def recomputed() -> None:
    x = torch.ones(3, requires_grad=True)
    for reentrant in (True, False):
        checkpoint(lambda t: torch.tanh(t) * 2, x, use_reentrant=reentrant).sum().backward()


@program
def own_backward() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    Twice.apply(torch.ones(2, requires_grad=True)).sum().backward()


@program
def in_a_thread() -> None:
    x = torch.ones(2, requires_grad=True)
    thread = threading.Thread(target=lambda: torch.sigmoid(x).sum().backward())
    thread.start()
    thread.join()


@program
def under_a_mode_of_the_users() -> None:
    class Mine(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Mine():
        torch.relu(torch.ones(2, requires_grad=True)).sum().backward()


@program
def a_class_of_the_users() -> None:
    class Mine(torch.Tensor):
        pass

    torch.relu(torch.ones(2).as_subclass(Mine)) + 1
    torch.cat([torch.ones(2), torch.ones(1)], dim=0)


def outcome(directory: Path, body: Callable[[], Any], config: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The texts of all files of two steps, and what was said."""
    directory.mkdir()
    forget_debugger()
    torch.manual_seed(0)
    capsys.readouterr()
    debugger = configured(directory, **config)
    for _ in range(2):
        debugger.start(nn.Sequential(nn.Identity()))
        body()
        debugger.stop()
        debugger.step()
    run = Run(directory / "dump")
    found = {}
    for number in run.steps:
        for path in sorted(run.step(number).directory.iterdir()):
            if path.name != "meta.json":
                found[f"{number}/{path.name}"] = path.read_text(encoding="utf-8")
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines() if "recorded" in line]
    found["said"] = "\n".join(line.rpartition(", +")[0] for line in said)
    forget_debugger()
    return found


def both(
    body: Callable[[], Any], config: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, str]]:
    """The outcomes in C and in Python; from one line of this file, which stands in every stack."""
    found = []
    torch.use_deterministic_algorithms(True, warn_only=True)  # what torch.empty gives is the same each time
    with contextlib.suppress(UsageError):  # there is no debugger to stop yet
        body()  # what is done the first time only (a warning) is done
    for hot in (common_case.hot, None):
        monkeypatch.setattr(common_case, "hot", hot)
        found.append(outcome(place / ("python" if hot is None else "c"), body, dict(config), capsys))
    torch.use_deterministic_algorithms(False)
    return found


@pytest.mark.parametrize(
    "config",
    [
        {"level": "L1", "risk_level": "ALL"},
        {"level": "mix", "risk_level": "ALL"},
        {"level": "mix", "risk_level": "CORE", "summary_mode": "md5"},
        {"level": "L1", "risk_level": "FOCUS", "summary_mode": "xor", "extra_info": False},
    ],
    ids=lambda config: "-".join(map(str, config.values())),
)
@pytest.mark.parametrize("body", PROGRAMS, ids=lambda body: body.__name__)
def test_the_same_files(
    body: Callable[[], Any], config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_c, in_python = both(body, config, tmp_path, monkeypatch, capsys)
    assert in_c.keys() == in_python.keys()
    for name, text in in_python.items():
        assert in_c[name] == text, name
    assert "recorded" in in_c["said"]


def test_python_is_asked_for_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above compares Python with itself."""
    asked: list[str] = []
    original = Recorder.api

    def api(self: Recorder, api: Any, *rest: Any) -> Any:
        asked.append(api.full)
        return original(self, api, *rest)

    monkeypatch.setattr(Recorder, "api", api)
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    x = torch.ones(2, requires_grad=True)
    F.softmax(torch.relu(x) + 1, dim=0).sum().backward()
    debugger.stop()
    debugger.step()
    assert asked == []
    assert len(Run(tmp_path / "dump").step().names) == 8


def test_a_class_of_the_users_is_asked_as_often_as_without(tmp_path: Path) -> None:
    met: list[str] = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            met.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def body() -> list[str]:
        met.clear()
        x = (torch.ones(3, requires_grad=True) * 2).as_subclass(Mine)
        x[0] = 5
        x.add_(1)
        x.max(0)
        torch.relu(x).sum().backward()
        return list(met)

    plain = body()
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    watched = body()
    debugger.stop()
    debugger.step()
    assert watched == plain
    assert "Tensor.__setitem__.0.forward" in Run(tmp_path / "dump").step().names


def test_an_error_of_ours_stays_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Recorder, *_: Any) -> Any:
        raise RuntimeError("no form")

    monkeypatch.setattr(Recorder, "_as_called", broken)
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    assert F.softmax(torch.zeros(2), dim=0).tolist() == [0.5, 0.5]
    assert torch.relu(torch.ones(1)).item() == 1
    debugger.stop()
    debugger.step()
    step = Run(tmp_path / "dump").step()
    assert "Functional.softmax" in step.errors and "no form" in step.errors
    assert "Torch.relu.0.forward" in step.names


def test_what_a_signal_handler_raises_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Expired(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Expired

    def slow(self: Recorder, *_: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("not reached")

    monkeypatch.setattr(Recorder, "_as_called", slow)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        debugger = configured(tmp_path, level="L1", risk_level="ALL")
        debugger.start()
        with pytest.raises(Expired):
            F.softmax(torch.zeros(2), dim=0)
        torch.relu(torch.ones(1))
        debugger.stop()
        debugger.step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "Torch.relu.0.forward" in Run(tmp_path / "dump").step().names


def test_stop_inside_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2, requires_grad=True)

    def body() -> None:
        y = torch.relu(x)
        y.register_hook(lambda gradient: PrecisionDebugger.stop())
        y.sum().backward()

    in_c, in_python = both(body, {"level": "L1", "risk_level": "ALL"}, tmp_path, monkeypatch, capsys)
    assert in_c == in_python


def test_nothing_is_kept_of_a_call(tmp_path: Path) -> None:
    x, number = torch.ones(2), object()
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    torch.relu(x)
    before = sys.getrefcount(x), sys.getrefcount(number), sys.getrefcount(torch.relu), sys.getrefcount(None)
    for _ in range(2):
        debugger.start()
        for _ in range(200):
            torch.relu(x)
            torch.clamp(x, min=0.0)
            F.softmax(x, dim=0)
            try:
                torch.add(x, number)  # type: ignore[call-overload]
            except TypeError:
                pass
        debugger.stop()
        debugger.step()
    after = sys.getrefcount(x), sys.getrefcount(number), sys.getrefcount(torch.relu), sys.getrefcount(None)
    assert all(now - then < 100 for now, then in zip(after, before, strict=True)), (before, after)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1.5}, True),
        ({"a": None}, False),
        ({"a": "nothing null"}, False),
        ({"ä": 1}, False),
        ({"a": float("nan")}, False),
        ({"a": object()}, False),
    ],
)
def test_only_straightforward_entries_become_text_in_c(value: Any, text: bool) -> None:
    import orjson

    entry = _entry.Entry("name", value, True)
    _entry.encode_entries([entry], orjson.dumps, orjson.OPT_INDENT_2, 1, 1)
    assert bool(entry.text) is text
    assert (entry.data == {}) is text
