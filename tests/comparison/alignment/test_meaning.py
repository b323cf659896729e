from __future__ import annotations

import pytest

from msprobe.comparison.alignment import meaning as module
from msprobe.comparison.alignment.meaning import meaning


@pytest.mark.parametrize(
    "names",
    [
        "Tensor.__add__ Tensor.__radd__ Tensor.__iadd__ Tensor.add Tensor.add_ Torch.add",
        "Tensor.__truediv__ Tensor.div Torch.div Torch.true_divide Tensor.divide",
        "Tensor.__matmul__ Tensor.matmul Torch.matmul Torch.linalg.matmul",
        "Functional.relu Torch.relu Tensor.relu Functional.relu_ Torch.relu_",
        "Functional.softmax Torch.softmax Tensor.softmax",
        "Torch.norm Torch.linalg.norm Tensor.norm",
        "Functional.pad",
    ],
)
def test_names_of_one_meaning(names: str) -> None:
    assert len({meaning(name) for name in names.split()}) == 1


@pytest.mark.parametrize("one, other", [("Tensor.add", "Tensor.sub"), ("NPU.add", "Torch.add"), ("Tensor.where", "Torch.where")])
def test_names_of_two_meanings(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


def test_the_table_names_functions_that_exist() -> None:
    torch = pytest.importorskip("torch")
    places = [torch, torch.Tensor, torch.nn.functional]
    for name in module._SAME:
        assert any(hasattr(place, name) for place in places), name
    for name in module._REFLECTED:
        assert hasattr(torch.Tensor, f"__r{name}__"), name
    for operator in module._OPERATORS:
        assert hasattr(torch.Tensor, f"__{operator}__"), operator
    for name in module._OTHER_NAMES:
        assert any(hasattr(place, name) for place in places), name
