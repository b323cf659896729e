"""Max, Min, Mean and Norm of every kind of tensor, held against Python's own exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import record, statistics
from odd_values import Holder

pytestmark = pytest.mark.filterwarnings("ignore")

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SMALL_FLOATS = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
COMPUTED = [*FLOATS, *SMALL_FLOATS, *INTEGERS, *COMPLEX, torch.bool]
ALL = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
QUANTIZED = [d for d in ALL if str(d).removeprefix("torch.").startswith(("qint", "quint"))]
STRUCTURE_ONLY = [d for d in ALL if d not in COMPUTED and d not in QUANTIZED]


def exact(tensor: torch.Tensor) -> tuple[Any, Any, Any, Any]:
    """The four numbers of a plain tensor from its elements, one by one."""
    if tensor.dtype in (torch.complex32, *SMALL_FLOATS):
        tensor = tensor.to(torch.complex64 if tensor.dtype == torch.complex32 else torch.float32)
    elements = tensor.flatten().tolist()
    if not elements:
        return (None,) * 4
    if tensor.dtype == torch.bool:
        return any(elements), all(elements), None, None
    if tensor.is_complex():
        elements = [math.hypot(z.real, z.imag) if z == z else math.nan for z in elements]
    if any(isinstance(e, float) and math.isnan(e) for e in elements):
        return (math.nan,) * 4
    if all(math.isfinite(e) for e in elements):
        return max(elements), min(elements), math.fsum(elements) / len(elements), math.sqrt(math.fsum(float(e) ** 2 for e in elements))
    signs = {e > 0 for e in elements if math.isinf(e)}
    mean = math.nan if len(signs) == 2 else (math.inf if signs == {True} else -math.inf)
    return max(elements), min(elements), mean, math.inf


def same(found: tuple[Any, ...], expected: tuple[Any, ...], tolerance: float = 1e-12) -> bool:
    """Max and Min to the bit, Mean and Norm to rounding; kinds (bool, int, float, None) count."""
    for position, (a, b) in enumerate(zip(found, expected, strict=True)):
        if type(a) is not type(b):
            return False
        if isinstance(a, float):
            if math.isnan(a) != math.isnan(b) or (not math.isnan(a) and not math.isclose(a, b, rel_tol=tolerance if position > 1 else 0.0)):
                return False
        elif a != b:
            return False
    return True


def recorded(directory: Path, *tensors: torch.Tensor) -> tuple[list[dict[str, Any]], str]:
    """The records of tensors given to a module, and dump_error_info.log."""
    model = Holder()
    step = record(directory, lambda: model.probe(*tensors), model=model, level="L0")
    return step.only("forward")["input_args"], step.errors


def values_of(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    if dtype == torch.bool:
        return torch.rand(37, generator=generator) > 0.5
    if dtype in INTEGERS:
        low = 0 if str(dtype).startswith("torch.u") else -100
        return torch.randint(low, 100, (37,), generator=generator).to(dtype)
    if dtype in COMPLEX:
        return torch.complex(torch.randn(37, generator=generator), torch.randn(37, generator=generator)).to(dtype)
    values = torch.randn(37, generator=generator)
    return (values.abs() if dtype == getattr(torch, "float8_e8m0fnu", None) else values).to(dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t[:36].clone().reshape(4, 9),
    "one element": lambda t: t[3:4],
    "0-d": lambda t: t[3].clone(),
    "0-d of a view": lambda t: t[1:][2],
    "transposed": lambda t: t[:36].reshape(4, 9).t(),
    "with an offset": lambda t: t[5:30],
    "with steps": lambda t: t[::3],
    "expanded": lambda t: t[:3].reshape(1, 3).expand(5, 3),
    "overlapping windows": lambda t: t.as_strided((10, 4), (2, 1)),
    "diagonal": lambda t: t[:36].reshape(6, 6).diagonal(),
    "channels last": lambda t: t[:36].clone().reshape(1, 3, 3, 4).contiguous(memory_format=torch.channels_last),
    "five dimensions": lambda t: t[:36].reshape(1, 2, 3, 2, 3).permute(4, 2, 0, 3, 1),
    "empty": lambda t: t[:0],
    "empty with a shape": lambda t: t[:0].reshape(0, 3),
}


@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_every_dtype_in_every_layout(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = [make(values_of(dtype)) for make in LAYOUTS.values()]
    records, errors = recorded(tmp_path, *tensors)
    for label, tensor, found in zip(LAYOUTS, tensors, records, strict=True):
        assert same(statistics(found), exact(tensor)), (label, statistics(found), exact(tensor))
        assert list(found) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
        assert found["type"] == "torch.Tensor" and found["dtype"] == str(dtype) and found["shape"] == list(tensor.shape)
        assert found["requires_grad"] is False
    assert errors == ""


@pytest.mark.parametrize("dtype", STRUCTURE_ONLY, ids=str)
def test_dtypes_without_numbers_keep_their_structure(tmp_path: Path, dtype: torch.dtype) -> None:
    (found,), errors = recorded(tmp_path, torch.empty(2, 3, dtype=dtype))
    assert found["dtype"] == str(dtype) and found["shape"] == [2, 3] and statistics(found) == (None,) * 4
    assert str(dtype) in errors


@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
def test_quantized_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([1.5, -0.5, 0.75, 0.0])
    if dtype in (torch.qint8, torch.quint8, torch.qint32):
        tensor = torch.quantize_per_tensor(values, 0.25, 3, dtype)
    else:
        tensor = torch.empty(2, 3, dtype=dtype)
    (found,), errors = recorded(tmp_path, tensor)
    assert found["type"] == "torch.Tensor" and found["dtype"] == str(dtype) and found["shape"] == list(tensor.shape)
    if dtype in (torch.qint8, torch.quint8, torch.qint32):
        assert same(statistics(found), exact(tensor.dequantize())), found
        assert errors == ""
    else:
        assert statistics(found) == (None,) * 4 and errors != ""


def test_quantized_by_channel(tmp_path: Path) -> None:
    tensor = torch.quantize_per_channel(torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8)
    (found,), _ = recorded(tmp_path, tensor)
    assert same(statistics(found), exact(tensor.dequantize()))


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e5m2], ids=str)
def test_not_finite(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = [
        torch.tensor(values, dtype=torch.float32).to(dtype)
        for values in ([1.0, math.nan], [math.inf, 1.0], [-math.inf, 1.0], [math.inf, -math.inf], [math.nan, math.inf], SPECIAL[:3])
    ] + [torch.tensor(value, dtype=torch.float32).to(dtype) for value in SPECIAL]
    records, _ = recorded(tmp_path, *tensors)
    for tensor, found in zip(tensors, records, strict=True):
        assert same(statistics(found), exact(tensor)), (tensor, statistics(found))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_not_finite(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = [torch.tensor(values).to(dtype) for values in ([complex(math.nan, 0), 1j], [complex(math.inf, 1), 1j])]
    records, _ = recorded(tmp_path, *tensors)
    assert all(math.isnan(x) for x in statistics(records[0]))
    assert statistics(records[1])[0] == math.inf and statistics(records[1])[3] == math.inf


def test_what_the_reference_gets_wrong(tmp_path: Path) -> None:
    """F16 to F20: fp64, the sign of a 0-d Norm, overflow in half precision, integers, complex numbers."""
    tensors = [
        torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64),
        torch.tensor(-2.5),
        torch.full((2000,), 60000.0, dtype=torch.float16),
        torch.full((1000,), 1.0078125, dtype=torch.bfloat16),
        torch.tensor([2**53 + 1, -(2**63), 2**63 - 1]),
        torch.tensor([2**64 - 1, 1], dtype=torch.uint64),
        torch.tensor([3 + 4j, 0j]),
        torch.tensor([1e200, 1e200], dtype=torch.float64),
        torch.tensor([1e-200, 1e-200], dtype=torch.float64),
    ]
    records, _ = recorded(tmp_path, *tensors)
    found = [statistics(r) for r in records]
    assert found[0] == (4.0, 1.0, 7 / 3, math.sqrt(21))
    assert found[1] == (-2.5, -2.5, -2.5, 2.5)
    assert found[2][2] == 60000.0 and math.isclose(found[2][3], 60000 * math.sqrt(2000), rel_tol=1e-12)
    assert found[3][2] == 1.0078125 and math.isclose(found[3][3], 1.0078125 * math.sqrt(1000), rel_tol=1e-12)
    assert found[4][:2] == (2**63 - 1, -(2**63)) and math.isclose(found[4][2], 2**53 / 3, rel_tol=1e-9)
    assert found[5][:2] == (2**64 - 1, 1)
    assert found[6] == (5.0, 0.0, 2.5, 5.0)
    assert math.isclose(found[7][3], math.sqrt(2) * 1e200, rel_tol=1e-12)
    assert math.isclose(found[8][3], math.sqrt(2) * 1e-200, rel_tol=1e-12)


def test_sixteen_million_ones_and_a_bit(tmp_path: Path) -> None:
    """Summed in float32 the Norm of such a tensor is off in the fourth digit."""
    tensor = torch.full((1 << 22,), 1.1)
    (found,), _ = recorded(tmp_path, tensor)
    value = float(tensor[0])
    assert math.isclose(found["Mean"], value, rel_tol=1e-12) and math.isclose(found["Norm"], value * 2048, rel_tol=1e-12)


@pytest.mark.parametrize("precision", ["low", "high"])
def test_both_precisions_are_exact(tmp_path: Path, precision: str) -> None:
    model = Holder()
    tensor = torch.rand(50)
    step = record(tmp_path, lambda: model.probe(tensor), model=model, level="L0", precision=precision)
    assert same(statistics(step.only("forward")["input_args"][0]), exact(tensor))


def test_requires_grad_is_that_of_the_tensor(tmp_path: Path) -> None:
    leaf = torch.rand(3, requires_grad=True)
    with torch.inference_mode():
        inference = torch.rand(3)
    records, _ = recorded(tmp_path, leaf, leaf * 2, leaf.detach(), torch.nn.Parameter(torch.rand(2)), inference)
    assert [r["requires_grad"] for r in records] == [True, True, False, True, False]
    assert {r["type"] for r in records} == {"torch.Tensor"}


def test_apis_and_gradients_have_the_same_numbers(tmp_path: Path) -> None:
    x = torch.rand(4, 5, requires_grad=True)
    weights = torch.rand(4, 5)
    step = record(tmp_path, lambda: (torch.sigmoid(x) * weights).sum().backward())
    y = torch.sigmoid(x).detach()
    assert same(statistics(step.only("sigmoid.0.forward")["output"][0]), exact(y))
    assert same(statistics(step.only("sigmoid.0.backward")["input"][0]), exact(weights))
    assert same(statistics(step.only("sigmoid.0.backward")["output"][0]), exact(x.grad))
