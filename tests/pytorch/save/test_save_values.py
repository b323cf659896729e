"""What may be saved: everything, as it is at the time of the call."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
from capturing import statistics
from debug_json import debugger_for, save

from msprobe.numerics.checksum import checksum, xor_checksum

NAN, INF = float("nan"), float("inf")
TENSORS: dict[str, tuple[Callable[[], torch.Tensor], tuple[Any, ...]]] = {
    "0-d": (lambda: torch.tensor(-3.0), (-3.0, -3.0, -3.0, 3.0)),
    "empty": (lambda: torch.empty(0, 3), (None,) * 4),
    "nan": (lambda: torch.tensor([1.0, NAN]), (NAN,) * 4),
    "inf": (lambda: torch.tensor([1.0, -INF]), (1.0, -INF, -INF, INF)),
    "int64": (lambda: torch.tensor([1, 2**62 + 1]), (2**62 + 1, 1, (2**62 + 2) / 2, float(2**62))),
    "bool": (lambda: torch.tensor([True, False]), (True, False, None, None)),
    "float8": (lambda: torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn), (1.0, -2.0, -0.5, 5**0.5)),
    "bfloat16": (lambda: torch.tensor([1.0, 3.0], dtype=torch.bfloat16), (3.0, 1.0, 2.0, 10**0.5)),
    "float16": (lambda: torch.full((100,), 60000.0, dtype=torch.float16), (60000.0, 60000.0, 60000.0, 600000.0)),
    "not contiguous": (lambda: torch.arange(6.0).reshape(2, 3).t()[1:], (5.0, 1.0, 3.0, 46**0.5)),
    "expanded": (lambda: torch.ones(1, 1).expand(3, 4), (1.0, 1.0, 1.0, 12**0.5)),
    "view": (lambda: torch.arange(10.0)[3:5], (4.0, 3.0, 3.5, 5.0)),
    "sparse": (lambda: torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse(), (2.0, 0.0, 0.5, 2.0)),
    "conjugate": (lambda: torch.tensor([1 + 2j]).conj().imag, (-2.0, -2.0, -2.0, 2.0)),
}


def same(a: Any, b: Any) -> bool:
    return (a is None and b is None) or (a is not None and a == pytest.approx(b, rel=1e-12, nan_ok=True))


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("async_dump", [False, True])
@pytest.mark.parametrize("kind", TENSORS)
def test_kinds_of_tensors(kind: str, task: str, async_dump: bool, tmp_path: Path) -> None:
    make, expected = TENSORS[kind]
    tensor = make()
    step = save(tmp_path, lambda debugger: debugger.save([tensor], "t"), task=task, async_dump=async_dump)
    (record,) = step.data["t.0.debug"]
    assert all(map(same, statistics(record), expected)), statistics(record)
    assert step.data["t_grad.0.debug"] == [None]
    assert record["dtype"] == str(tensor.dtype) and record["shape"] == list(tensor.shape)
    assert step.files == (["t.0.debug.0.pt"] if task == "tensor" and tensor.numel() else [])
    if step.files and kind != "nan":
        dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
        assert step.values(record) == dense.tolist()
    assert step.errors == ""


def test_tensors_without_values(tmp_path: Path) -> None:
    step = save(tmp_path, lambda debugger: debugger.save({"m": torch.empty(2, device="meta"), "t": torch.ones(1)}, "v"), task="tensor")
    record = step.data["v.0.debug"]
    assert record["m"]["shape"] == [2] and statistics(record["m"]) == (None,) * 4
    assert step.files == ["v.0.debug.t.pt"]
    assert step.errors == "v.0.debug: m: a meta tensor has no values\n"


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


Point = namedtuple("Point", ["x", "y"])


def test_kinds_of_structures(tmp_path: Path) -> None:
    y = torch.ones(2, requires_grad=True) * 2
    value = {
        "dataclass": Pair(y, None), "named": Point(y, 3), "ordered": OrderedDict([(("a", 1), y)]), "array": np.arange(3),
        "number": np.float32(2), "size": y.shape, "dtype": torch.float16, "slice": slice(1, None), None: 1, 2.5: "text",
        "complex": 1j, "empty": {}, "tuple": (),
    }  # fmt: skip

    def body(debugger: Any) -> None:
        debugger.save(value, "v")
        y.sum().backward()

    step = save(tmp_path, body)
    record, gradient = step.data["v.0.debug"], step.data["v_grad.0.debug"]
    assert record["dataclass"]["left"]["Max"] == 2.0 and record["dataclass"]["right"] is None
    assert gradient["dataclass"]["left"]["Max"] == gradient["named"]["x"]["Max"] == gradient["ordered"]["('a', 1)"]["Max"] == 1.0
    assert record["array"]["type"] == "numpy.ndarray" and record["array"]["Max"] == 2
    assert record["None"] == {"type": "int", "value": 1} and record["2.5"] == {"type": "str", "value": "text"}
    assert record["complex"]["value"] == "1j" and record["empty"] == {} and record["tuple"] == []
    assert list(gradient) == list(record)
    assert all(gradient[key] is None for key in ("array", "number", "size", "dtype", "slice", "None", "complex"))
    assert step.errors == ""


def test_what_has_no_record_is_told(tmp_path: Path) -> None:
    """Its null is not to be taken for None."""

    def body(debugger: Any) -> None:
        debugger.save([{1, 2}, nn.Linear(1, 1), None], "v")
        debugger.save(object(), "o")

    step = save(tmp_path, body)
    assert step.data["v.0.debug"] == [None, None, None] and step.data["o.0.debug"] is None
    assert step.errors.splitlines() == [
        "v.0.debug: 0: a set is no kind of value that is recorded",
        "v.0.debug: 1: a Linear is no kind of value that is recorded",
        "o.0.debug: a object is no kind of value that is recorded",
    ]


class Hostile:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("asked")

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("asked")


class Odd(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_structures_that_cannot_be_walked(tmp_path: Path) -> None:
    inside: list[Any] = [torch.ones(1)]
    inside.append(inside)
    deep: Any = torch.ones(1)
    for _ in range(500):
        deep = [deep]

    def body(debugger: Any) -> None:
        debugger.save(inside, "inside")
        debugger.save(deep, "deep")
        debugger.save([Hostile(), Odd(), 1], "hostile")
        debugger.save(torch.ones(1), "after")

    step = save(tmp_path, body)
    assert step.data["inside.0.debug"][1] is None and step.data["inside_grad.0.debug"] == [None, None]
    assert step.data["hostile.0.debug"] == [None, {}, {"type": "int", "value": 1}]
    assert step.data["after.0.debug"]["Max"] == 1.0
    for text in (
        "inside.0.debug: 1: contains itself",
        "deep.0.debug: nested deeper",
        "hostile.0.debug: 0: a Hostile is no kind of value",
    ):
        assert text in step.errors


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_values_are_those_at_the_time_of_the_call(task: str, tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        changed, array, freed = torch.ones(1000), np.ones(3), torch.full((1000,), 7.0)
        structure = {"t": changed, "l": [1]}
        debugger.save(structure, "s")
        debugger.save(array, "a")
        debugger.save(freed, "f")
        changed.fill_(5.0)
        array[:] = 5
        structure["l"].append(2)
        structure["new"] = 1
        del freed
        torch.full((1000,), 9.0)

    step = save(tmp_path, body, task=task)
    assert step.data["s.0.debug"]["t"]["Max"] == 1.0 and len(step.data["s.0.debug"]["l"]) == 1 and "new" not in step.data["s.0.debug"]
    assert step.data["a.0.debug"]["Max"] == 1.0 and step.data["f.0.debug"]["Max"] == 7.0
    if task == "tensor":
        assert set(step.values(step.data["s.0.debug"]["t"])) == {1.0} and set(step.values(step.data["f.0.debug"])) == {7.0}


@pytest.mark.parametrize("where", ["no_grad", "inference_mode", "computed before"])
def test_without_gradients(where: str, tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 2
        with torch.inference_mode() if where == "inference_mode" else torch.no_grad():
            debugger.save(y if where == "computed before" else y * 2, "v")
        y.sum().backward()

    data = save(tmp_path, body).data
    assert data["v.0.debug"]["Max"] == (2.0 if where == "computed before" else 4.0)
    gradient = data["v_grad.0.debug"]
    assert gradient["Max"] == 1.0 if where == "computed before" else gradient is None


@pytest.mark.parametrize("async_dump", [False, True])
@pytest.mark.parametrize("mode", ["statistics", "md5", "xor"])
def test_summary_mode(mode: str, async_dump: bool, tmp_path: Path) -> None:
    if mode == "md5" and async_dump:
        return
    y = torch.ones(3, requires_grad=True) * 2

    def body(debugger: Any) -> None:
        debugger.save(y, "y")
        (y * 3).sum().backward()

    data = save(tmp_path, body, summary_mode=mode, async_dump=async_dump).data
    for record, value in ((data["y.0.debug"], y), (data["y_grad.0.debug"], torch.full((3,), 3.0))):
        assert record.get("Max") == (None if mode == "xor" else value[0].item())
        digest = {"statistics": None, "md5": checksum(value.detach()), "xor": xor_checksum(value.detach())}[mode]
        assert record.get("md5") == digest
        assert ("md5" in record) == (mode != "statistics")


def test_async_dump_of_tensors_needs_no_list(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 2
        debugger.save({"y": y}, "v")
        y.sum().backward()
        y.detach().zero_()

    step = save(tmp_path, body, task="tensor", async_dump=True)
    assert step.values(step.data["v.0.debug"]["y"]) == [2.0, 2.0] and step.values(step.data["v_grad.0.debug"]["y"]) == [1.0, 1.0]


def test_nothing_that_is_given_is_changed(tmp_path: Path) -> None:
    class Remembers:
        def __init__(self) -> None:
            self.value = torch.ones(1)

    debugger = debugger_for(tmp_path, task="tensor")
    inner, generator = [1, torch.ones(2)], (n for n in range(3))
    value = {"l": inner, 3: (inner,), "g": generator, "o": Remembers()}
    before = (list(value), list(map(id, value.values())), list(map(id, inner)))
    debugger.save(value, "v")
    debugger.step()
    assert (list(value), list(map(id, value.values())), list(map(id, inner))) == before
    assert list(generator) == [0, 1, 2]


def test_dtensor(tmp_path: Path) -> None:
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("torch is built without distributed")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))

        def body(debugger: Any) -> None:
            leaf = distribute_tensor(torch.ones(2, 2), mesh, [Replicate()]).requires_grad_()
            y = leaf * 3
            debugger.save([leaf, y], "d")
            y.sum().backward()

        step = save(tmp_path, body, task="tensor")
    finally:
        dist.destroy_process_group()
    assert step.directory.name == "rank0"
    assert [record["Max"] for record in step.data["d.0.debug"]] == [1.0, 3.0]
    assert [record["Max"] for record in step.data["d_grad.0.debug"]] == [3.0, 1.0]
    assert step.data["d.0.debug"][0]["type"] == "torch.distributed.tensor.DTensor"


class Unnamed(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("asked")


class OfUnnamed(metaclass=Unnamed):
    pass


class Endless(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        while True:
            yield 1.0


class Unmeasured(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise RuntimeError("no length")


def test_classes_that_hide_their_name_or_have_no_end(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        debugger.save([OfUnnamed(), 1], "unnamed")
        debugger.save(Endless([0, 0]), "endless")
        debugger.save(Unmeasured([1]), "unmeasured")

    step = save(tmp_path, body)
    assert step.data["unnamed.0.debug"] == [None, {"type": "int", "value": 1}]
    assert "unnamed.0.debug: 0: OfUnnamed could not be recorded: RuntimeError" in step.errors
    assert step.data["endless.0.debug"] == [{"type": "int", "value": 0}] * 2
    assert step.data["unmeasured.0.debug"] == [{"type": "int", "value": 1}]


def test_a_tensor_as_a_key_is_not_spelled_by_its_values(tmp_path: Path) -> None:
    """The state of an optimizer has parameters for keys."""
    weight = nn.Parameter(torch.rand(2))

    def body(debugger: Any) -> None:
        debugger.save({weight: {"step": 1}, torch.ones(1): 2, "Parameter#3": 3, nn.Parameter(torch.ones(1)): 4}, "state")

    assert list(save(tmp_path, body).data["state.0.debug"]) == ["Parameter#0", "Tensor#1", "Parameter#3", "Parameter#3#Parameter3"]
