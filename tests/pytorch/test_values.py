"""Values that are no tensors, in every place a call has: positional, keyword, nested, as a result. Nothing raises, the JSON is valid."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from against_golden import differences
from capturing import Step, forget_debugger, golden, limited, record, statistics
from odd_values import Data, Holder, Pair, Plain, sample_arguments

pytestmark = pytest.mark.filterwarnings("ignore")

# Labels of args_stat whose records differ by intent -> why.
DIFFERENT = {
    **dict.fromkeys(("torch.uint16", "torch.uint32", "torch.uint64", "complex32"), "F10: the reference crashed here"),
    "f16_overflow": "F19: half precision overflows there",
    **dict.fromkeys(("dtype", "device", "device_idx", "kw", "kwdev"), "F23: positional dtype and device are {} there, `cpu` is `cpu:None`"),
    "kwdtype_tensor": "F23: a tensor under the keyword `dtype` becomes text there",
    "ndbool": "Mean and Norm of bool mean nothing, as for tensors",
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> our entry of a module that was called with the sample's values."""
    values = sample_arguments()
    model = Holder()

    def body() -> None:
        for args, kwargs in values.values():
            model.probe(*args, **kwargs)

    data = record(tmp_path_factory.mktemp("args_stat"), body, model=model, level="L0").data
    return {label: data[f"Module.probe.Probe.forward.{i}"] for i, label in enumerate(values)}


def test_the_sample_args_stat(sample: dict[str, dict[str, Any]]) -> None:
    reference = golden("args_stat")
    wrong = {}
    for label, ours in sample.items():
        theirs = reference["steps"]["0"]["data"][f"My.probe.{reference['names'][label]}.forward"]
        found = [text for side in ("input_args", "input_kwargs") for text in differences(theirs[side], ours[side], side, True)]
        if found:
            wrong[label] = found
    assert set(wrong) == set(DIFFERENT), {label: text for label, text in wrong.items() if label not in DIFFERENT}


def test_where_the_sample_is_wrong(sample: dict[str, dict[str, Any]]) -> None:
    assert sample["dtype"]["input_args"] == [{"type": "torch.dtype", "value": "torch.float16"}]
    assert sample["device"]["input_args"] == [{"type": "torch.device", "value": "cpu"}]
    assert sample["device_idx"]["input_args"] == [{"type": "torch.device", "value": "cuda:1"}]
    assert sample["kwdev"]["input_kwargs"] == {"device": {"type": "torch.device", "value": "cpu"}}
    assert sample["kwdtype_tensor"]["input_kwargs"]["dtype"]["shape"] == [1]
    assert sample["torch.uint64"]["input_args"][0]["dtype"] == "torch.uint64" and sample["torch.uint64"]["input_args"][0]["Max"] == 120
    assert sample["complex32"]["input_args"][0]["Max"] == 5.0
    assert sample["kw"]["input_kwargs"] == {
        "dtype": {"type": "torch.dtype", "value": "torch.float16"},
        "device": {"type": "torch.device", "value": "cpu"},
        "device2": {"type": "torch.device", "value": "cpu"},
        "output_dtype": {"type": "torch.dtype", "value": "torch.int8"},
    }


def recorded(directory: Path, *values: Any, level: str = "L0", **config: Any) -> tuple[list[Any], Step]:
    """Records of values given by position; the same values are also given by keyword, nested, and come back as the result."""
    model = Holder()
    model.probe.result = tuple(values)

    def body() -> None:
        model.probe(*values)
        model.probe(**{f"k{i}": value for i, value in enumerate(values)})
        model.probe(list(values), {f"k{i}": value for i, value in enumerate(values)})

    step = record(directory, body, model=model, level=level, **config)
    positional = step.data["Module.probe.Probe.forward.0"]
    by_keyword = step.data["Module.probe.Probe.forward.1"]
    nested = step.data["Module.probe.Probe.forward.2"]
    found = positional["input_args"]
    as_text = plain_text(found)
    assert plain_text(list(by_keyword["input_kwargs"].values())) == as_text
    assert plain_text(nested["input_args"][0]) == as_text and plain_text(list(nested["input_args"][1].values())) == as_text
    assert plain_text(positional["output"]) == as_text
    return found, step


def plain_text(record: Any) -> str:
    """A record as text (NaN is not equal to itself), without the names of files."""
    return re.sub(r", 'data_name': '[^']*'", "", repr(record))


class Color(enum.IntEnum):
    RED = 7


class Named(enum.Enum):
    A = "a"


class MyFloat(float):
    pass


class MyText(str):
    pass


def test_numbers_and_text(tmp_path: Path) -> None:
    values = [
        Color.RED,
        2**70,
        -(2**64),
        MyFloat(1.5),
        MyText("t"),
        1.0,
        -0.0,
        math.inf,
        1e308,
        5e-324,
        0.1 + 0.2,
        True,
        "",
        '\0\n"\\é中😀',
    ]
    found, _ = recorded(tmp_path, *values)
    assert [r["type"] for r in found] == ["Color", "int", "int", "MyFloat", "MyText", *["float"] * 6, "bool", "str", "str"]
    assert [r["value"] for r in found] == [7, *values[1:]]
    assert math.copysign(1, found[6]["value"]) == -1


def test_complex_numbers_keep_their_value(tmp_path: Path) -> None:
    (found,), _ = recorded(tmp_path, 1 + 2j)
    assert found["type"] == "complex" and complex(found["value"]) == 1 + 2j


def test_an_integer_with_thousands_of_digits(tmp_path: Path) -> None:
    (huge, after), _ = recorded(tmp_path, 10**5000, 3)
    assert after == {"type": "int", "value": 3}
    assert huge is None or huge["type"] == "int"


def test_text_that_is_no_text(tmp_path: Path) -> None:
    """A lone surrogate, as file names in another encoding have."""
    (found, after), _ = recorded(tmp_path, "a\ud800b", 3)
    assert after == {"type": "int", "value": 3}
    assert found["type"] == "str" and found["value"][0] == "a"


def test_megabytes_of_text(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    (found,), _ = recorded(tmp_path, text)
    assert found["value"] == text


WITHOUT_A_RECORD = [
    b"ab",
    bytearray(b"ab"),
    memoryview(b"ab"),
    {1, 2},
    frozenset((1,)),
    range(3),
    len,
    lambda: None,
    Plain,
    Plain(),
    Named.A,
    decimal.Decimal("1.5"),
    fractions.Fraction(1, 3),
    datetime.date(2020, 1, 1),
    Path("x"),
    torch.strided,
    torch.finfo(torch.float32),
    types.SimpleNamespace(a=1),
    NotImplemented,
    Data,
]


def test_what_has_no_record_is_null(tmp_path: Path) -> None:
    found, _ = recorded(tmp_path, *WITHOUT_A_RECORD)
    assert found == [None] * len(WITHOUT_A_RECORD)


def test_torch_kinds(tmp_path: Path) -> None:
    values = (torch.Size([2, 0]), torch.Size([]), torch.channels_last_3d, torch.preserve_format, torch.float8_e5m2, torch.device("meta"))
    found, _ = recorded(tmp_path, *values)
    assert found == [
        {"type": "torch.Size", "value": [2, 0]},
        {"type": "torch.Size", "value": []},
        {"type": "torch.memory_format", "format": "channels_last_3d"},
        {"type": "torch.memory_format", "format": "preserve_format"},
        {"type": "torch.dtype", "value": "torch.float8_e5m2"},
        {"type": "torch.device", "value": "meta"},
    ]


def test_slices(tmp_path: Path) -> None:
    values = (slice(None), slice(torch.tensor(1), np.int64(4)), slice(1.5, "a"), slice(torch.ones(3), Raising()))
    found, _ = recorded(tmp_path, *values)
    assert [r["type"] for r in found] == ["slice"] * 4
    assert found[0]["value"] == [None, None, None] and found[1]["value"] == [1, 4, None]


def test_a_device_by_number_or_text(tmp_path: Path) -> None:
    model = Holder()
    step = record(tmp_path, lambda: model.probe(device=1, dtype=None, output_dtype="half"), model=model, level="L0")
    assert step.only("forward")["input_kwargs"] == {
        "device": {"type": "torch.device", "value": 1},
        "dtype": None,
        "output_dtype": {"type": "torch.dtype", "value": "half"},
    }


def test_numpy_scalars(tmp_path: Path) -> None:
    values = [np.float16(1.5), np.float64(2.5), np.uint64(2**64 - 1), np.bool_(False), np.str_("s"), np.longdouble(0.5), np.float32("nan")]
    found, _ = recorded(tmp_path, *values)
    assert [r["type"] for r in found] == ["float16", "float64", "uint64", "bool", "str_", np.longdouble(0).__class__.__name__, "float32"]
    assert [r["value"] for r in found[:5]] == [1.5, 2.5, 2**64 - 1, False, "s"] and float(found[5]["value"]) == 0.5
    assert math.isnan(found[6]["value"])
    (tmp_path / "others").mkdir()
    forget_debugger()
    found, _ = recorded(tmp_path / "others", np.complex64(1 + 2j), np.datetime64("2020-01-01"), np.void(b"ab"), np.bytes_(b"ab"))
    assert found[0]["type"] == "complex64" and complex(found[0]["value"]) == 1 + 2j
    assert len(found) == 4


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "float16": np.array([1.5, -2.0], dtype=np.float16),
    "float64": np.arange(6.0).reshape(2, 3) - 2,
    "int8": np.array([-128, 127], dtype=np.int8),
    "uint64": np.array([2**64 - 1, 0], dtype=np.uint64),
    "0-d": np.array(2.5),
    "big endian": np.array([1.0, 2.0], dtype=">f4"),
    "backwards": np.arange(5.0)[::-2],
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
    "read only": np.frombuffer(np.arange(3.0).tobytes()),
    "matrix": np.matrix([[1.0, 2.0]]),
    "with nan": np.array([1.0, math.nan]),
    "with inf": np.array([1.0, math.inf]),
    "complex": np.array([3 + 4j, 0]),
}


@pytest.mark.parametrize("label", ARRAYS)
def test_numpy_arrays_have_numbers(tmp_path: Path, label: str) -> None:
    array = ARRAYS[label]
    (found,), _ = recorded(tmp_path, array)
    assert list(found) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm"]
    assert found["type"] == "numpy.ndarray" and found["dtype"] == str(array.dtype) and found["shape"] == list(array.shape)
    plain = np.abs(np.asarray(array)) if array.dtype.kind == "c" else np.asarray(array)
    wide = plain.astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = (plain.max().item(), plain.min().item(), wide.mean().item(), math.sqrt((wide**2).sum().item()))
    assert all(
        math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b)) for a, b in zip(statistics(found), expected, strict=True)
    )
    assert type(found["Max"]) is (int if array.dtype.kind in "iu" else float)


def holding_a_raising_object() -> np.ndarray[Any, Any]:
    array = np.empty(1, dtype=object)
    array[0] = Raising()
    return array


def test_numpy_arrays_without_numbers(tmp_path: Path) -> None:
    arrays = [
        np.array(["a", "b"]),
        np.array([1, "a", None], dtype=object),
        holding_a_raising_object(),
        np.zeros((0, 2)),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        np.array([b"ab"]),
    ]
    found, _ = recorded(tmp_path, *arrays)
    assert [statistics(r) for r in found] == [(None,) * 4] * len(arrays)
    assert [r["shape"] for r in found] == [list(a.shape) for a in arrays]


def test_masked_arrays(tmp_path: Path) -> None:
    (found,), _ = recorded(tmp_path, np.ma.masked_array([1.0, 99.0], mask=[False, True]))
    assert found["type"] == "numpy.ndarray" and found["shape"] == [2]


def test_dataclasses_and_named_tuples(tmp_path: Path) -> None:
    T = torch.ones(2)
    found, _ = recorded(tmp_path, Data(T, 5), Pair(T, None), Data([T], {"k": T}))  # type: ignore[arg-type]
    tensor = found[0]["x"]
    assert tensor["shape"] == [2]
    assert found == [
        {"x": tensor, "y": {"type": "int", "value": 5}},
        {"a": tensor, "b": None},
        {"x": [tensor], "y": {"k": tensor}},
    ]


def test_a_named_tuple_as_result_is_one_element(tmp_path: Path) -> None:
    model = Holder()
    model.probe.result = Pair(torch.ones(1), 2)
    step = record(tmp_path, lambda: model.probe(), model=model, level="L0")
    (output,) = step.only("forward")["output"]
    assert list(output) == ["a", "b"]


@pytest.mark.parametrize(
    ("result", "shape"),
    [(None, [None]), ((), []), ([], [[]]), ({}, [{}]), ((None, None), [None, None]), (([1],), [[{"type": "int", "value": 1}]])],
    ids=repr,
)
def test_the_shape_of_results(tmp_path: Path, result: Any, shape: Any) -> None:
    """A tuple is spread, a list is not, everything else is one element."""
    model = Holder()
    model.probe.result = result
    step = record(tmp_path, lambda: model.probe(), model=model, level="L0")
    assert step.only("forward")["output"] == shape


def test_results_with_names_of_torch(tmp_path: Path) -> None:
    x = torch.rand(3, 4, requires_grad=True)
    step = record(tmp_path, lambda: (x.max(1).values.sum() + torch.topk(x, 2, 1)[0].sum()).backward())
    assert [r["dtype"] for r in step.only("Tensor.max.0.forward")["output"]] == ["torch.float32", "torch.int64"]
    assert [r["shape"] for r in step.only("Torch.topk.0.forward")["output"]] == [[3, 2], [3, 2]]
    assert [r["shape"] for r in step.only("Tensor.max.0.backward")["output"]] == [[3, 4]]


def test_model_outputs_of_transformers(tmp_path: Path) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    value = outputs.BaseModelOutputWithPast(last_hidden_state=torch.ones(2), hidden_states=(torch.ones(1), torch.ones(3)))
    (found,), _ = recorded(tmp_path, value)
    assert list(found) == ["last_hidden_state", "hidden_states"]
    assert [r["shape"] for r in found["hidden_states"]] == [[1], [3]]


class Raising:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"do not look at {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    def __hash__(self) -> int:
        raise RuntimeError("do not hash")

    def __repr__(self) -> str:
        raise RuntimeError("do not show")

    __str__ = __repr__

    def __len__(self) -> int:
        raise RuntimeError("do not measure")

    def __iter__(self) -> Any:
        raise RuntimeError("do not iterate")

    def __bool__(self) -> bool:
        raise RuntimeError("do not judge")

    def __int__(self) -> int:
        raise RuntimeError("do not convert")

    __index__ = __float__ = __int__


class LyingClass:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("who am I")


class RaisingList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError("do not iterate")


class RaisingDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("do not iterate")


class RaisingText(str):
    def __str__(self) -> str:
        raise RuntimeError("do not show")


class RaisingNumber(int):
    def __int__(self) -> int:
        raise RuntimeError("do not convert")


class RaisingKey:
    def __str__(self) -> str:
        raise RuntimeError("do not show")


class Exiting:
    """Not even an Exception."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(3)


@dataclasses.dataclass
class RaisingFields:
    y: int = 3

    @property
    def x(self) -> Any:
        raise RuntimeError("not yet")


RaisingFields.__dataclass_fields__ = {"x": dataclasses.fields(Data)[0], **RaisingFields.__dataclass_fields__}  # type: ignore[attr-defined]


class RaisingMapping(collections.abc.Mapping):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Any:
        return iter(("a",))

    def __len__(self) -> int:
        return 1


HOSTILE = [Raising, LyingClass, lambda: RaisingList([1]), lambda: RaisingDict(a=1), lambda: RaisingText("t"), lambda: RaisingNumber(3)]
HOSTILE += [lambda: {RaisingKey(): 1}, RaisingFields, RaisingMapping, Exiting]


@pytest.mark.parametrize("make", HOSTILE)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_objects_that_raise_stay_where_they_are(tmp_path: Path, make: Any, task: str) -> None:
    """The training goes on, and what stands beside such an object is recorded."""
    tensor = torch.ones(2)
    found, _ = recorded(tmp_path, make(), tensor, 3, task=task)
    assert found[1]["shape"] == [2] and found[2] == {"type": "int", "value": 3}


def test_fields_that_raise_do_not_take_the_others_along(tmp_path: Path) -> None:
    (found,), _ = recorded(tmp_path, RaisingFields())
    assert found == {"x": None, "y": {"type": "int", "value": 3}}


@pytest.mark.parametrize("make", HOSTILE)
def test_objects_that_raise_given_to_apis(tmp_path: Path, make: Any) -> None:
    """torch refuses them; the error is torch's own, and later calls are recorded."""
    x = torch.rand(2, 2)
    hostile = make()

    def calls() -> list[str]:
        seen = []
        for call in (lambda: F.softmax(x, hostile), lambda: F.mse_loss(hostile, x), lambda: torch.add(x, hostile), lambda: x.norm(hostile)):
            try:
                call()
                seen.append("fine")
            except BaseException as error:
                seen.append(type(error).__name__)
        return seen

    plainly = calls()
    watched: list[str] = []
    step = record(tmp_path, lambda: (watched.extend(calls()), torch.relu(x)))
    assert watched == plainly
    assert "Torch.relu.0.forward" in step.data


def test_keys_of_every_kind(tmp_path: Path) -> None:
    value = {
        1: "int",
        None: "none",
        (1, "a"): "tuple",
        2.5: "float",
        False: "bool",
        b"k": "bytes",
        Color.RED: "enum",
        "": "empty",
        "é\n": "text",
    }
    (found,), _ = recorded(tmp_path, value)
    assert len(found) == len(value) and all(r["type"] == "str" for r in found.values())


def test_keys_that_are_written_alike_lose_nothing(tmp_path: Path) -> None:
    (found,), _ = recorded(tmp_path, {1: "int", "1": "text"})
    assert sorted(r["value"] for r in found.values()) == ["int", "text"]


def test_generators_and_iterators_are_not_consumed(tmp_path: Path) -> None:
    generator, iterator = (i for i in range(3)), iter([1, 2])
    found, _ = recorded(tmp_path, generator, iterator, zip([1], [2], strict=True), open(__file__))  # noqa: SIM115
    assert found == [None] * 4
    assert list(generator) == [0, 1, 2] and list(iterator) == [1, 2]


def test_mappings_of_every_kind(tmp_path: Path) -> None:
    default = collections.defaultdict(list, a=1)
    values = (
        default,
        collections.OrderedDict(a=1),
        collections.UserDict(a=1),
        types.MappingProxyType({"a": 1}),
        collections.ChainMap({"a": 1}),
    )
    found, _ = recorded(tmp_path, *values)
    assert found == [{"a": {"type": "int", "value": 1}}] * len(values)
    assert list(default) == ["a"]


def deep(levels: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(levels):
        value = [value]
    return value


def test_deep_lists(tmp_path: Path) -> None:
    model = Holder()
    step = record(tmp_path, lambda: model.probe(deep(100), deep(2000), 3), model=model, level="L0")
    found = step.only("forward")["input_args"]
    level = found[0]
    for _ in range(100):
        (level,) = level
    assert level == [{"type": "int", "value": 1}]
    assert found[2] == {"type": "int", "value": 3}
    assert "nested deeper" in step.errors or "could not be recorded" in step.errors


def test_deep_lists_near_the_end_of_the_stack(tmp_path: Path) -> None:
    """The user's own recursion leaves us little room: the value may be cut, the call goes on."""
    model = Holder()

    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
        else:
            model.probe(deep(300), torch.ones(1))

    def frames() -> int:
        frame, count = sys._getframe(), 0
        while frame is not None:
            frame, count = frame.f_back, count + 1  # type: ignore[assignment]
        return count

    step = record(tmp_path, lambda: descend(sys.getrecursionlimit() - frames() - 120), model=model, level="L0")
    assert len(step.data) <= 1


@dataclasses.dataclass(eq=False)
class Linked:
    value: int
    before: Any = None
    after: Any = None


def chain(length: int) -> Linked:
    """A doubly linked list: every node is reached again from its neighbours."""
    nodes = [Linked(i) for i in range(length)]
    for a, b in itertools.pairwise(nodes):
        a.after, b.before = b, a
    return nodes[0]


def itself() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def itself_twice() -> dict[str, Any]:
    value: dict[str, Any] = {"n": 1}
    value["a"] = value["b"] = value
    return value


def ladder() -> list[Any]:
    """Not circular, but with 2**60 ways down."""
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "make", [itself, itself_twice, lambda: chain(3), lambda: chain(100), ladder], ids=["once", "twice", "chain", "long chain", "ladder"]
)
def test_values_that_contain_themselves(tmp_path: Path, make: Any) -> None:
    model = Holder()
    with limited(20):
        step = record(tmp_path, lambda: model.probe(make(), 3), model=model, level="L0")
    found = step.only("forward")["input_args"]
    assert found[1] == {"type": "int", "value": 3}
    assert step.errors != ""
    assert (step.directory / "dump.json").stat().st_size < 6_000_000


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_modules_with_odd_arguments_train(tmp_path: Path, level: str) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor, **kwargs: Any) -> dict[Any, Any]:
            return {"y": self.fc(x), 0: kwargs["odd"], ("a",): itself()}

    model = nn.Sequential(Odd())
    x = torch.ones(1, 2, requires_grad=True)
    odd = {"raising": Raising(), "list": RaisingList(), "itself": itself()}
    step = record(tmp_path, lambda: model[0](x, odd=odd)["y"].sum().backward(), model=model, level=level)
    assert torch.equal(x.grad, model[0].fc.weight.sum(0, keepdim=True))
    assert any(".backward" in name for name in step.data)
