"""What MindSpore calls otherwise than PyTorch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml

import msprobe
from msprobe.comparison.frameworks.dtypes import TORCH
from msprobe.comparison.frameworks.equivalents import equivalents
from msprobe.comparison.names import Parser, parse
from msprobe.numerics.dtypes import DTYPES

SOURCE = Path(msprobe.__file__).parent
ROOTS = {"Torch": torch, "Functional": torch.nn.functional, "Tensor": torch.Tensor, "Distributed": torch.distributed}


@pytest.mark.parametrize(
    ("name", "base", "api"),
    [
        ("Cell.fc.Dense.forward.0", "Module.fc.Linear", ""),
        ("Cell.blocks.0.SequentialCell.backward.1", "Module.blocks.0.Sequential", ""),
        ("Cell.fc.Dense.parameters_grad.0", "Module.fc.Linear", ""),
        ("Cell.norm.LayerNormExt.forward.0", "Module.norm.LayerNorm", ""),
        ("Cell.mine.MyCell.forward.0", "Module.mine.MyCell", ""),
        ("Cell.MyCell.forward.0", "Module.MyCell", ""),
        ("Mint.add.0.forward", "Torch.add", "add"),
        ("Mint.special.erfc.0.forward", "Torch.special.erfc", "special.erfc"),
        ("MintFunctional.relu.2.backward", "Functional.relu", "relu"),
        ("MintFunctional.flatten.2.backward", "Torch.flatten", "flatten"),
        ("MintDistributed.all_reduce.0.forward", "Distributed.all_reduce", "all_reduce"),
        ("Distributed.gather_into_tensor.0.forward", "Distributed.gather", "gather"),
        ("Functional.relu.0.forward", "Functional.relu", "relu"),
        ("Functional.add.0.forward", "Torch.add", "add"),
        ("Functional.expand_dims.0.forward", "Torch.unsqueeze", "unsqueeze"),
        ("Functional.transpose.0.forward", "Torch.permute", "permute"),
        ("Functional.gather.0.forward", "Torch.index_select", "index_select"),
        ("Functional.never_heard_of.0.forward", "Functional.never_heard_of", "never_heard_of"),
        ("Tensor.__add__.0.forward", "Tensor.__add__", "__add__"),
        ("Tensor.astype.0.forward", "Tensor.to", "to"),
        ("Primitive.matmul.MatMul.0.forward", "Torch.matmul", "matmul"),
        ("Primitive.mine.MyOwn.0.forward", "Primitive.mine.MyOwn", "mine.MyOwn"),
        ("Jit.construct.0.forward", "Jit.construct", "construct"),
    ],
)
def test_names_in_pytorch(name: str, base: str, api: str) -> None:
    found = parse(name, "mindspore")
    assert (found.base, found.api) == (base, api)
    kept = parse(name, "mindspore").recorded
    assert kept and (kept in name)
    assert Parser("mindspore")(name) == Parser("mindspore")(name) == found


@pytest.mark.parametrize("name", ["Functional.gather.0.forward", "Torch.transpose.0.forward", "Module.fc.Dense.forward.0", "x.0.debug"])
def test_pytorch_keeps_its_names(name: str) -> None:
    for framework in ("pytorch", None):
        found = parse(name, framework)
        assert found.own == "" and found.recorded == found.base
        assert found.base in name


def test_a_cell_is_known_without_its_framework() -> None:
    assert parse("Cell.fc.Dense.forward.0") == parse("Cell.fc.Dense.forward.0", "mindspore")


def test_every_name_on_the_right_is_one_of_pytorch() -> None:
    table = equivalents()
    for names in table.apis.values():
        for there in names.values():
            prefix, _, api = there.partition(".")
            found = ROOTS[prefix]
            for part in api.split("."):
                if prefix == "Distributed" and not torch.distributed.is_available():
                    continue
                found = getattr(found, part)
            assert callable(found), there
    for there in table.classes.values():
        assert issubclass(getattr(torch.nn, there), torch.nn.Module)


def test_nothing_stands_twice() -> None:
    text = (SOURCE / "comparison/frameworks/equivalents.yaml").read_text(encoding="utf-8")
    for names in yaml.safe_load(text)["apis"].values():
        listed = [*names, *names.get("same_in_functional", []), *names.get("same_in_torch", [])]
        assert not [name for name, count in Counter(listed).items() if count > 1]


def test_most_watched_functions_have_a_counterpart() -> None:
    watched = yaml.safe_load((SOURCE / "mindspore/dump/api_dump/support_wrap_ops.yaml").read_text(encoding="utf-8"))
    known = equivalents().apis["Functional"]
    assert sum(name in known for name in watched["ops"]) > 500


@pytest.mark.parametrize(
    ("own", "there"),
    [
        ("Float32", "torch.float32"),
        ("BFloat16", "torch.bfloat16"),
        ("Float16", "torch.float16"),
        ("Int8", "torch.int8"),
        ("UInt16", "torch.uint16"),
        ("Bool", "torch.bool"),
        ("Complex64", "torch.complex64"),
        ("Float8E4M3FN", "torch.float8_e4m3fn"),
        ("Float8E5M2", "torch.float8_e5m2"),
    ],
)
def test_dtypes(own: str, there: str) -> None:
    assert TORCH[own] == there and there.removeprefix("torch.") in DTYPES
