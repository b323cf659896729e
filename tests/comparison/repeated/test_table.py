"""What torch says of the determinism of an operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.names import parse
from msprobe.comparison.repeated.runs import compare_runs
from msprobe.comparison.repeated.table import LISTED, listed
from msprobe.comparison.repeated.words import describe

from ..dumps import api, tensor, write_dump


@pytest.mark.parametrize(
    ("name", "raises"),
    [
        ("Tensor.index_add_.0.forward", False),
        ("Torch.index_add.3.forward", False),
        ("Tensor.scatter_add_.0.forward", False),
        ("Torch.cumsum.0.forward", True),
        ("Torch.bincount.0.forward", True),
        ("Functional.conv2d.0.forward", False),
        ("Functional.conv2d.0.backward", False),
        ("Functional.interpolate.0.backward", True),
        ("Tensor.__getitem__.0.backward", False),
    ],
)
def test_listed(name: str, raises: bool) -> None:
    found = listed(parse(name))
    assert found is not None and found.raises is raises


@pytest.mark.parametrize(
    "name", ["Torch.add.0.forward", "Functional.interpolate.0.forward", "Torch.index_add.0.backward", "Module.a.B.forward.0"]
)
def test_not_listed(name: str) -> None:
    assert listed(parse(name)) is None


def test_every_operation_stands_in_torchs_documentation() -> None:
    """The list is not made up: each name is in the text that torch carries, in one spelling or another."""
    torch = pytest.importorskip("torch")
    text = torch.use_deterministic_algorithms.__doc__.lower().replace("_", "")
    others = {"__getitem__": "getitem", "pad": "reflectionpad2d", "upsample": "interpolate"}
    missing = [name for name in LISTED if others.get(name, name).replace("_", "") not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "Torch.cumsum.0.forward",
            "torch lists Torch.cumsum as nondeterministic on a CUDA tensor, of floating-point or complex numbers; with",
        ),
        ("Torch.matmul.0.forward", "torch does not list this operation"),
        ("Module.fc.Linear.forward.0", "torch does not list this module"),
        ("Distributed.all_reduce.0.forward", "a communication adds up in the order in which the ranks arrive"),
    ],
)
def test_it_is_told(name: str, words: str, tmp_path: Path) -> None:
    for number in range(2):
        write_dump(tmp_path / str(number), {name: api([tensor()], [tensor(float(number))])})
    text = "\n".join(line.text for line in describe(compare_runs([tmp_path / "0", tmp_path / "1"]), []))
    assert words in text
