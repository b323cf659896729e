"""The record of a tensor, by the kernels and by their twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from msprobe import numerics
from msprobe.numerics import fallback
from msprobe.numerics.checksum import checksum, xor_checksum

TABLE = {getattr(torch, n): ("torch.Tensor", c, f"torch.{n}") for n, c in numerics.CODE.items() if hasattr(torch, n)}


def by_exchange(tensor: Any, table: dict[Any, Any]) -> Any:
    """As `summaries.table` asks for it with torch 2.10 and later."""
    return numerics.describe(tensor, {**table, "exchange": True})


DESCRIBE = {"kernels": numerics.describe, "exchange": by_exchange, "twin": fallback.describe}
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
    "one of many dimensions": torch.arange(4.0).reshape(1, 2, 1, 2, 1)[:, :, :, 1],
    "empty and expanded": torch.empty(0, 1).expand(0, 3),
    "8 bits": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
    "unsigned": torch.tensor([7, 9], dtype=torch.uint16),
    "does not start the storage": torch.arange(6.0)[2:],
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


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
@pytest.mark.parametrize("label", PLAIN)
def test_a_plain_tensor_is_described(describe: Any, label: str) -> None:
    tensor = PLAIN[label]
    record = describe(tensor, TABLE)
    assert list(record) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    dense = tensor.detach().contiguous()
    expected = numerics.summarize(dense.data_ptr(), numerics.CODE[str(dense.dtype)[6:]], dense.numel())
    assert (record["type"], record["dtype"], record["shape"]) == ("torch.Tensor", str(tensor.dtype), list(tensor.shape))
    assert [record[k] for k in ("Max", "Min", "Mean", "Norm")] == pytest.approx(list(expected), nan_ok=True)
    assert describe is fallback.describe or record == numerics.describe(tensor, TABLE)
    assert record["requires_grad"] is tensor.requires_grad


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
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


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
@pytest.mark.parametrize("label", OTHERS)
def test_every_other_kind_is_left_to_the_caller(describe: Any, label: str) -> None:
    assert describe(OTHERS[label], TABLE) is None


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
def test_an_interruption_is_not_swallowed(describe: Any) -> None:
    class Interrupted:
        @property
        def dtype(self) -> torch.dtype:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe(Interrupted(), TABLE)


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
def test_a_storage_that_was_shrunk_is_not_read(describe: Any) -> None:
    tensor = torch.ones(1 << 20)
    tensor.untyped_storage().resize_(4 << 10)
    assert describe(tensor, TABLE) is None


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
def test_what_only_looks_like_a_tensor_is_left_to_the_caller(describe: Any) -> None:
    class Alike:
        dtype = torch.float32
        shape = (2,)
        requires_grad = False
        __dlpack_c_exchange_api__ = "no capsule"

    assert describe(Alike(), TABLE) is None


@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
def test_a_wrapper_without_memory_is_left_to_the_caller(describe: Any) -> None:
    seen: list[Any] = []
    torch.func.vmap(lambda x: (seen.append(describe(x, TABLE)), x)[1])(torch.ones(2, 3))
    torch.func.grad(lambda x: (seen.append(describe(x, TABLE)), x.sum())[1])(torch.ones(2))
    with FakeTensorMode():
        seen.append(describe(torch.empty(3), TABLE))
    assert seen == [None, None, None]
