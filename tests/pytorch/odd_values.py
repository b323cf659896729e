"""Values of every kind that a call may take or give."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any

import numpy as np
import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import FakeTensorMode

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Data:
    x: object
    y: int = 3


class Plain:
    pass


class Subclass(torch.Tensor):
    pass


FakeTensorMode()  # in torch 2.6 the first one imports torch._dynamo, which computes with tensors: not while a test records
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def sample_arguments() -> dict[str, Arguments]:
    """What the sample args_stat passes, by its labels."""
    made: dict[str, Arguments] = {}

    def value(label: str, *args: Any, **kwargs: Any) -> None:
        made[label] = (args, kwargs)

    tensor = torch.tensor
    base = tensor([1.5, -2.25, 3.0, 0.1])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2):
        value(str(dtype), base.to(dtype))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64):
        value(str(dtype), tensor([1, 2, 7, 120]).to(dtype))
    value("bool", tensor([True, False, True]))
    value("bool_all", tensor([True, True]))
    value("bool0d", tensor(True))
    value("complex64", tensor([1 + 1j, 3 - 4j]))
    value("complex32", tensor([1 + 1j, 3 - 4j]).to(torch.complex32))
    value("complex0d", tensor(3 + 4j))
    value("empty", torch.empty(0))
    value("empty2", torch.empty(2, 0, dtype=torch.int64))
    value("0d_f32", tensor(2.5))
    value("0d_f16", tensor(2.5).half())
    value("0d_i64", tensor(7))
    value("0d_neg", tensor(-2.5))
    value("nan", tensor([1.0, float("nan"), 2.0]))
    value("inf", tensor([1.0, float("inf"), -float("inf")]))
    value("nan0d", tensor(float("nan")))
    value("f16_overflow", torch.full((2000,), 60000.0, dtype=torch.float16))
    value("bf16_mean", torch.full((1000,), 1.01, dtype=torch.bfloat16))
    value("f16_norm_small", torch.full((4,), 1e-5, dtype=torch.float16))
    value("none", None)
    value("int", 3)
    value("bigint", 2**70)
    value("float", 1.5)
    value("floatnan", float("nan"))
    value("floatinf", float("inf"))
    value("str", "héllo")
    value("boolpy", True)
    value("bytes", b"ab")
    value("ellipsis", ...)
    value("slice", slice(1, None, 2))
    value("slice_tensor", slice(tensor(1), tensor(3)))
    value("slice_str", slice("a", "b"))
    value("dtype", torch.float16)
    value("device", torch.device("cpu"))
    value("device_idx", torch.device("cuda:1"))
    value("size", torch.Size([2, 3]))
    value("memfmt", torch.channels_last)
    value("layout", torch.strided)
    value("kw", dtype=torch.float16, device="cpu", device2=torch.device("cpu"), output_dtype=torch.int8)
    value("kwdev", device=torch.device("cpu"))
    value("kwdevidx", device=torch.device("cuda", 0))
    value("kwdevint", device=0)
    value("kwdevnone", device=None)
    value("kwdtypenone", dtype=None)
    value("kwdtype_tensor", dtype=tensor([1.0]))
    value("list", [tensor([1.0]), 2, [tensor([3.0]), None]])
    value("tuple", (tensor([1.0]), (2, "s")))
    value("dict", {"a": tensor([1.0]), "b": [tensor([2.0]), 3], 5: 6})
    value("namedtuple", Pair(tensor([1.0]), 2))
    value("dataclass", Data(tensor([1.0])))
    value("obj", Plain())
    value("set", {1, 2})
    value("range", range(3))
    value("func", len)
    value("cls", Plain)
    value("emptylist", [])
    value("emptydict", {})
    value("emptytuple", ())
    value("npf", np.float32(1.5))
    value("npi", np.int64(4))
    value("npb", np.bool_(True))
    value("nps", np.str_("abc"))
    value("ndarray", np.arange(6.0).reshape(2, 3))
    value("ndint", np.arange(4))
    value("ndbool", np.array([True, False]))
    value("ndstr", np.array(["a", "b"]))
    value("ndobj", np.array([1, "a", None], dtype=object))
    value("ndempty", np.zeros((0, 2)))
    value("nd3", np.ones((2, 2, 2)))
    value("quant", torch.quantize_per_tensor(base, 0.1, 0, torch.quint8))
    value("param", nn.Parameter(tensor([1.0, 2.0])))
    value("requires", tensor([1.0], requires_grad=True))
    value("noncontig", torch.arange(6.0).reshape(2, 3).t())
    value("expand", torch.ones(1, 3).expand(4, 3))
    value("meta", torch.empty(2, 3, device="meta"))
    with FakeTensorMode():
        fake = torch.empty(2, 2)
    value("fake", fake)
    value("nested_jag", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))
    value("deep", functools.reduce(lambda a, _: [a], range(50), 1))
    value("subclass", torch.ones(2).as_subclass(Subclass))
    value("gen", torch.Generator())
    value("module", nn.Linear(1, 1))
    value("emptystr", "")
    return made


class Probe(nn.Module):
    """Takes anything and gives `result`."""

    def __init__(self) -> None:
        super().__init__()
        self.result: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.result


class Holder(nn.Module):
    """What start() is given: the probe stands inside."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = Probe()
