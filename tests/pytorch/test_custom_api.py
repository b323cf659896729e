"""Users' own functions as APIs, by register_custom_api and by custom_wrap_ops.yaml, and those of packages for accelerators."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import operator
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from against_golden import sample_differences
from capturing import Run, configured, environment, forget_debugger, golden, record

import warm_python
from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger, custom_api
from msprobe.pytorch.dump.api_dump import watching

X = torch.tensor([1.0, 2.0], requires_grad=True)


def compute(x: torch.Tensor, k: float = 2) -> torch.Tensor:
    """Multiply what is positive."""
    return torch.relu(x) * k


def recursive(x: torch.Tensor, n: int) -> torch.Tensor:
    return x if n == 0 else recursive(x, n - 1) + 1


class Cls:
    def meth(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def st(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * 4

    size = len

    @property
    def number(self) -> int:
        return 1


class Base:
    def inherited(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    counted = functools.partialmethod(inherited)


class Derived(Base):
    def inherited(self, x: torch.Tensor) -> torch.Tensor:
        return super().inherited(x) * 2


class Scale:
    """An object that can be called."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 5


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    yield
    custom_api._registered.clear()
    assert custom_api._open == []


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = types.ModuleType("module_a")
    made.compute, made.recursive, made.scale, made.size = compute, recursive, Scale(), len  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "module_a", made)
    return made


@pytest.fixture
def told() -> Iterator[list[str]]:
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Handler(logging.WARNING)
    logging.getLogger("msprobe").addHandler(handler)
    yield texts
    logging.getLogger("msprobe").removeHandler(handler)


def recorded(directory: Path, body: Callable[[PrecisionDebugger], Any], *, level: str = "L1", model: Any = None, **config: Any) -> Any:
    debugger = configured(directory, level=level, risk_level=config.pop("risk_level", "ALL"), **config)
    debugger.start(model)
    try:
        body(debugger)
    finally:
        debugger.stop()
        debugger.step()
    return Run(directory / "dump").step()


# --- registering ----------------------------------------------------------------------------------------------------------------------
def test_the_sample(tmp_path: Path, module: Any) -> None:
    """The reference's sample customapi, line by line; what is registered twice is restored once."""
    module.compute2 = lambda x: x + 1
    debugger = configured(tmp_path, **golden("customapi")["config"])
    debugger.register_custom_api(module, "compute")
    debugger.register_custom_api(module, "compute2", "Pre.fix")
    debugger.register_custom_api(module, "compute")
    debugger.register_custom_api(Cls, "meth")
    debugger.register_custom_api(Cls, "st")
    x = torch.ones(2, requires_grad=True)
    debugger.start()
    module.compute(x, k=3).sum().backward()
    module.compute2(x)
    Cls().meth(x)
    Cls.st(x)
    debugger.restore_custom_api(module, "compute")
    assert module.compute is compute
    torch.tanh(module.compute(x))
    debugger.stop()
    debugger.step()
    step, theirs = Run(tmp_path / "dump").step(), golden("customapi")["steps"]["0"]["data"]
    missing = set(theirs) - set(step.data)
    assert missing == {"module_a.compute.1.forward"}  # the reference leaves a wrapper behind
    assert list(step.forward())[-3:] == ["Torch.relu.0.forward", "Tensor.__mul__.0.forward", "Torch.tanh.0.forward"]
    assert sample_differences(theirs, step.data) == []


def test_a_call_by_keyword(tmp_path: Path, module: Any) -> None:
    """The documented call: `register_custom_api(module=..., api=..., api_prefix=...)`."""

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module=module, api="compute", api_prefix="mine")
        compute(X)

    step = recorded(tmp_path, body)
    assert step.names == ["mine.compute.0.forward"]
    assert step.frames("mine.compute.0.forward")[0].endswith("in body, \n compute(X)")


def test_nothing_changes_outside_of_the_window_and_nothing_is_left(tmp_path: Path, module: Any) -> None:
    before = {
        name: compute.__getattribute__(name) for name in ("__code__", "__dict__", "__doc__", "__defaults__", "__name__", "__qualname__")
    }
    attributes = dict(vars(module)), dict(vars(Cls))
    signature, source = str(inspect.signature(compute)), inspect.getsource(compute)
    methods = str(inspect.signature(Cls.meth)), str(inspect.signature(Cls().meth))

    def same() -> bool:
        return (
            all(compute.__getattribute__(name) == value for name, value in before.items())
            and attributes == (dict(vars(module)), dict(vars(Cls)))
            and str(inspect.signature(compute)) == "(x: 'torch.Tensor', k: 'float' = 2) -> 'torch.Tensor'"
        )

    debugger = configured(tmp_path)
    for owner, name in (
        (module, "compute"),
        (module, "scale"),
        (module, "size"),
        (Cls, "meth"),
        (Cls, "st"),
        (Cls, "of_class"),
        (Cls, "size"),
    ):
        debugger.register_custom_api(owner, name)
    assert same()
    debugger.start()
    assert module.compute is compute and pickle.loads(pickle.dumps(compute)) is compute and compute.__doc__ == "Multiply what is positive."
    assert compute.__name__ == module.compute.__qualname__ == "compute" and compute.__defaults__ == (2,)
    assert str(inspect.signature(compute)) == signature and inspect.getsource(compute) == source
    assert str(inspect.signature(Cls.meth)) == methods[0] and str(inspect.signature(Cls().meth)) == methods[1]
    assert module.size.__name__ == "len" and module.size.__wrapped__ is len
    debugger.stop()
    assert same()
    debugger.restore_custom_api(module, "compute")
    assert same()


def test_what_is_registered_is_seen_under_every_name(tmp_path: Path, module: Any) -> None:
    other = compute

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        for function in (compute, other, module.compute, functools.partial(other, k=1)):
            function(X)

    assert list(recorded(tmp_path, body).forward()) == [f"module_a.compute.{n}.forward" for n in range(4)]


def test_methods_of_all_kinds(tmp_path: Path) -> None:
    one, two = Cls(), Cls()

    def body(debugger: PrecisionDebugger) -> None:
        for name in ("meth", "st", "of_class", "size"):
            debugger.register_custom_api(Cls, name)
        assert torch.equal(one.meth(X), X * 2) and torch.equal(Cls.meth(two, X), X * 2)
        assert torch.equal(one.st(X), X * 3) and torch.equal(Cls.st(X), X * 3)
        assert torch.equal(one.of_class(X), X * 4) and torch.equal(Cls.of_class(X), X * 4)
        assert one.size([1]) == 1 and Cls.size([1, 2]) == 2

    step = recorded(tmp_path, body)
    names = [name for name in step.forward() if name.startswith("Cls.")]
    assert names == [f"Cls.{name}.{n}.forward" for name in ("meth", "st", "of_class", "size") for n in (0, 1)]
    assert [len(step.data[f"Cls.{name}.0.forward"]["input_args"]) for name in ("meth", "st", "of_class", "size")] == [2, 1, 2, 1]
    assert step.data["Cls.meth.0.forward"]["input_args"][0] is None


def test_a_method_of_one_object(tmp_path: Path) -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(one, "forward")
        one(X)
        two(X)
        assert "forward" not in vars(one)
        assert torch.equal(copy.deepcopy(one)(X), one(X))

    step = recorded(tmp_path, body)
    assert [name for name in step.forward() if "forward.0" in name or "Linear" in name][:1] == ["Linear.forward.0.forward"]
    assert sum(name.startswith("Linear.") for name in step.forward()) == 2 and "Functional.linear.1.forward" in step.names


def test_inherited_methods_and_super(tmp_path: Path) -> None:
    expected = (X + 1) * 2

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(Derived, "inherited")
        assert Derived().inherited(X).tolist() == expected.tolist()

    before = dict(vars(Base)), dict(vars(Derived))
    step = recorded(tmp_path, body)
    assert list(step.forward()) == ["Derived.inherited.0.forward"]
    assert before == (dict(vars(Base)), dict(vars(Derived)))


def test_an_inherited_callable_is_taken_off_the_class_that_had_none(tmp_path: Path) -> None:
    class Plain:
        scale = Scale()

    class Below(Plain):
        pass

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(Below, "scale")
        assert torch.equal(Below().scale(X), X * 5) and torch.equal(Plain.scale(X), X * 5)

    step = recorded(tmp_path, body)
    assert [name for name in step.forward() if name.startswith("Below")] == ["Below.scale.0.forward"] and "scale" not in vars(Below)


def test_closures_and_decorated_functions(tmp_path: Path, module: Any) -> None:
    """Whatever the variables of a closure are called, and with the chain of what is wrapped as it was."""

    def decorated(function: Any, args: int, kwargs: int) -> Any:
        @functools.wraps(function)
        def inner(*a: Any, **k: Any) -> Any:
            return function(*a, **k) * args * kwargs

        return inner

    module.decorated = inner = decorated(compute, 3, 5)
    before = dict(vars(inner))

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "decorated")
        debugger.register_custom_api(module, "compute")
        assert inner(X, k=1).tolist() == [15.0, 30.0]
        assert list(inspect.signature(inner).parameters) == ["x", "k"] and inspect.unwrap(inner).__name__ == "compute"
        debugger.restore_custom_api(module, "decorated")
        assert vars(inner) == before

    assert list(recorded(tmp_path, body).forward()) == ["module_a.decorated.0.forward"]
    assert vars(inner) == before and vars(compute) == {}


def test_a_function_whose_code_the_user_exchanges_between_steps(tmp_path: Path, module: Any) -> None:
    def one(x: torch.Tensor, by: int = 2) -> torch.Tensor:
        return x * by

    def two(x: torch.Tensor, by: int = 3) -> torch.Tensor:
        return x + by

    module.one = one
    debugger = configured(tmp_path)
    debugger.register_custom_api(module, "one")
    debugger.start()
    one(X)
    debugger.stop()
    one.__code__, one.__defaults__ = two.__code__, two.__defaults__
    debugger.start()
    one(X)
    debugger.stop()
    debugger.step()
    data = Run(tmp_path / "dump").step().data
    assert [data[f"module_a.one.{n}.forward"]["output"][0]["Max"] for n in (0, 1)] == [4.0, 5.0]
    assert one.__code__ is two.__code__


def test_only_the_outermost_call_is_recorded(tmp_path: Path, module: Any) -> None:
    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        debugger.register_custom_api(module, "recursive")
        assert recursive(X, 3).tolist() == [4.0, 5.0]
        compute(X).tanh()

    assert list(recorded(tmp_path, body).forward()) == [
        "module_a.recursive.0.forward",
        "module_a.compute.0.forward",
        "Tensor.tanh.0.forward",
    ]


def test_a_function_of_torch(tmp_path: Path) -> None:
    """The documented example: torch.matmul. The mode sees it anyway; only its name changes, and nothing is replaced."""
    before = torch.matmul

    def body(debugger: PrecisionDebugger) -> None:
        a = torch.ones(2, 2)
        before(a, a)
        debugger.register_custom_api(torch, "matmul")
        debugger.register_custom_api(F, "linear", "mine")
        assert torch.matmul is before
        before(a, a)
        F.linear(input=a, weight=a)
        debugger.restore_custom_api(torch, "matmul")
        torch.matmul(a, a)

    step = recorded(tmp_path, body)
    assert list(step.forward()) == ["Torch.matmul.0.forward", "torch.matmul.0.forward", "mine.linear.0.forward", "Torch.matmul.1.forward"]
    assert list(step.data["mine.linear.0.forward"]["input_kwargs"]) == ["input", "weight"]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 3


bound_early = Double.apply


def test_an_autograd_function(tmp_path: Path) -> None:
    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(Double, "apply")
        Double.apply(X).sum().backward()

    before = torch.autograd.Function.__dict__["apply"]
    step = recorded(tmp_path, body)
    assert step.only("Double.apply.0.backward")["output"][0]["Max"] == 2.0
    assert "apply" not in vars(Double) and torch.autograd.Function.__dict__["apply"] is before


@pytest.mark.parametrize(
    "classes", [(Double,), (Double, Triple), (Triple, Double)], ids=lambda classes: classes[0].__name__ + str(len(classes))
)
def test_an_autograd_function_is_not_another_one(tmp_path: Path, classes: tuple[Any, ...]) -> None:
    """All of them have inherited one and the same `apply`."""

    def body(debugger: PrecisionDebugger) -> None:
        for each in classes:
            debugger.register_custom_api(each, "apply")
        (Double.apply(X) + Triple.apply(X)).sum().backward()

    step = recorded(tmp_path, body)
    found = {name: step.data[name]["output"][0]["Max"] for name in step.forward() if ".apply." in name}
    assert found == {f"{each.__name__}.apply.0.forward": {Double: 2, Triple: 3}[each] * X.max().item() for each in classes}


def test_a_name_bound_early_to_an_autograd_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen too, or it is told that it is not: from torch 2.14 on `apply` is no Python function."""
    told: list[str] = []
    monkeypatch.setattr(custom_api.logger, "info", told.append)

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(Double, "apply")
        bound_early(X)

    step = recorded(tmp_path, body)
    told = [line for line in told if "Double.apply" in line]
    assert ("Double.apply.0.forward" in step.data) != bool(told)
    assert told == [] or "a name that is bound to it before start() is not seen" in told[0]


def test_a_method_of_two_objects_and_one_that_was_inherited(tmp_path: Path) -> None:
    class Base:
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu()

    class Left(Base):
        pass

    one, two, left = Base(), Base(), Left()

    def body(debugger: PrecisionDebugger) -> None:
        for owner, prefix in ((one, "one"), (two, "two"), (Left, "left")):
            debugger.register_custom_api(owner, "run", prefix)
        for each in (one, two, left, Base()):
            each.run(X)

    assert list(recorded(tmp_path, body).forward()) == [
        "one.run.0.forward",
        "two.run.0.forward",
        "left.run.0.forward",
        "Tensor.relu.0.forward",
    ]


def test_registering_and_restoring_at_any_time(tmp_path: Path, module: Any) -> None:
    debugger = configured(tmp_path, risk_level="ALL")
    debugger.register_custom_api(module, "compute", "a")
    for prefix in ("b", "c"):
        debugger.start()
        compute(X)
        debugger.register_custom_api(module, "compute", prefix)
        compute(X)
        debugger.stop()
        compute(X)
    debugger.restore_custom_api(module, "compute")
    debugger.restore_custom_api(module, "compute")
    debugger.start()
    torch.tanh(compute(X))
    debugger.stop()
    debugger.step()
    assert list(Run(tmp_path / "dump").step().forward()) == [
        "a.compute.0.forward",
        "b.compute.0.forward",
        "b.compute.1.forward",
        "c.compute.0.forward",
        "Torch.relu.0.forward",
        "Tensor.__mul__.0.forward",
        "Torch.tanh.0.forward",
    ]


def test_two_names_of_one_function(tmp_path: Path, module: Any) -> None:
    code = compute.__code__
    module.again = compute

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        debugger.register_custom_api(module, "again")
        compute(X)
        debugger.restore_custom_api(module, "compute")
        compute(X)

    step = recorded(tmp_path, body)
    assert step.names[0] == "module_a.again.0.forward" and len(step.forward()) == 2
    assert compute.__code__ is code


def test_what_somebody_else_puts_there_meanwhile_stays(tmp_path: Path, module: Any) -> None:
    mine = Scale()

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "scale")
        module.scale = mine
        module.scale(X)

    recorded(tmp_path, body)
    assert module.scale is mine


def test_what_is_deleted_meanwhile_keeps_nothing_else_from_being_undone(tmp_path: Path, module: Any) -> None:
    code = compute.__code__

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        debugger.register_custom_api(module, "scale")
        debugger.register_custom_api(module, "size")
        del module.scale
        compute(X)

    assert list(recorded(tmp_path, body).forward()) == ["module_a.compute.0.forward"]
    assert compute.__code__ is code and module.size is len


def test_levels_and_selection(tmp_path: Path, module: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    for level, names in (("L0", []), ("mix", ["module_a.split.0.forward"])):
        directory = tmp_path / level
        directory.mkdir()
        module.split = compute
        forget_debugger()

        def body(debugger: PrecisionDebugger) -> None:
            debugger.register_custom_api(module, "split")
            model(compute(X))

        step = recorded(directory, body, level=level, model=model, risk_level="FOCUS")
        assert [name for name in step.forward() if name.startswith("module_a")] == names
        assert "Module.0.Linear.forward.0" in step.names
        if level == "mix":
            assert step.construct["module_a.split.0.forward"] is None


def test_an_exception_is_the_user_s(tmp_path: Path, module: Any) -> None:
    def fails(x: torch.Tensor) -> None:
        raise KeyError("mine")

    module.fails = fails

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "fails")
        with pytest.raises(KeyError, match="mine"):
            module.fails(X)
        with pytest.raises(TypeError, match="argument"):
            module.fails()
        torch.tanh(X)

    step = recorded(tmp_path, body)
    assert list(step.forward()) == ["module_a.fails.0.forward", "Torch.tanh.0.forward"] and step.errors == ""


def test_threads(tmp_path: Path, module: Any) -> None:
    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        thread = threading.Thread(target=compute, args=(X,))
        thread.start()
        thread.join()

    assert "module_a.compute.0.forward" in recorded(tmp_path, body).names


def test_the_results_are_the_same_bits(tmp_path: Path, module: Any) -> None:
    x = torch.randn(64, requires_grad=True)
    compute(x, 0.3).square().sum().backward()
    plain = x.grad
    x.grad = None

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        compute(x, 0.3).square().sum().backward()

    recorded(tmp_path, body)
    assert x.grad is not None and plain is not None and torch.equal(x.grad, plain)


def test_compiled_code_is_not_compiled_anew(tmp_path: Path, module: Any) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: compute(x) + 1, backend=backend, fullgraph=True)
    debugger = configured(tmp_path)
    debugger.register_custom_api(module, "compute")
    compiled(X)
    debugger.start()
    compiled(X)
    debugger.stop()
    compiled(X)
    debugger.step()
    assert len(graphs) == 1
    assert "module_a.compute.0.forward" in Run(tmp_path / "dump").step().names


def test_code_that_is_compiled_for_the_first_time_in_the_window(tmp_path: Path) -> None:
    """torch.compile traces through the exchanged code; then the call is not recorded, as it is compiled."""
    program = """
import torch
from msprobe.pytorch import PrecisionDebugger
def compute(x): return torch.relu(x) * 2
debugger = PrecisionDebugger(dump_path="dump")
debugger.register_custom_api(__import__("__main__"), "compute")
debugger.start()
compiled = torch.compile(lambda x: compute(x) + 1, backend="eager", fullgraph=True)
assert compiled(torch.ones(2)).tolist() == [3, 3]
debugger.stop()
assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
debugger.step()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_exporting_in_the_window(tmp_path: Path, module: Any) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return compute(x) + 1

    def body(debugger: PrecisionDebugger) -> None:
        debugger.register_custom_api(module, "compute")
        exported = torch.export.export(Net(), (torch.ones(2),), strict=True)
        assert exported.module()(torch.ones(2)).tolist() == [3, 3]

    recorded(tmp_path, body)


# --- wrong arguments ------------------------------------------------------------------------------------------------------------------
async def later(x: torch.Tensor) -> torch.Tensor:
    return x


def generated(x: torch.Tensor) -> Any:
    yield x


HERE = sys.modules[__name__]


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ((torch, "nope"), ["module torch has no attribute 'nope'"]),
        ((torch, "add", 3), ["api_prefix is 3", "allowed: text"]),
        ((torch, "add", ""), ["api_prefix is ''"]),
        ((torch, "add", "Module.x"), ["'Module.x'", "names that begin with Module or Cell"]),
        (("torch", "add"), ["the text 'torch' has no attribute 'add'"]),
        ((torch, 3), ["api is 3"]),
        ((torch, ""), ["api is ''"]),
        ((HERE, "Cls"), ["Cls is a class", "one of its methods"]),
        ((HERE, "X"), ["X is Tensor, not a function"]),
        ((Cls, "number"), ["number is property"]),
        ((Base, "counted"), ["counted is partialmethod"]),
        ((HERE, "later"), ["coroutine or generator"]),
        ((HERE, "generated"), ["coroutine or generator"]),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[Any, ...], texts: list[str]) -> None:
    debugger = configured(tmp_path)
    with pytest.raises(UsageError) as caught:
        debugger.register_custom_api(*arguments)
    assert all(text in str(caught.value) for text in texts) and str(caught.value).startswith("register_custom_api(")
    assert custom_api._registered == {}


def test_restoring(tmp_path: Path) -> None:
    debugger = configured(tmp_path)
    debugger.restore_custom_api(torch, "sub")
    with pytest.raises(UsageError, match="torch has no attribute 'nope'"):
        debugger.restore_custom_api(torch, "nope")
    with pytest.raises(UsageError):
        debugger.restore_custom_api(torch, 3)  # type: ignore[arg-type]


def test_without_a_debugger() -> None:
    with pytest.raises(UsageError, match="no PrecisionDebugger yet"):
        PrecisionDebugger.register_custom_api(torch, "add")


def test_an_attribute_that_is_gone_when_the_window_opens(tmp_path: Path, module: Any, told: list[str]) -> None:
    def body(debugger: PrecisionDebugger) -> None:
        torch.tanh(X)

    debugger = configured(tmp_path)
    debugger.register_custom_api(module, "compute")
    del module.compute
    debugger.start()
    body(debugger)
    debugger.stop()
    debugger.step()
    assert len([line for line in told if "module_a.compute" in line]) == 1
    assert Run(tmp_path / "dump").step().names == ["Torch.tanh.0.forward"]


# --- custom_wrap_ops.yaml -------------------------------------------------------------------------------------------------------------
def ops(directory: Path, **texts: str) -> str:
    place = directory / "ops"
    place.mkdir()
    for name, text in texts.items():
        (place / f"{name}_wrap_ops.yaml").write_text(text)
    return str(place)


def test_functions_from_the_file(tmp_path: Path, module: Any, told: list[str]) -> None:
    directory = ops(tmp_path, custom="module_a:\n  - compute\n  - scale\n  - comput\n  - X\nnot_there.yet:\n  - f\n")
    module.X = X
    debugger = configured(tmp_path, ops_dir=directory, risk_level="ALL")
    for n in range(2):
        debugger.start()
        compute(X)
        module.scale(X)
        sys.modules["not_there.yet"].f(X) if n else None
        debugger.stop()
        late = types.ModuleType("not_there.yet")
        late.f = lambda x: x * 7  # type: ignore[attr-defined]
        sys.modules.setdefault("not_there.yet", late)
    debugger.step()
    del sys.modules["not_there.yet"]
    assert list(Run(tmp_path / "dump").step().forward()) == [
        "module_a.compute.0.forward",
        "module_a.scale.0.forward",
        "module_a.compute.1.forward",
        "module_a.scale.1.forward",
        "not_there.yet.f.0.forward",
    ]
    assert sorted(line.partition(" is not recorded: ")[2] for line in told if "is not recorded" in line) == [
        "X is Tensor, not a function",
        "module module_a has no comput; did you mean compute?",
        "no module not_there.yet has been imported when recording starts",
    ]


# --- packages -------------------------------------------------------------------------------------------------------------------------
def package(monkeypatch: pytest.MonkeyPatch, path: str, source: str = "", **values: Any) -> Any:
    """A module made of text, so that its functions are its own."""
    made = types.ModuleType(path)
    vars(made).update(values)
    exec(compile(source, f"{path}.py", "exec"), vars(made))
    monkeypatch.setitem(sys.modules, path, made)
    return made


@pytest.fixture
def operators() -> Iterator[Any]:
    library = torch.library.Library("msprobe_npu", "DEF")
    library.define("npu_swiglu(Tensor x) -> Tensor")
    library.impl("npu_swiglu", lambda x: x * 2, "CompositeImplicitAutograd")
    yield torch.ops.msprobe_npu
    library._destroy()


def test_torch_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operators: Any) -> None:
    source = "import torch\ndef npu_rotary_mul(x, r): return torch.mul(x, r)\ndef get_npu_format(x): return 2\nclass npu_class: pass\n"
    npu = package(monkeypatch, "torch_npu", source, npu_swiglu=operators.npu_swiglu, npu_len=operator.length_hint)
    before = dict(vars(npu))
    use = npu.npu_rotary_mul

    def body() -> None:
        use(X, X).sum().backward()
        npu.npu_swiglu(X)
        operators.npu_swiglu.default(X)
        npu.npu_len([1])
        npu.get_npu_format(X)

    step = record(tmp_path, body)
    assert [name for name in step.forward() if not name.startswith("Tensor.sum")] == [
        "NPU.npu_rotary_mul.0.forward",
        "NPU.npu_swiglu.0.forward",
        "NPU.npu_swiglu.1.forward",
        "NPU.npu_len.0.forward",
    ]
    assert [slot["Max"] for slot in step.data["NPU.npu_rotary_mul.0.backward"]["output"]] == [4.0, 4.0]
    assert dict(vars(npu)) == before


def test_a_package_that_is_not_loaded_is_not_imported(tmp_path: Path) -> None:
    before = set(sys.modules)
    record(tmp_path, lambda: torch.tanh(X))
    assert {name for name in set(sys.modules) - before if name.startswith(("torch_npu", "mindspeed", "triton"))} == set()


def test_risk_levels_keep_fused_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npu = package(monkeypatch, "torch_npu", "def npu_format_cast(x): return x\n")
    step = record(tmp_path, lambda: (npu.npu_format_cast(X), X.view(2)), risk_level="CORE")
    assert list(step.forward()) == ["NPU.npu_format_cast.0.forward"]


def test_mindspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, "mindspeed")
    package(monkeypatch, "mindspeed.ops")
    gmm = package(
        monkeypatch, "mindspeed.ops.gmm", "import torch\ndef npu_gmm(x, w): return torch.matmul(x, w)\ndef _helper(x): return x\n"
    )
    rope = package(monkeypatch, "mindspeed.ops.rope", "from mindspeed.ops.gmm import npu_gmm\ndef rope(x): return npu_gmm(x, x)\n")
    other = package(monkeypatch, "mindspeed.core", "def not_an_operator(x): return x\n")
    y = torch.ones(2, 2)

    def body() -> None:
        rope.npu_gmm(y, y)  # bound to another name before the window opened
        gmm._helper(y)
        rope.rope(y)
        other.not_an_operator(y)

    assert list(record(tmp_path, body).forward()) == [
        "MindSpeed.gmm.npu_gmm.0.forward",
        "MindSpeed.rope.rope.0.forward",
    ]


TRITON = """
class KernelInterface:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

class JITFunction(KernelInterface):
    def __init__(self, fn):
        self.fn, self.__name__ = fn, fn.__name__
    def run(self, *args, grid, warmup, **kwargs):
        return warmup or self.fn(*args, **kwargs)
"""
AUTOTUNER = """
from triton.runtime.jit import KernelInterface
class Autotuner(KernelInterface):
    def __init__(self, fn):
        self.fn = fn
    def run(self, *args, **kwargs):
        return self.fn.run(*args, **kwargs)
"""


def test_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, "triton")
    package(monkeypatch, "triton.runtime")
    jit = package(monkeypatch, "triton.runtime.jit", TRITON)
    tuner = package(monkeypatch, "triton.runtime.autotuner", AUTOTUNER)

    def add_kernel(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, BLOCK: int) -> str:
        out.copy_(x + y)
        return "compiled"

    kernel = jit.JITFunction(add_kernel)
    tuned = tuner.Autotuner(kernel)
    run = jit.JITFunction.run
    code = run.__code__
    out = torch.zeros(2)
    x = X.detach().requires_grad_()

    def body() -> None:
        assert kernel.run(x.detach(), X.detach(), out, grid=(1,), warmup=True) is True
        with torch.no_grad():
            assert kernel[(4,)](x, X, out, BLOCK=64) == "compiled"
            tuned[lambda meta: (1,)](x, X, out, BLOCK=64)
        assert torch.is_grad_enabled()
        loose = torch.zeros(2)
        kernel[(4,)](x.detach(), X.detach().requires_grad_(), loose, BLOCK=64)
        assert torch.is_grad_enabled() and loose.requires_grad

    step = record(tmp_path, body)
    assert step.names == [f"Triton.add_kernel.{n}.forward" for n in range(3)]
    entry = step.data["Triton.add_kernel.0.forward"]
    assert len(entry["input_args"]) == 3 and list(entry["input_kwargs"]) == ["grid", "BLOCK"]
    assert entry["input_args"][2]["Max"] == 0.0 and entry["output"][2]["Max"] == 4.0
    assert len(entry["output"]) == 5 and entry["output"][4] == {"type": "int", "value": 64}
    assert jit.JITFunction.run is run and run.__code__ is code


def test_kernels_that_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, "triton")
    jit = package(monkeypatch, "triton.runtime.jit", TRITON)
    kernels = [jit.JITFunction(types.FunctionType((lambda x: None).__code__, {}, name)) for name in ("add_kernel", "mul_kernel")]
    directory = ops(tmp_path, support="triton: [add_*]")
    step = record(tmp_path, lambda: [kernel[(1,)](torch.ones(1)) for kernel in kernels], ops_dir=directory)
    assert step.names == ["Triton.add_kernel.0.forward"]


# --- the program's own module ---------------------------------------------------------------------------------------------------------
def test_the_program_itself(tmp_path: Path) -> None:
    """Functions of __main__, methods of its classes, in a program of its own; afterwards everything is what it was."""
    ops(tmp_path, custom="__main__: [add_and_mul]")
    program = """
import inspect, torch
from msprobe.pytorch import PrecisionDebugger
def add_and_mul(a, b, c):
    "calculates (a + b) * c"
    return (a + b) * c
code = add_and_mul.__code__
debugger = PrecisionDebugger(dump_path="dump")
x = torch.ones(2, requires_grad=True)
for _ in range(2):
    debugger.start()
    add_and_mul(x, x, c=2).sum().backward()
    debugger.stop()
    debugger.step()
assert add_and_mul.__code__ is code and str(inspect.signature(add_and_mul)) == "(a, b, c)"
"""
    done = subprocess.run(
        [*warm_python.command(), "-c", program],
        cwd=tmp_path,
        env={**environment(), "MSPROBE_OPS_DIR": "ops"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "dump")
    for n in (0, 1):
        assert list(run.step(n).forward()) == ["__main__.add_and_mul.0.forward", "Tensor.sum.0.forward"]
        assert [slot["Max"] for slot in run.step(n).data["__main__.add_and_mul.0.backward"]["output"]] == [4.0, 4.0]


def test_watching_takes_itself_off_when_it_cannot_be_switched_on(told: list[str]) -> None:
    class Fixed:
        __slots__ = ()

        def __call__(self, x: Any) -> Any:
            return x

        @property
        def method(self) -> Any:
            return len

    one = watching.Watch(Fixed(), "method", lambda original: lambda args, kwargs: original(*args, **kwargs))
    assert watching.switched_on(one, "Fixed.method") is False
    assert len(told) == 1 and told[0].startswith("Fixed.method cannot be watched")
