"""The record of a tensor, by the kernels and by their twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe import numerics
from msprobe.numerics import fallback
from msprobe.numerics.checksum import checksum, xor_checksum

TABLE = {getattr(torch, n): ("torch.Tensor", c, f"torch.{n}") for n, c in numerics.CODE.items() if hasattr(torch, n)}
DESCRIBE = [numerics.describe, fallback.describe]
PLAIN = {
    "vector": torch.arange(5.0) - 2,
    "parameter": torch.nn.Parameter(torch.ones(2, 3)),
    "0-d": torch.tensor(-2.5),
    "empty": torch.empty(2, 0),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "expanded": torch.ones(1, 3).expand(4, 3),
    "sliced": torch.arange(10)[2:8:3],
    "bool": torch.tensor([True, False]),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "complex": torch.tensor([3 + 4j]),
}
OTHERS = {
    "meta": torch.empty(2, device="meta"),
    "sparse": torch.eye(2).to_sparse(),
    "sparse csr": torch.eye(2).to_sparse_csr(),
    "conjugate": torch.tensor([1 + 1j]).conj(),
    "negative view": torch.tensor([1 + 1j]).conj().imag,
    "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "no tensor": object(),
}


@pytest.mark.parametrize("describe", DESCRIBE, ids=["kernels", "twin"])
@pytest.mark.parametrize("label", PLAIN)
def test_a_plain_tensor_is_described(describe: Any, label: str) -> None:
    tensor = PLAIN[label]
    record = describe(tensor, TABLE)
    assert list(record) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    dense = tensor.detach().contiguous()
    expected = numerics.summarize(dense.data_ptr(), numerics.CODE[str(dense.dtype)[6:]], dense.numel())
    assert (record["type"], record["dtype"], record["shape"]) == ("torch.Tensor", str(tensor.dtype), list(tensor.shape))
    assert [record[k] for k in ("Max", "Min", "Mean", "Norm")] == pytest.approx(list(expected), nan_ok=True)
    assert record["requires_grad"] is tensor.requires_grad


@pytest.mark.parametrize("describe", DESCRIBE, ids=["kernels", "twin"])
@pytest.mark.parametrize("label", PLAIN)
def test_what_a_record_can_hold(describe: Any, label: str) -> None:
    tensor = PLAIN[label]
    statistics, md5, xor, nulls = (describe(tensor, {k: (*row, holds) for k, row in TABLE.items()}) for holds in range(4))
    assert statistics == describe(tensor, TABLE) and list(statistics) == list(nulls)
    assert md5 == {**statistics, "md5": checksum(tensor)} and list(md5) == [*statistics, "md5"]
    assert xor == {**{k: statistics[k] for k in ("type", "dtype", "shape", "requires_grad")}, "md5": xor_checksum(tensor)}
    assert list(xor) == ["type", "dtype", "shape", "md5", "requires_grad"]
    assert nulls == {**statistics, "Max": None, "Min": None, "Mean": None, "Norm": None}


@pytest.mark.parametrize("each", [numerics.describe_each, fallback.describe_each], ids=["kernels", "twin"])
def test_whole_sides_with_checksums(each: Any) -> None:
    for holds, ordinary in ((1, False), (2, True)):
        table = {k: (*row, holds) for k, row in TABLE.items()}
        values = (torch.tensor([1.0, float("nan")]), 3, None)
        records, count, known = each(values, (torch.Tensor, torch.nn.Parameter), table, [], lambda value, i: "other")
        assert records[0]["md5"] == (checksum if holds == 1 else xor_checksum)(values[0])
        assert records[1:] == [{"type": "int", "value": 3}, None] and count == 1
        assert not known or ordinary  # NaN stands only where there are statistics


@pytest.mark.parametrize("describe", DESCRIBE, ids=["kernels", "twin"])
@pytest.mark.parametrize("label", OTHERS)
def test_every_other_kind_is_left_to_the_caller(describe: Any, label: str) -> None:
    assert describe(OTHERS[label], TABLE) is None


@pytest.mark.parametrize("describe", DESCRIBE, ids=["kernels", "twin"])
def test_an_interruption_is_not_swallowed(describe: Any) -> None:
    class Interrupted:
        @property
        def dtype(self) -> torch.dtype:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe(Interrupted(), TABLE)
