"""Tensors inside lists, tuples, dicts and dataclasses are replaced by the file of their path; the user's own objects stay as they are."""

from __future__ import annotations

import types
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import forget_debugger, parse
from overriding import TAKES, Around, given, overridden

from msprobe.pytorch import PrecisionDebugger

ZERO = torch.zeros(2)
ONE = torch.ones(2)
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Options:
    scale: torch.Tensor
    name: str = "x"
    hidden: int = field(default=3, init=False)


@dataclass(frozen=True)
class Frozen:
    __slots__ = ("a", "b")
    a: torch.Tensor
    b: int


class Stack(list):  # type: ignore[type-arg]
    note = None


def test_everything_by_its_path(tmp_path: Path) -> None:
    """The example of the document's names: `input.0.key2.1`."""
    tensors = {
        name: torch.full((2,), float(i)) for i, name in enumerate(("input.0.key2.1", "input.1.left.0", "kwargs.mask", "kwargs.ctx.0.a"))
    }
    structure = {"key1": 5, "key2": [None, ZERO]}
    pair = Pair((ZERO,), "text")
    ctx = [{"a": ZERO}, 7]
    inner = given(tmp_path, tensors, structure, pair, 3, mask=ZERO, ctx=ctx, flag=True)
    new, named, three = inner.args
    assert (new["key1"], new["key2"][0], three) == (5, None, 3)
    assert torch.equal(new["key2"][1], tensors["input.0.key2.1"])
    assert type(named) is Pair and type(named.left) is tuple and named.right == "text"
    assert torch.equal(named.left[0], tensors["input.1.left.0"])
    assert torch.equal(inner.kwargs["mask"], tensors["kwargs.mask"])
    assert torch.equal(inner.kwargs["ctx"][0]["a"], tensors["kwargs.ctx.0.a"])
    assert (inner.kwargs["ctx"][1], inner.kwargs["flag"]) == (7, True)
    assert structure["key2"][1] is ZERO and pair.left[0] is ZERO and ctx[0]["a"] is ZERO  # type: ignore[index]
    assert ZERO.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "path", "get"),
    [
        ([ZERO], "0", lambda v: v[0]),
        ((ZERO,), "0", lambda v: v[0]),
        ({"a": ZERO}, "a", lambda v: v["a"]),
        ({1: ZERO}, "1", lambda v: v[1]),
        ({("a", 1): ZERO}, "('a', 1)", lambda v: v[("a", 1)]),
        ({1: 5, "1": ZERO}, "1#str1", lambda v: v["1"]),
        (OrderedDict(a=ZERO), "a", lambda v: v["a"]),
        (defaultdict(list, a=ZERO), "a", lambda v: v["a"]),
        (UserDict(a=ZERO), "a", lambda v: v["a"]),
        (Pair(1, ZERO), "right", lambda v: v.right),
        (Options(ZERO), "scale", lambda v: v.scale),
        (Frozen(ZERO, 2), "a", lambda v: v.a),
        (Stack([ZERO]), "0", lambda v: v[0]),
        (torch.return_types.max((ZERO, torch.zeros(2, dtype=torch.int64))), "0", lambda v: v.values),
        (torch.nn.utils.rnn.PackedSequence(ZERO, torch.ones(2, dtype=torch.int64)), "data", lambda v: v.data),
        ([[[{"a": (ZERO,)}]]], "0.0.0.a.0", lambda v: v[0][0][0]["a"][0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_container(tmp_path: Path, value: Any, path: str, get: Any, log: list[str]) -> None:
    (found,) = given(tmp_path, {f"input.0.{path}": ONE}, value).args
    assert type(found) is type(value)
    assert found is not value
    assert torch.equal(get(found), ONE)
    assert torch.equal(get(value), torch.zeros(2))
    assert len(found) == len(value) if hasattr(value, "__len__") else True
    assert [line for line in log if "cannot be copied" in line] == []


def test_what_a_container_has_besides(tmp_path: Path) -> None:
    options, stack, counts = Options(ZERO, "mine"), Stack([ZERO]), defaultdict(int, a=ZERO)
    options.hidden, stack.note = 9, "kept"  # type: ignore[assignment]
    inner = given(tmp_path, {"input.0.scale": ONE, "input.1.0": ONE, "input.2.a": ONE}, options, stack, counts)
    new, other, third = inner.args
    assert (new.name, new.hidden, other.note, third["missing"]) == ("mine", 9, "kept", 0)
    assert "missing" not in counts


def test_without_a_file_the_same_object_is_passed(tmp_path: Path) -> None:
    values = [{"a": [ZERO]}, (ZERO, 1), Options(ZERO)]
    inner = given(tmp_path, {"input.3": ONE}, *values, ZERO)
    assert all(found is value for found, value in zip(inner.args, values, strict=False))
    assert torch.equal(inner.args[3], ONE)


def test_nothing_to_replace_at_all(tmp_path: Path) -> None:
    class Text(str):
        pass

    values = ["text", Text("t"), 3, None, 1.5, object(), range(3), {1, 2}, b"b", torch.Size([2]), torch.float32, [1, [2]]]
    inner = given(tmp_path, {"input.99": ONE}, *values)
    assert all(found is value for found, value in zip(inner.args, values, strict=True))


class ReadOnly(Mapping[str, Any]):
    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Refuses(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("frozen")


class Shares(dict):  # type: ignore[type-arg]
    """A copy of it is itself."""

    def __copy__(self) -> Shares:
        return self


@pytest.mark.parametrize(
    "value", [ReadOnly({"a": ZERO}), types.MappingProxyType({"a": ZERO}), Refuses(a=ZERO), Shares(a=ZERO)], ids=lambda v: type(v).__name__
)
def test_what_cannot_be_copied_is_left_alone_and_told(tmp_path: Path, value: Any, log: list[str]) -> None:
    inner = given(tmp_path, {"input.0.a": ONE, "input.1": ONE}, value, ZERO)
    assert inner.args[0] is value
    assert value["a"] is ZERO
    assert torch.equal(inner.args[1], ONE)
    told = f"WARNING [load] {TAKES}: a {type(value).__name__} among the arguments cannot be copied, so tensors inside it are not replaced"
    assert log.count(told) == 1


def test_a_list_in_itself(tmp_path: Path) -> None:
    value: list[Any] = [ZERO]
    value.append(value)
    (found,) = given(tmp_path, {"input.0.0": ONE}, value).args
    assert torch.equal(found[0], ONE)
    assert found[1] is value


def test_very_deep_lists(tmp_path: Path) -> None:
    value: Any = [ZERO]
    for _ in range(5000):
        value = [value]
    inner = given(tmp_path, {"input.1": ONE}, value, ZERO)
    assert inner.args[0] is value
    assert torch.equal(inner.args[1], ONE)


def test_a_model_output_of_transformers(tmp_path: Path) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    value = outputs.BaseModelOutput(last_hidden_state=ZERO, hidden_states=(ZERO, ZERO))
    (found,) = given(tmp_path, {"input.0.last_hidden_state": ONE, "input.0.hidden_states.1": ONE * 2}, value).args
    assert type(found) is type(value)
    assert torch.equal(found.last_hidden_state, ONE) and found.last_hidden_state is found["last_hidden_state"]
    assert torch.equal(found.hidden_states[1], ONE * 2) and found.hidden_states[0] is ZERO
    assert value.last_hidden_state is ZERO and value["last_hidden_state"] is ZERO


def test_the_files_that_the_recorder_wrote_for_odd_arguments(tmp_path: Path) -> None:
    """What was recorded is what is loaded, whatever the files are called."""

    def arguments(value: float) -> tuple[tuple[Any, ...], dict[str, Any]]:
        t = [torch.full((2,), value + i) for i in range(9)]
        odd = {"a/b": t[0], "é ": t[1], 1: t[2], "1": t[3], "x" * 300: t[4]}
        return (odd, Pair(t[5], [t[6]]), Options(t[7])), {"last": {"k": (t[8],)}}

    def values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[float]:
        odd, pair, options = args
        return [float(v[0]) for v in (*odd.values(), pair.left, pair.right[0], options.scale, kwargs["last"]["k"][0])]

    debugger = PrecisionDebugger(task="tensor", level="L0", dump_path=str(tmp_path / "source"))
    model = Around()
    debugger.start(model)
    args, kwargs = arguments(100)
    model(*args, **kwargs)
    debugger.stop()
    debugger.step()
    forget_debugger()
    (directory,) = (tmp_path / "source" / "step0").iterdir()
    assert len(parse(directory / "dump.json")["data"]) == 1
    args, kwargs = arguments(0)
    with overridden(tmp_path, [TAKES], model):
        model(*args, **kwargs)
    assert values(model.inner.args, model.inner.kwargs) == [100.0 + i for i in range(9)]  # type: ignore[union-attr,arg-type]
    assert values(args, kwargs) == [float(i) for i in range(9)]


def test_a_container_in_two_places_is_one_again(tmp_path: Path) -> None:
    x, y = torch.zeros(2), torch.zeros(3)
    shared = [x]
    files = {f"{role}.0": torch.ones(2) for role in ("input.0", "input.1", "kwargs.again")}
    files |= {"input.2.inside.0": torch.ones(2), "input.3.0": torch.ones(3), "input.4.0": torch.ones(3) + 1}
    other = [y]
    inner = given(tmp_path, files, shared, shared, {"inside": shared}, other, other, again=shared)
    first = inner.args[0]
    assert first[0].tolist() == [1, 1] and first is not shared and shared[0] is x
    assert inner.args[1] is first and inner.args[2]["inside"] is first and inner.kwargs["again"] is first
    assert inner.args[3] is not inner.args[4]  # the files differ
    assert (inner.args[3][0].tolist(), inner.args[4][0].tolist()) == ([1, 1, 1], [2, 2, 2])
