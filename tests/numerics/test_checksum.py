"""CRC-32 and XOR of tensors: against zlib and numpy, by the kernels, on every path of theirs, and by their twin."""

from __future__ import annotations

import json
import math
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe import numerics
from msprobe.numerics import checksum as public
from msprobe.numerics import fallback_checksum as twin

try:
    from msprobe.numerics import _kernels
except ImportError:  # no compiler here: the twin is still tested
    _kernels = None

SAMPLES = json.loads((Path(__file__).parents[1] / "golden" / "checksums.json").read_text())
MEMORY = np.random.default_rng(5).integers(0, 256, 1 << 16, dtype=np.uint8)
STORED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


@pytest.fixture(params=[*(_kernels._crc_paths() if _kernels else ()), "twin"])
def tool(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Every implementation that this machine can run, as a module with the five public functions."""
    if request.param == "twin":
        yield twin
        return
    before = _kernels._force_crc_path(request.param)
    yield _kernels
    _kernels._force_crc_path(before)


def words_of(data: bytes) -> int:
    return int(np.bitwise_xor.reduce(np.frombuffer(data + bytes(-len(data) % 8), "<u8"), initial=np.uint64(0)))


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def sampled() -> dict[str, torch.Tensor]:
    """The tensors whose checksums are in the golden file."""
    base = torch.tensor([1.5, -2.25, 3.0, 0.1])
    whole = torch.tensor([1, 2, 7, 120])
    floats = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
    integers = ("int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
    tensors = {name: base.to(getattr(torch, name)) for name in floats} | {name: whole.to(getattr(torch, name)) for name in integers}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized tensors and complex32 are deprecated or experimental
        tensors["quint8"] = torch.quantize_per_tensor(base, 0.1, 0, torch.quint8)
        tensors["complex32"] = torch.tensor([1 + 1j, 3 - 4j]).to(torch.complex32)
    return tensors | {
        "bool": torch.tensor([True, False, True]),
        "two bool": torch.tensor([True, True]),
        "0-d bool": torch.tensor(True),
        "complex64": torch.tensor([1 + 1j, 3 - 4j]),
        "0-d complex": torch.tensor(3 + 4j),
        "empty": torch.empty(0),
        "empty int64": torch.empty(2, 0, dtype=torch.int64),
        "0-d": torch.tensor(2.5),
        "0-d half": torch.tensor(2.5).half(),
        "0-d int64": torch.tensor(7),
        "0-d negative": torch.tensor(-2.5),
        "nan": torch.tensor([1.0, math.nan, 2.0]),
        "inf": torch.tensor([1.0, math.inf, -math.inf]),
        "constant half": torch.full((2000,), 60000.0, dtype=torch.float16),
        "constant bfloat16": torch.full((1000,), 1.01, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.tensor([1.0, 2.0])),
        "one": torch.tensor([1.0]),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "expanded": torch.ones(1, 3).expand(4, 3),
        "conjugate": torch.tensor([1 + 1j]).conj(),
    }


@pytest.mark.parametrize("label", sampled())
def test_a_sample_has_the_recorded_checksums(tool: Any, label: str) -> None:
    tensor, recorded = sampled()[label], SAMPLES[label]
    if recorded["md5"] is not None:
        assert tool.checksum(tensor) == recorded["md5"]
    if recorded["xor"] is not None:
        assert tool.xor_checksum(tensor) == recorded["xor"]


@pytest.mark.parametrize("label", [label for label, tensor in sampled().items() if tensor.numel()])
def test_a_sample_has_the_checksums_of_its_bytes(tool: Any, label: str) -> None:
    tensor = sampled()[label]
    data = bytes_of(tensor.int_repr() if tensor.is_quantized else tensor)
    assert tool.checksum(tensor) == f"{zlib.crc32(data):08x}"
    assert tool.xor_checksum(tensor) == f"0x{words_of(data):016x}"


@pytest.mark.parametrize("label", ["empty", "empty int64"])
def test_an_empty_tensor(tool: Any, label: str) -> None:
    assert tool.checksum(sampled()[label]) == "00000000"
    assert tool.xor_checksum(sampled()[label]) is None


@given(st.integers(0, 1400) | st.integers(0, 60_000), st.integers(0, 15))
@settings(deadline=None, max_examples=120)
def test_every_length_and_alignment(size: int, start: int) -> None:
    data = MEMORY[start : start + size]
    address, expected = MEMORY.ctypes.data + start, (zlib.crc32(data), words_of(data.tobytes()))
    for name in _kernels._crc_paths() if _kernels else ():
        before = _kernels._force_crc_path(name)
        try:
            assert (_kernels.crc32_of(address, 1, (size,), (1,)), _kernels.xor_of(address, 1, (size,), (1,))) == expected
        finally:
            _kernels._force_crc_path(before)
    assert (twin.crc32_of(address, 1, (size,), (1,)), twin.xor_of(address, 1, (size,), (1,))) == expected


@st.composite
def views(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Item size, shape and strides of a view that lies within MEMORY: permuted, sliced, expanded, overlapping."""
    item = draw(st.sampled_from(sorted(STORED)))
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 16, 17, 64, 70, 300]), max_size=4))
    strides, reach = [0] * len(shape), 1
    for k in draw(st.permutations(range(len(shape)))):
        strides[k] = draw(st.sampled_from([reach, reach, reach, 2 * reach, 1, 0]))
        reach = max(reach, strides[k] * max(1, shape[k]))
    while math.prod(shape) > 1 << 17 or item * (1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))) > MEMORY.size:
        shape = [n // 2 if n > 1 else n for n in shape]
    return item, tuple(shape), tuple(strides)


@given(views())
@settings(deadline=None, max_examples=150)
def test_views_have_the_checksums_of_their_elements_in_order(view: tuple[int, tuple[int, ...], tuple[int, ...]]) -> None:
    item, shape, strides = view
    flat = MEMORY.view(STORED[item])
    data = np.lib.stride_tricks.as_strided(flat, shape, [item * stride for stride in strides]).tobytes()
    for tool in (_kernels, twin) if _kernels else (twin,):
        assert tool.crc32_of(MEMORY.ctypes.data, item, shape, strides) == zlib.crc32(data)
        assert tool.xor_of(MEMORY.ctypes.data, item, shape, strides) == words_of(data)


LARGE = {
    "contiguous": lambda x: x,
    "odd end": lambda x: x[:-3],
    "every second": lambda x: x[::2],
    "transposed": lambda x: x.view(1 << 10, -1).t(),
    "transposed, long rows": lambda x: x.view(-1, 4).t(),
    "transposed, a few": lambda x: x.view(4, -1).t(),
    "channels last": lambda x: x.view(4, 16, -1, 64).permute(0, 3, 1, 2),
    "heads": lambda x: x.view(8, 256, -1, 64).transpose(1, 2),
    "heads, transposed": lambda x: x.view(8, 256, -1, 64).permute(0, 2, 3, 1),
    "expanded outside": lambda x: x.view(1, -1).expand(3, -1),
    "expanded inside": lambda x: x[:5000].view(-1, 1).expand(-1, 301),
    "expanded between": lambda x: x.view(64, 1, -1).expand(-1, 3, -1),
    "windows": lambda x: x[:20_000].unfold(0, 100, 1),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("label", LARGE)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
def test_large_tensors(kernels: ModuleType, label: str, dtype: str, threads: int) -> None:
    numbers = np.random.default_rng(1).integers(0, 256, 1 << 22, dtype=np.uint8)
    tensor = LARGE[label](torch.from_numpy(numbers).view(getattr(torch, dtype)))
    data = bytes_of(tensor)
    before = kernels.set_threads(threads)
    try:
        assert kernels.checksum(tensor) == f"{zlib.crc32(data):08x}"
        assert kernels.xor_checksum(tensor) == f"0x{words_of(data):016x}"
    finally:
        kernels.set_threads(before)


def test_the_twin_on_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "_PIECE", 100)
    numbers = torch.arange(3 * 41 * 7, dtype=torch.int16).view(3, 41, 7)
    for tensor in (numbers.permute(2, 0, 1), numbers.mT, numbers[:, 1:2, ::2], numbers[::2]):
        assert twin.checksum(tensor) == f"{zlib.crc32(bytes_of(tensor)):08x}"
        assert twin.xor_checksum(tensor) == f"0x{words_of(bytes_of(tensor)):016x}"


def test_an_expansion_beyond_all_memory_is_computed_from_one_repetition(tool: Any) -> None:
    """A thousand million million elements: nobody could walk over them; zeros shift the CRC's start value only, and combine() knows how."""
    zeros = torch.zeros(1).expand(1 << 20, 1 << 20, 1 << 10)
    crc = zlib.crc32(bytes(1 << 12))
    for power in range(12, 52):
        crc = tool.crc32_combine(crc, crc, 1 << power)
    assert tool.checksum(zeros) == f"{crc:08x}"
    assert tool.xor_checksum(zeros) == f"0x{0:016x}"


def test_expanded_odd_lengths_turn_in_the_words(tool: Any) -> None:
    for size in (3, 5, 7):
        for count in (343, 344, 347):
            tensor = torch.arange(1, size + 1, dtype=torch.uint8).expand(count, size)
            assert tool.xor_checksum(tensor) == f"0x{words_of(bytes_of(tensor)):016x}"
            assert tool.checksum(tensor) == f"{zlib.crc32(bytes_of(tensor)):08x}"


@given(st.binary(max_size=300), st.binary(max_size=3000))
@settings(deadline=None)
def test_combine(first: bytes, second: bytes) -> None:
    for tool in (_kernels, twin) if _kernels else (twin,):
        assert tool.crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


SPECIAL = torch.tensor([1.5, -0.0, 0.0, math.inf, -math.inf, math.nan, 1e-40])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("length", [7, 700])
def test_conjugate_and_negative_views_are_read_as_what_they_stand_for(tool: Any, dtype: str, length: int) -> None:
    z = torch.complex(SPECIAL, SPECIAL.flip(0)).to(getattr(torch, dtype)).repeat(length // 7)
    for tensor in (z.conj(), z.view(7, -1).mH, z.conj()[::2], z.conj().imag, z[:5].conj().imag[1:], z.conj().view(7, -1).imag.t()):
        assert tensor.is_conj() or tensor.is_neg()
        data = bytes_of(tensor)
        assert tool.checksum(tensor) == f"{zlib.crc32(data):08x}"
        assert tool.xor_checksum(tensor) == f"0x{words_of(data):016x}"


def test_both_bits_at_once(tool: Any) -> None:
    z = torch.tensor([1 + 2j, -3 + 4j])
    assert tool.checksum(torch._neg_view(z.conj())) == tool.checksum(torch.tensor([-1 + 2j, 3 + 4j]))


@pytest.mark.filterwarnings("ignore")
def test_kinds_without_plain_memory_have_none(tool: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(2, 2)
    others = [
        torch.empty(2, device="meta"),
        fake,
        torch.eye(2).to_sparse(),
        torch.eye(2).to_sparse_csr(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch._efficientzerotensor(3),
        torch._neg_view(torch.arange(3)),
        torch._neg_view(torch.ones(3).to(torch.float8_e5m2)),
        torch.quantize_per_channel(torch.randn(3, 5), torch.ones(3), torch.zeros(3), 0, torch.quint4x2),
        np.zeros(3),
        3,
        object(),
    ]
    for other in others:
        assert tool.checksum(other) is None
        assert tool.xor_checksum(other) is None


def test_inside_a_transform_there_are_no_values(tool: Any) -> None:
    seen: list[str | None] = []
    torch.func.vmap(lambda x: (seen.extend((tool.checksum(x), tool.xor_checksum(x))), x * 2)[1])(torch.ones(3, 2))
    assert seen == [None, None]


def test_every_dtype_of_torch_gives_its_bytes_or_none(tool: Any) -> None:
    for name, dtype in sorted(vars(torch).items()):
        if not isinstance(dtype, torch.dtype) or name.startswith("q"):
            continue
        tensor = torch.arange(1, 65, dtype=torch.uint8).view(dtype) if dtype != torch.bool else torch.ones(64, dtype=dtype)
        assert tool.checksum(tensor) == f"{zlib.crc32(bytes(range(1, 65)) if dtype != torch.bool else bytes([1] * 64)):08x}", name


def test_what_is_told_apart_and_what_is_not(tool: Any) -> None:
    x = torch.arange(1.0, 9.0)
    permuted, negated, swapped = x[[2, 1, 0, 3, 4, 5, 6, 7]], -x, x[[1, 0, 2, 3, 4, 5, 6, 7]]
    for other in (permuted, negated, swapped, x.double(), x.half()):
        assert tool.checksum(other) != tool.checksum(x)
    assert tool.checksum(x.view(2, 4)) == tool.checksum(x) == tool.checksum(x.view(torch.int32))  # neither shape nor dtype
    assert tool.xor_checksum(swapped) != tool.xor_checksum(x)
    assert tool.xor_checksum(permuted) == tool.xor_checksum(x)  # places 0 and 2 of the words
    assert tool.xor_checksum(negated) == tool.xor_checksum(x)  # four words: each sign is turned over an even number of times
    assert tool.xor_checksum(torch.full((8,), 3.0)) == tool.xor_checksum(torch.full((8,), 5.0))  # pairs are gone


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "item size": (lambda t: t.crc32_of(MEMORY.ctypes.data, 3, (1,), (1,)), ValueError, "3 bytes.*1, 2, 4, 8 or 16"),
    "dimensions": (lambda t: t.xor_of(MEMORY.ctypes.data, 1, (1, 2), (1,)), ValueError, "2 dimensions and strides has 1"),
    "size": (lambda t: t.crc32_of(MEMORY.ctypes.data, 1, (2, -1), (1, 1)), ValueError, "dimension 1 has size -1"),
    "stride": (lambda t: t.crc32_of(MEMORY.ctypes.data, 1, (2,), (-1,)), ValueError, "dimension 0 has stride -1"),
    "too much": (lambda t: t.xor_of(MEMORY.ctypes.data, 1, (1 << 32, 1 << 31), (0, 0)), ValueError, "62 bits"),
    "nowhere": (lambda t: t.crc32_of(0, 1, (2,), (1,)), ValueError, "address 0"),
    "no CRC": (lambda t: t.crc32_combine(1 << 32, 0, 1), ValueError, "32 bits"),
    "negative": (lambda t: t.crc32_combine(0, 0, -1), OverflowError, "negative"),
    "arguments": (lambda t: t.crc32_of(1), TypeError, "crc32_of"),
    "no numbers": (lambda t: t.crc32_of(MEMORY.ctypes.data, 1, ("a",), (1,)), TypeError, "int|str"),
}


@pytest.mark.parametrize("label", WRONG)
def test_wrong_arguments_are_refused(tool: Any, label: str) -> None:
    call, kind, text = WRONG[label]
    with pytest.raises(kind, match=text):
        call(tool)


def test_an_interruption_is_not_swallowed(tool: Any) -> None:
    class Interrupted:
        @property
        def dtype(self) -> torch.dtype:
            raise KeyboardInterrupt

    for function in (tool.checksum, tool.xor_checksum):
        with pytest.raises(KeyboardInterrupt):
            function(Interrupted())


def test_the_module_offers_the_kernels_where_they_are() -> None:
    assert [getattr(public, name) for name in public.__all__] == [getattr(_kernels or twin, name) for name in public.__all__]
    assert (_kernels is not None) == numerics.HAVE_KERNELS


def test_an_unknown_path_is_refused(kernels: ModuleType) -> None:
    assert "portable" in kernels._crc_paths()
    with pytest.raises(ValueError, match="'abacus' is no way"):
        kernels._force_crc_path("abacus")
