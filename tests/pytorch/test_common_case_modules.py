"""Modules are recorded in C in the common case and by Python in every other: both write the same files, whatever the program does."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import statistics
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, configured, forget_debugger, without_cost
from torch import nn

from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end, torch_internals
from msprobe.pytorch.dump import common_case
from msprobe.pytorch.dump.graph_walk import edges_of_all
from msprobe.pytorch.dump.module_dump import hooks, naming
from msprobe.pytorch.dump.module_recorder import ModuleRecorder
from msprobe.recording.calls import OpenModule
from msprobe.writer import flush_all

pytestmark = pytest.mark.skipif(common_case.hot is None, reason="there was no compiler when msprobe was installed")

LEVELS = ("L0", "mix")
Pair = namedtuple("Pair", "first second")


class Calls(nn.Module):
    """Calls `body` with its children, which are a small linear layer each."""

    def __init__(self, body: Callable[..., Any], *children: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.inner = nn.ModuleList(children or (nn.Linear(2, 2), nn.Linear(2, 2)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*self.inner, *args, **kwargs)


def model_of(body: Callable[..., Any], *children: nn.Module) -> nn.Module:
    return nn.Sequential(Calls(body, *children))


class Interrupted(BaseException):
    pass


def program(make: Callable[[PrecisionDebugger], Any]) -> Callable[[PrecisionDebugger], Any]:
    """Enter a program into PROGRAMS."""
    PROGRAMS.append(make)
    return make


PROGRAMS: list[Callable[[PrecisionDebugger], Any]] = []


@contextlib.contextmanager
def recorded(debugger: PrecisionDebugger, model: Any, steps: int = 1) -> Any:
    debugger.start(model)
    try:
        yield
    finally:
        debugger.stop()
        debugger.step()


@program
def nested_modules_of_three_steps(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(torch.relu(a(x))) + x)
    for _ in range(3):
        with recorded(debugger, model):
            model(torch.ones(3, 2)).sum().backward()


@program
def several_calls_and_a_module_inside_itself(debugger: PrecisionDebugger) -> None:
    class Again(nn.Linear):
        def forward(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:  # type: ignore[override]
            return self(super().forward(x), times - 1) if times else x

    model = model_of(lambda a, b, x: b(a(a(x)), times=1), nn.Linear(2, 2), Again(2, 2))
    with recorded(debugger, model):
        model(torch.ones(2)).sum().backward()


@program
def results_of_all_kinds(debugger: PrecisionDebugger) -> None:
    made: list[Callable[[torch.Tensor], Any]] = [
        lambda x: (x, x * 2),
        lambda x: Pair(x, [x]),
        lambda x: {"a": x, 1: [x, None]},
        lambda x: None,
        lambda x: x.shape,
        lambda x: torch.max(x, dim=0),
        lambda x: 3.5,
        lambda x: float("nan"),
        lambda x: object(),
        lambda x: nn.Parameter(x.detach()),
        lambda x: (),
        lambda x: x.to_sparse(),
    ]
    for make in made:
        model = model_of(lambda layer, x: layer(x), Calls(lambda a, x, make=make: make(a(x)), nn.Linear(2, 2)))
        with recorded(debugger, model):
            model(torch.ones(3, 2))


@program
def arguments_of_all_kinds(debugger: PrecisionDebugger) -> None:
    inner = Calls(lambda a, x, *_, **__: a(x), nn.Linear(2, 2))
    model = model_of(
        lambda layer, x: layer(x, None, "text", [x, {"a": (x, x)}], object(), scale=2.0, dtype="float32", device=0, **{"a.b": x}), inner
    )
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    cyclic_model = model_of(lambda layer, x: layer(x, cyclic, cyclic=cyclic), inner)
    with recorded(debugger, model):
        model(torch.ones(3, 2, requires_grad=True)).sum().backward()
    with recorded(debugger, cyclic_model):
        cyclic_model(torch.ones(3, 2))


@program
def parameters_of_all_kinds(debugger: PrecisionDebugger) -> None:
    odd = nn.Linear(2, 2, bias=False)
    odd.register_parameter("none", None)
    odd.register_parameter("nothing", nn.Parameter(torch.empty(0)))
    odd.register_parameter("infinite", nn.Parameter(torch.tensor([float("inf"), 1.0])))
    odd.register_parameter("sparse", nn.Parameter(torch.eye(2).to_sparse()))
    odd.register_parameter("frozen", nn.Parameter(torch.ones(2), requires_grad=False))
    odd.own = nn.ParameterDict({"a": nn.Parameter(torch.ones(1))})
    model = model_of(lambda a, b, c, x: c(b(a(x))), odd, nn.Dropout(0.0), nn.BatchNorm1d(2))
    with recorded(debugger, model):
        model(torch.ones(3, 2)).sum().backward()


@program
def shared_modules_and_parameters(debugger: PrecisionDebugger) -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight = one.weight
    model = nn.ModuleList([one, nn.Sequential(one, other)])
    with recorded(debugger, model):
        (model[0](torch.ones(2)) + model[1](torch.ones(2))).sum().backward()


@program
def gradients_off_on_and_several_times(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(debugger, model):
        with torch.no_grad():
            model(torch.ones(2))
        with torch.inference_mode():
            model(torch.ones(2))
        x = torch.ones(2, requires_grad=True)
        model(x)[0].backward()
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        model.requires_grad_(False)
        model(x).sum().backward()
        model(x.detach())


@program
def exceptions(debugger: PrecisionDebugger) -> None:
    def fail(a: nn.Module, b: nn.Module, x: torch.Tensor, error: type[BaseException]) -> Any:
        b(a(x))
        raise error

    def inner(layer: nn.Module, x: torch.Tensor) -> Any:
        for error in (ValueError, Interrupted):
            with contextlib.suppress(ValueError, Interrupted):
                layer(x, error)
        return x

    model = model_of(inner, Calls(fail))
    with recorded(debugger, model):
        model(torch.ones(2))
        with contextlib.suppress(Interrupted):
            model[0].inner[0](torch.ones(2), Interrupted)
        model(torch.ones(2))
    with recorded(debugger, model), contextlib.suppress(Interrupted):
        model[0].inner[0](torch.ones(2), Interrupted)


@program
def hooks_of_the_user(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    first, second = model[0].inner

    def fails(*_: Any) -> None:
        raise ValueError

    handles = [
        first.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        first.register_forward_hook(lambda module, args, result: result * 3),
        first.register_full_backward_hook(lambda module, gin, gout: None),
        second.register_forward_pre_hook(lambda module, args, kwargs: (args, {}), with_kwargs=True),
    ]
    with recorded(debugger, model):
        model(torch.ones(2, requires_grad=True)).sum().backward()
    handles.append(first.register_forward_pre_hook(fails))
    with recorded(debugger, model), contextlib.suppress(ValueError):
        model(torch.ones(2))
    handles.pop().remove()
    handles.append(second.register_forward_hook(fails))
    with recorded(debugger, model), contextlib.suppress(ValueError):
        model(torch.ones(2))
    for handle in handles:
        handle.remove()


@program
def start_and_stop_inside(debugger: PrecisionDebugger) -> None:
    def body(a: nn.Module, b: nn.Module, x: torch.Tensor) -> Any:
        x = a(x)
        change()
        return b(x)

    outer = model_of(lambda layer, x: layer(x), Calls(body))
    for change in (lambda: debugger.start(outer), debugger.stop):  # noqa: B007
        outer(torch.ones(2)).sum().backward()
    debugger.step()
    with recorded(debugger, outer):
        outer(torch.ones(2))
        debugger.start(outer)
        outer(torch.ones(2))


@program
def stop_before_the_backward_pass(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    debugger.start(model)
    loss = model(torch.ones(2)).sum()
    debugger.stop()
    loss.backward()
    debugger.step()
    with recorded(debugger, model):
        late = model(torch.ones(2)).sum()
    late.backward()


@program
def threads(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(debugger, model):
        for _ in range(2):
            thread = threading.Thread(target=lambda: model(torch.ones(2)).sum().backward())
            thread.start()
            thread.join()
        started = threading.Event()
        go = threading.Event()

        def wait(a: nn.Module, b: nn.Module, x: torch.Tensor) -> Any:
            started.set()
            go.wait(10)
            return b(a(x))

        model[0].body = wait
        thread = threading.Thread(target=lambda: model(torch.ones(2)))
        thread.start()
        started.wait(10)
        model[0].body = lambda a, b, x: b(a(x))
        model(torch.ones(2)).sum().backward()
        go.set()
        thread.join()


@program
def copies(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(debugger, model):
        deep, shallow = copy.deepcopy(model[0].inner[0]), copy.copy(model[0].inner[1])
        deep(torch.ones(2))
        shallow(torch.ones(2))
        model(torch.ones(2)).sum().backward()


@program
def one_module_alone(debugger: PrecisionDebugger) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    other = nn.Linear(2, 2)
    with recorded(debugger, model):
        model(torch.ones(2))
        module_dump(other, "alone")
        other(model(torch.ones(2)))
        module_dump_end()
        model(torch.ones(2)).sum().backward()


@program
def modules_with_a_fast_path(debugger: PrecisionDebugger) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, enable_nested_tensor=False)
    with recorded(debugger, [model]):
        model(torch.ones(1, 3, 4)).sum().backward()
        model.eval()
        with torch.no_grad():
            model(torch.ones(1, 3, 4))


@program
def views_changed_in_place(debugger: PrecisionDebugger) -> None:
    class Changes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            y[0] = 1
            return y

    model = model_of(lambda a, b, x: b(a(x)), nn.Identity(), Changes(2, 2))
    with recorded(debugger, model):
        x = torch.ones(3, 2, requires_grad=True) * 1
        y = model(x.view(3, 2))
        y.mul_(2)
        y.sum().backward()


@program
def a_mode_of_the_user(debugger: PrecisionDebugger) -> None:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(debugger, model), Mode():
        model(torch.ones(2)).sum().backward()
    torch.save(seen, f"{debugger.config.dump_path}/seen")


def written(root: Path) -> dict[str, bytes]:
    flush_all()
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "meta.json"
    }


def outcome(make: Callable[[PrecisionDebugger], Any], place: Path, capfd: Any, **config: Any) -> dict[str, bytes]:
    """Everything written, and the closing lines without the times in them."""
    place.mkdir()
    torch.manual_seed(0)
    capfd.readouterr()
    make(configured(place, risk_level="ALL", **config))
    forget_debugger()
    gc.collect()
    lines = [without_cost(line[26:]) for line in capfd.readouterr().err.splitlines() if "msprobe" in line or "[" in line]
    return {**written(place / "dump"), "lines": "\n".join(lines).replace(str(place), "").encode()}


def both(make: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, **config: Any) -> list[dict[str, bytes]]:
    """What is written in C and in Python; from one line of this file, which stands in every stack."""
    found = []
    for hot in (common_case.hot, None):
        monkeypatch.setattr(common_case, "hot", hot)
        found.append(outcome(make, place / ("python" if hot is None else "c"), capfd, **config))
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_both_write_the_same(make: Any, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    in_c, in_python = both(make, tmp_path, monkeypatch, capfd, level=level)
    assert any(name.endswith("dump.json") for name in in_c)
    assert [name for name in {**in_c, **in_python} if in_c.get(name) != in_python.get(name)] == []


@pytest.mark.parametrize("mode", ["md5", "xor"])
def test_checksums(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    in_c, in_python = both(nested_modules_of_three_steps, tmp_path, monkeypatch, capfd, level="mix", summary_mode=mode)
    assert in_c == in_python


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the methods in Python that hooks reach from now on."""
    reached: list[str] = []
    for name in ("module_before", "module_after"):
        original = getattr(ModuleRecorder, name)
        monkeypatch.setattr(
            ModuleRecorder, name, lambda self, *args, name=name, original=original: (reached.append(name), original(self, *args))[1]
        )
    return reached


@pytest.mark.parametrize(
    ("config", "in_python"),
    [
        ({}, False),
        ({"summary_mode": "md5"}, False),
        ({"task": "tensor"}, False),
        ({"task": "tensor", "summary_mode": "md5"}, False),
        ({"task": "tensor", "list": ["Linear"]}, True),
        ({"list": ["Linear"]}, True),
        ({"data_mode": ["input"]}, True),
        ({"async_dump": True}, True),
        ({"task": "structure"}, True),
    ],
    ids=str,
)
def test_the_common_case_does_not_come_to_python_and_the_others_do(
    config: dict[str, Any], in_python: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = counting(monkeypatch)
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(configured(tmp_path, level="L0", **config), model):
        model(torch.ones(2)).sum().backward()
    assert bool(reached) is in_python
    assert {f"Module.0.inner.{n}.Linear.forward.0" for n in (0, 1)} <= set(Run(tmp_path / "dump").step().construct)


def test_an_error_of_ours_is_told_and_does_not_reach_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr("msprobe.pytorch.dump.common_case.edges_of_all", fails)
    monkeypatch.setattr(ModuleRecorder, "_edges", fails)
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(configured(tmp_path, level="L0"), model):
        model(torch.ones(2)).sum().backward()
    step = Run(tmp_path / "dump").step()
    assert "module could not be recorded: RuntimeError('planted')" in step.errors
    assert [name for name in step.names if ".forward" in name] == [
        f"Module.0.{name}.forward.0" for name in ("inner.0.Linear", "inner.1.Linear")
    ] + ["Module.0.Calls.forward.0"]


def test_an_interruption_of_the_users_passes_and_recording_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts = [True]

    def edges(tensors: Any) -> Any:
        if interrupts:
            raise Interrupted
        return edges_of_all(tensors)

    monkeypatch.setattr("msprobe.pytorch.dump.common_case.edges_of_all", edges)
    model = model_of(lambda a, b, x: b(a(x)))
    with recorded(configured(tmp_path, level="L0"), model):
        with pytest.raises(Interrupted):
            model(torch.ones(2))
        interrupts.clear()
        model(torch.ones(2)).sum().backward()
    step = Run(tmp_path / "dump").step()
    assert step.construct["Module.0.Calls.forward.1"] is None, "the interrupted module is no longer open"
    assert step.only("inner.1.Linear.forward.0")["output"][0]["shape"] == [2]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.ModuleList([nn.Identity()]))),
        lambda: [nn.ReLU(), nn.Sequential(nn.ReLU())],
        lambda: nn.ModuleDict({"a": nn.ReLU()}),
        lambda: torch.jit.trace(nn.Sequential(nn.Linear(1, 1)), torch.ones(1)),
    ],
)
def test_both_walk_a_model_alike(make: Callable[[], Any]) -> None:
    model = make()
    shared = nn.ReLU()
    for root in model if isinstance(model, list) else [model]:
        if not isinstance(root, torch.jit.ScriptModule):
            root.add_module("one", shared)
            root.add_module("other", shared)
            root.add_module("none", None)
    ways = []
    for walk in (common_case.hot.walk_modules, naming.walk_in_python):
        waiting, found, modules = list(model) if isinstance(model, list) else [model], [], []
        walk(waiting, found, modules)
        ways.append((waiting, found, modules))
    assert ways[0] == ways[1]
    assert ways[0][0] == [] and len(ways[0][2]) > 1


def test_both_put_and_take_hooks_alike() -> None:
    names = torch_internals.MODULE_HOOKS
    for put, take in (
        (common_case.hot.put_in_each, common_case.hot.take_from_each),
        (hooks.put_in_python, hooks.take_in_python),
    ):
        modules: list[nn.Module] = [nn.ReLU(), nn.Identity()]
        modules[0].register_forward_hook(print)
        before = [[dict(getattr(module, name)) for name in names] for module in modules]
        put(modules, names, "key", [tuple(range(len(names))), tuple(range(10, 10 + len(names)))])
        values = [[getattr(module, name)["key"] for name in names] for module in modules]
        assert values == [list(range(len(names))), list(range(10, 10 + len(names)))]
        assert [list(getattr(modules[0], name)) for name in names][2][1:] == ["key"]
        for _ in range(2):
            take(modules, names, "key")
            assert [[dict(getattr(module, name)) for name in names] for module in modules] == before
        with pytest.raises(AttributeError):
            put([object()], names, "key", [tuple(names)])
        with pytest.raises(AttributeError):
            take([object()], names, "key")


def test_an_open_module_of_c_has_what_pythons_has() -> None:
    """Other rooms look at both in the same way."""
    found = {name for name in dir(common_case.hot.OpenModule) if not name.startswith("__")}
    assert found == {name for name in dir(OpenModule) if not name.startswith("__")}


def test_nothing_stays_in_memory(tmp_path: Path) -> None:
    model = model_of(lambda a, b, x: b(a(x)))
    debugger = configured(tmp_path, level="L0")

    def one_step() -> int:
        with recorded(debugger, model):
            for _ in range(20):
                model(torch.ones(2)).sum().backward()
        gc.collect()
        return len(gc.get_objects())

    counts = [one_step() for _ in range(9)]
    grown = [after - before for before, after in itertools.pairwise(counts)]
    assert statistics.median(grown) <= 8, "each step has 60 calls of modules; what pytest keeps of log lines is a few"
