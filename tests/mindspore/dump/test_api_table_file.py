"""The file of watched functions: well formed, without what computes nothing. Needs no MindSpore."""

from __future__ import annotations

from pathlib import Path

import yaml

import msprobe

FILE = Path(msprobe.__file__).parent / "mindspore" / "dump" / "api_dump" / "support_wrap_ops.yaml"
NAMES: dict[str, list[str]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


def test_namespaces() -> None:
    assert list(NAMES) == ["ops", "mint", "mint.nn.functional", "Tensor", "mint.distributed", "communication.comm_func"]


def test_each_name_once_and_in_order() -> None:
    for listed in NAMES.values():
        assert listed == sorted(set(listed))


def test_what_computes_nothing_is_left_out() -> None:
    assert not {"rank", "shape", "size", "grad", "value_and_grad", "vmap", "print_"} & set(NAMES["ops"])
    assert not {"asnumpy", "shape", "item", "register_hook", "dim"} & set(NAMES["Tensor"])


def test_what_people_call_is_there() -> None:
    assert {"relu", "matmul", "cross_entropy", "tanh"} <= set(NAMES["ops"])
    assert {"add", "matmul", "linalg.norm", "special.expm1"} <= set(NAMES["mint"])
    assert {"relu", "linear", "softmax"} <= set(NAMES["mint.nn.functional"])
    assert {"__add__", "__rmul__", "__matmul__", "__getitem__", "__setitem__", "add_", "sum"} <= set(NAMES["Tensor"])
    assert {"all_reduce", "isend"} <= set(NAMES["mint.distributed"])
