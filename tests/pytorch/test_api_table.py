"""Every function of torch that can be watched is watched, or there is a written reason; every function has exactly one name."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import GetSetDescriptorType
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import yaml
from capturing import record

from msprobe.pytorch.dump.api_dump import api_table, mode
from msprobe.pytorch.dump.api_dump.api_table import PREFIXES, ApiTable, read_operations
from msprobe.pytorch.dump.api_dump.operation_files import OPERATORS as OF_EXTENSIONS
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.recording.calls import ThreadState

pytestmark = pytest.mark.filterwarnings("ignore")

HOMES: dict[str, Any] = {"functional": torch.nn.functional, "_VF": torch._VF, "torch": torch, "tensor": torch.Tensor}
OF_NAMES = ("_update_names", "align_as", "align_to", "has_names", "refine_names", "rename", "rename_")
# Names that some of the versions from 2.13 on have not: tolerated.
ELSEWHERE = {"torch.linalg.matrix_sqrth", "torch.linalg.polar", *(f"tensor.{name}" for name in OF_NAMES)}
NEWEST = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


@pytest.fixture(scope="module")
def operations() -> dict[str, list[str]]:
    return read_operations()


@pytest.fixture(scope="module")
def table(operations: dict[str, list[str]]) -> ApiTable:
    return ApiTable(operations)


@pytest.fixture(scope="module")
def unwatched() -> dict[str, dict[str, list[str]]]:
    text = resources.files("msprobe.pytorch.dump.api_dump").joinpath("unwatched_ops.yaml").read_text(encoding="utf-8")
    return {category: reasons or {} for category, reasons in yaml.safe_load(text).items()}


def find(category: str, name: str) -> Any:
    found = HOMES[category]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def is_property(function: Any) -> bool:
    """The read of an attribute: `x.shape`."""
    return getattr(function, "__name__", "") == "__get__" or isinstance(function, property | GetSetDescriptorType)


def test_every_overridable_function_is_accounted_for(table: ApiTable, unwatched: dict[str, dict[str, list[str]]]) -> None:
    """Watched; or listed as unwatched with a reason; or transparent (`2 / x`); or, by rule, the read of an attribute."""
    listed = {id(find(category, name)) for category, reasons in unwatched.items() for names in reasons.values() for name in names}
    missing = []
    for home, functions in torch.overrides.get_overridable_functions().items():
        for function in functions:
            if function in table.by_function or is_property(function) or id(function) in listed or function in mode._TRANSPARENT:
                continue
            if inspect.unwrap(function) in torch.overrides.get_ignored_functions():  # dynamo wraps torch.manual_seed when it is imported
                continue
            missing.append(f"{getattr(home, '__name__', home)}: {torch.overrides.resolve_name(function)}")
    assert missing == []


def test_nothing_is_both_watched_and_unwatched(table: ApiTable, unwatched: dict[str, dict[str, list[str]]]) -> None:
    both = [
        f"{category}.{name}"
        for category, reasons in unwatched.items()
        for names in reasons.values()
        for name in names
        if find(category, name) in table.by_function
    ]
    assert both == []


def test_unwatched_functions_exist_and_stand_once(unwatched: dict[str, dict[str, list[str]]]) -> None:
    for category, reasons in unwatched.items():
        names = [name for group in reasons.values() for name in group]
        assert len(names) == len(set(names))
        if NEWEST:
            assert [name for name in names if find(category, name) is None and f"{category}.{name}" not in ELSEWHERE] == []


@pytest.mark.skipif(not NEWEST, reason="the list is of the newest torch")
@pytest.mark.parametrize("category", ["functional", "_VF", "torch", "tensor"])
def test_watched_functions_exist(operations: dict[str, list[str]], category: str) -> None:
    assert [name for name in operations[category] if find(category, name) is None and f"{category}.{name}" not in ELSEWHERE] == []


def test_no_name_stands_twice(operations: dict[str, list[str]]) -> None:
    for category, names in operations.items():
        assert category in (*PREFIXES, OF_EXTENSIONS)
        assert len(names) == len(set(names)), category


# Callables that two categories list, under the name they have: the first of Functional, VF, Torch, Tensor.
SHARED = {
    "Functional": """adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
        conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist pixel_shuffle
        pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_ alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout_ conv_tbc""",
}


def test_every_callable_has_one_name(table: ApiTable, operations: dict[str, list[str]]) -> None:
    """One object under two spellings has the name of the first category that lists it, and there the plain one (`abs` is `__abs__`)."""
    spellings: dict[int, list[str]] = {}
    functions: dict[int, Any] = {}
    for category in ("functional", "_VF", "torch", "tensor"):
        for name in operations[category]:
            function = find(category, name)
            if function is not None:
                spellings.setdefault(id(function), []).append(f"{PREFIXES[category]}.{name}")
                functions[id(function)] = function
    for key, names in spellings.items():
        names.sort(key=lambda name: (["Functional", "VF", "Torch", "Tensor"].index(name.split(".")[0]), ".__" in name))
        if functions[key] in table.by_function:
            assert table.by_function[functions[key]].full == names[0]
    shared = {names[0]: names[1:] for names in spellings.values() if len(names) > 1}
    by_category = {name for name in shared if name.split(".", 1)[1] != shared[name][0].split(".", 1)[1]}
    known = set(SHARED["Functional"].split())
    assert {name for name in shared if name.startswith("Functional.")} <= {f"Functional.{name}" for name in known}
    # Within one category, two spellings of one function (`multiply` and `mul` are two functions, these are not).
    assert all(len(shared[name]) == 1 for name in by_category)


@pytest.mark.parametrize("name", ["relu_", "conv1d", "conv2d", "prelu", "cosine_similarity", "celu_", "pixel_shuffle"])
def test_shared_callables(table: ApiTable, name: str) -> None:
    assert getattr(F, name) is getattr(torch, name)
    assert table.by_function[getattr(F, name)].full == f"Functional.{name}"


def test_functions_of_the_same_name_stay_apart(table: ApiTable) -> None:
    assert table.by_function[torch.linalg.norm].full == "Torch.linalg.norm" and table.by_function[torch.norm].full == "Torch.norm"
    assert table.by_function[torch.relu].full == "Torch.relu" and table.by_function[F.relu].full == "Functional.relu"
    assert table.by_function[torch.Tensor.relu].full == "Tensor.relu"


def test_a_line_deleted_leaves_a_function_out(operations: dict[str, list[str]]) -> None:
    shorter = {**operations, "functional": [n for n in operations["functional"] if n != "relu"], "aten": []}
    table = ApiTable(shorter)
    assert F.relu not in table.by_function and torch.relu in table.by_function
    assert table.operator(torch.ops.aten.add) is None


def test_a_name_that_torch_does_not_have_is_passed_over(operations: dict[str, list[str]]) -> None:
    table = ApiTable({**operations, "torch": [*operations["torch"], "no_such_function", "linalg.no_such_function"]})
    assert all("no_such" not in api.full for api in table.by_function.values())


def test_aten_operators(table: ApiTable) -> None:
    for function in (torch.ops.aten.add, torch.ops.aten.add.Tensor):
        api = table.operator(function)
        assert api is not None and api.full == "Aten.add"
    assert table.operator(torch.ops.prim.device) is None
    assert table.operator(torch.add) is None and table.operator("text") is None


def test_initializers_are_recorded_as_the_method_inside(table: ApiTable) -> None:
    assert {name: table.by_function[getattr(nn.init, name)].full for name in api_table._INIT} == {
        "normal_": "Tensor.normal_",
        "uniform_": "Tensor.uniform_",
        "constant_": "Tensor.fill_",
    }


# --- operators -----------------------------------------------------------------------------------------------------------------------
X = torch.tensor([3.0, 5.0])
N = torch.tensor([6, 3])
B = torch.tensor([True, False])


def changed(name: str, left: torch.Tensor, right: Any) -> Callable[[], Any]:
    return lambda: getattr(operator, name)(left.clone(), right)


OPERATORS: dict[str, Callable[[], Any]] = {
    "__add__": lambda: X + X,
    "__radd__": lambda: 1 + X,
    "__iadd__": changed("iadd", X, 1),
    "__sub__": lambda: X - 1,
    "__rsub__": lambda: 1 - X,
    "__isub__": changed("isub", X, X),
    "__mul__": lambda: X * X,
    "__rmul__": lambda: 2 * X,
    "__imul__": changed("imul", X, 2),
    "__truediv__": lambda: X / 2,
    "__itruediv__": changed("itruediv", X, 2),
    "__floordiv__": lambda: X // 2,
    "__rfloordiv__": lambda: 7 // X,
    "__ifloordiv__": changed("ifloordiv", X, 2),
    "__mod__": lambda: X % 2,
    "__rmod__": lambda: 2 % X,
    "__imod__": changed("imod", X, 2),
    "__pow__": lambda: X**2,
    "__rpow__": lambda: 2**X,
    "__ipow__": changed("ipow", X, 2),
    "__matmul__": lambda: X @ X,
    "__rmatmul__": lambda: X.__rmatmul__(X),
    "__and__": lambda: N & N,
    "__rand__": lambda: 1 & N,
    "__iand__": changed("iand", N, 1),
    "__or__": lambda: N | N,
    "__ror__": lambda: 1 | N,
    "__ior__": changed("ior", N, 1),
    "__xor__": lambda: N ^ N,
    "__rxor__": lambda: 1 ^ N,
    "__ixor__": changed("ixor", N, 1),
    "__lshift__": lambda: N << 1,
    "__rlshift__": lambda: 1 << N,
    "__ilshift__": changed("ilshift", N, 1),
    "__rshift__": lambda: N >> 1,
    "__rrshift__": lambda: 64 >> N,
    "__irshift__": changed("irshift", N, 1),
    "__eq__": lambda: X == X,
    "__ne__": lambda: X != 1,
    "__lt__": lambda: X < 1,
    "__le__": lambda: X <= X,
    "__gt__": lambda: X > 1,
    "__ge__": lambda: X >= X,
    "__neg__": lambda: -X,
    "__pos__": lambda: +X,
    "__abs__": lambda: abs(X),
    "__invert__": lambda: ~B,
    "__getitem__": lambda: X[0],
    "__setitem__": lambda: X.clone().__setitem__(0, 1.0),
    "__bool__": lambda: bool(B[0]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_named_as_they_are_spelled(tmp_path: Path, name: str) -> None:
    expected = OPERATORS[name]()
    results: list[Any] = []
    step = record(tmp_path, lambda: results.append(OPERATORS[name]()))
    assert f"Tensor.{name}.0.forward" in step.data, step.names
    others = [n for n in step.data if n.startswith("Tensor.") and name not in n and "__getitem__" not in n and "clone" not in n]
    assert others == []
    assert results[0] is expected is None or torch.equal(torch.as_tensor(results[0]), torch.as_tensor(expected))


def test_a_reflected_operator_shows_both_operands_in_the_order_of_the_call(tmp_path: Path) -> None:
    entry = record(tmp_path, lambda: 1 - X).only("__rsub__")
    assert entry["input_args"][0]["shape"] == [2] and entry["input_args"][1] == {"type": "int", "value": 1}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: X.add(X), "Tensor.add"),
        (lambda: torch.add(X, X), "Torch.add"),
        (lambda: X.__add__(X), "Tensor.__add__"),
        (lambda: torch.Tensor.add(X, X), "Tensor.add"),
        (lambda: torch._C.TensorBase.add(X, X), "Tensor.add"),
        (lambda: operator.add(X, X), "Tensor.__add__"),
        (lambda: sum([X, X]), "Tensor.__radd__"),
        (lambda: X.neg(), "Tensor.neg"),
        (lambda: X.abs(), "Tensor.abs"),
        (lambda: X.positive(), "Tensor.positive"),
        (lambda: X.add_(1), "Tensor.add_"),
        (lambda: X.lt(1), "Tensor.lt"),
        (lambda: X.pow(2), "Tensor.pow"),
        (lambda: X.floor_divide(2), "Tensor.floor_divide"),
        (lambda: X.remainder(2), "Tensor.remainder"),
        (lambda: X.true_divide(2), "Tensor.true_divide"),
        (lambda: X.multiply(2), "Tensor.multiply"),
        (lambda: X.subtract(2), "Tensor.subtract"),
        (lambda: B.logical_not(), "Tensor.logical_not"),
        (lambda: N.bitwise_not(), "Tensor.bitwise_not"),
        (lambda: N.bitwise_and(N), "Tensor.bitwise_and"),
        (lambda: torch.neg(X), "Torch.neg"),
        (lambda: X.sub(1), "Tensor.sub"),
        (lambda: X.div(2), "Tensor.div"),
        (lambda: X.eq(1), "Tensor.eq"),
        (lambda: X.matmul(X), "Tensor.matmul"),
        (lambda: torch.sigmoid(X), "Torch.sigmoid"),
        (lambda: F.sigmoid(X), "Functional.sigmoid"),
        (lambda: X.sigmoid(), "Tensor.sigmoid"),
        (lambda: F.tanh(X), "Functional.tanh"),
        (lambda: nn.Tanh()(X), "Torch.tanh"),
        (lambda: nn.Sigmoid()(X), "Torch.sigmoid"),
        (lambda: torch.ops.aten.mul(X, 2), "Aten.mul"),
        (lambda: torch.special.expit(X), "Torch.special.expit"),
        (lambda: torch.fft.fft(X), "Torch.fft.fft"),
        (lambda: torch.linalg.norm(X), "Torch.linalg.norm"),
        (lambda: F.max_pool1d(X[None], 2, return_indices=True), "Functional.max_pool1d"),
        (lambda: F.max_pool1d_with_indices(X[None], 2), "Functional.max_pool1d_with_indices"),
        (lambda: nn.LSTM(2, 2)(X[None, None]), "VF.lstm"),
    ],
)
def test_each_spelling_has_its_name(tmp_path: Path, call: Callable[[], Any], name: str) -> None:
    step = record(tmp_path, call)
    found = [n.rsplit(".", 2)[0] for n in step.data if "Tensor.uniform_" not in n and "__getitem__" not in n]
    assert found == (["Tensor.__radd__", "Tensor.__add__"] if name == "Tensor.__radd__" else [name])


def test_inner_calls_stay_inside(tmp_path: Path) -> None:
    """Only the outermost API is recorded."""
    step = record(tmp_path, lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1])))
    assert [n for n in step.data if "ones" not in n] == ["Functional.cross_entropy.0.forward"]


def test_reads_of_attributes_are_no_calls(tmp_path: Path) -> None:
    step = record(tmp_path, lambda: (X.shape, X.T, X.dtype, X.real, X.grad, X.is_leaf, X.size(), X.dim(), len(X), X.numel(), repr(X)))
    assert step.data == {}


# --- spelling ------------------------------------------------------------------------------------------------------------------------
def test_the_class_is_as_before_afterwards() -> None:
    before = list(vars(torch.Tensor).items())
    spelling = OperatorSpelling(ThreadState())
    spelling.on()
    assert all(vars(torch.Tensor)[name] is not dict(before).get(name) for name in ("__add__", "__radd__", "__truediv__", "__neg__"))
    assert all(vars(torch.Tensor).get(name) is dict(before).get(name) for name in ("__eq__", "__and__", "__getitem__", "__bool__"))
    spelling.off()
    after = list(vars(torch.Tensor).items())
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(a is b for (_, a), (_, b) in zip(before, after, strict=True))


def test_spellings_nest_and_end_with_their_call() -> None:
    state = ThreadState()
    spelling = OperatorSpelling(state)
    spelling.on()
    try:
        with pytest.raises(TypeError):
            X + "a"  # type: ignore[operator]
        assert state.spelling is None
        assert torch.equal(X + 1, torch.add(X, 1)) and state.spelling is None
        assert (X == "a") is False and (X != "a") is True and state.spelling is None
        with pytest.raises(RuntimeError):
            X @ torch.ones(3)
        assert state.spelling is None
    finally:
        spelling.off()


def test_a_method_that_somebody_else_put_there_stays() -> None:
    state = ThreadState()
    spelling = OperatorSpelling(state)
    original = vars(torch.Tensor).get("__add__")
    spelling.on()
    mine = lambda self, other: torch.add(self, other)
    torch.Tensor.__add__ = mine  # type: ignore[assignment,method-assign]
    try:
        spelling.off()
        assert vars(torch.Tensor)["__add__"] is mine
    finally:
        if original is None:
            del torch.Tensor.__add__
        else:
            torch.Tensor.__add__ = original  # type: ignore[method-assign]


def test_a_method_that_was_put_there_after_the_debugger_was_made_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    spelling = OperatorSpelling(ThreadState())
    original = torch.Tensor.__matmul__
    twice = lambda self, other: original(self, other) * 2
    monkeypatch.setattr(torch.Tensor, "__matmul__", twice)
    plain = torch.ones(2, 2) @ torch.ones(2, 2)
    spelling.on()
    try:
        assert torch.equal(torch.ones(2, 2) @ torch.ones(2, 2), plain)
    finally:
        spelling.off()
    assert vars(torch.Tensor)["__matmul__"] is twice


class Reflecting:
    def __radd__(self, other: Any) -> str:
        return "reflected"

    def __array_priority__(self) -> int:
        return 0


def test_python_s_own_rules_of_operators_hold(tmp_path: Path) -> None:
    """A tensor that cannot add gives way to the other operand, as without the tool."""
    plain = X.__add__(Reflecting()) if hasattr(X, "__add__") else None
    found: list[Any] = []
    record(tmp_path, lambda: found.append((X + Reflecting(), X.__add__(Reflecting()), X == "a", X != "a")))  # type: ignore[operator]
    assert found == [("reflected", plain, False, True)] and plain is NotImplemented
