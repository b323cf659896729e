"""summary_mode md5 and xor: the checksum of every tensor, of every side, level and kind, at the time of the call."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from against_golden import differences
from capturing import Step, forget_debugger, golden, record, statistics, tensors
from odd_values import Holder, sample_arguments
from on_device import OnDevice, recordable

from msprobe.comparison.compare import compare
from msprobe.format import tensor_file
from msprobe.pytorch.dump import summaries
from msprobe.pytorch.dump.encoder import Encoder, Side

pytestmark = pytest.mark.filterwarnings("ignore")
MODES = ("md5", "xor")
# Labels of the samples whose records differ by intent -> why.
OTHERS = {
    **dict.fromkeys(("dtype", "device", "device_idx", "kw", "kwdev"), "F23: positional dtype and device are {} there, `cpu` is `cpu:None`"),
    "kwdtype_tensor": "F23: a tensor under the keyword `dtype` becomes text there",
    "ndbool": "Mean and Norm of bool mean nothing, as for tensors",
}
DIFFERENT = {
    "md5": {
        **OTHERS,
        **dict.fromkeys(("torch.uint16", "torch.uint32", "torch.uint64", "complex32"), "F10: the reference crashed here"),
        "f16_overflow": "F19: half precision overflows there",
    },
    "xor": {
        **OTHERS,
        **dict.fromkeys(("0d_f32", "0d_f16", "0d_neg", "nan0d"), "F22: the reference writes the value itself"),
        **dict.fromkeys(("torch.float8_e4m3fn", "torch.float8_e5m2"), "null there"),
        **dict.fromkeys(("quant", "complex0d"), "F11, F14: left out of the sample, because the reference crashed or broke the file"),
    },
}


@pytest.mark.parametrize("mode", MODES)
def test_the_samples(tmp_path: Path, mode: str) -> None:
    values, model = sample_arguments(), Holder()

    def body() -> None:
        for args, kwargs in values.values():
            model.probe(*args, **kwargs)

    data = record(tmp_path, body, model=model, level="L0", summary_mode=mode).data
    reference = golden(f"args_{mode}")
    wrong = {}
    for i, label in enumerate(values):
        ours = data[f"Module.probe.Probe.forward.{i}"]
        number = reference["names"].get(label)
        theirs = reference["steps"]["0"]["data"].get(f"My.probe.{number}.forward")
        if theirs is None:
            wrong[label] = ["not in the sample"]
            continue
        found = [text for side in ("input_args", "input_kwargs") for text in differences(theirs[side], ours[side], side, True)]
        if found:
            wrong[label] = found
    assert set(wrong) == set(DIFFERENT[mode]), {label: text for label, text in wrong.items() if label not in DIFFERENT[mode]}


def xor_of(data: bytes) -> str | None:
    value = 0
    for k in range(0, len(data), 8):
        value ^= int.from_bytes(data[k : k + 8].ljust(8, b"\0"), "little")
    return f"0x{value:016x}" if data else None


def expected(data: bytes, mode: str) -> str | None:
    return f"{zlib.crc32(data):08x}" if mode == "md5" else xor_of(data)


KEYS = {
    "md5": ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"],
    "xor": ["type", "dtype", "shape", "md5", "requires_grad"],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 5)
        self.b = nn.LayerNorm(5)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.b(self.a(x)) * scale)


def train(net: Net) -> None:
    net(torch.randn(3, 4), scale=torch.ones(5, requires_grad=True)).pow(2).sum().backward()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("mode", MODES)
def test_every_side_of_every_level(tmp_path: Path, mode: str, level: str) -> None:
    """Held against the values in the files: inputs, keywords, outputs, parameters and all gradients."""
    model = nn.Sequential()
    model.net = net = Net()
    step = record(tmp_path, lambda: train(net), model=model, level=level, task="tensor", summary_mode=mode)
    seen: dict[str, int] = {}
    for name, entry in step.data.items():
        for side, records in entry.items():
            for found in tensors(records):
                assert list(found) == KEYS[mode] + (["data_name", "md5"] if mode == "md5" else ["data_name"]), name
                data = tensor_file.read(step.directory / "dump_tensor_data" / found["data_name"]).data
                assert found["md5"] == expected(bytes(data), mode), (name, side)
                direction = "backward" if ".backward" in name else "parameters_grad" if ".parameters_grad" in name else "forward"
                seen[f"{direction} {side if direction != 'parameters_grad' else ''}".strip()] = 1
    wanted = {"forward input_args", "forward input_kwargs", "forward output", "backward input", "backward output"}
    if level == "L1":
        wanted.discard("forward input_kwargs")
    else:
        wanted |= {"forward parameters", "parameters_grad"}
    assert wanted <= set(seen)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_and_tensor_list(tmp_path: Path, mode: str) -> None:
    step = record(tmp_path, lambda: F.relu(torch.tensor([1.0, -2.0])).exp(), summary_mode=mode, tensor_list=["relu"])
    saved, plain = step.only("relu.0.forward")["output"][0], step.only("exp.0.forward")["output"][0]
    assert list(plain) == KEYS[mode] + (["md5"] if mode == "md5" else [])
    assert set(saved) == {*plain, "data_name"} and saved["md5"] is not None


def test_taken_at_the_time_of_the_call(tmp_path: Path) -> None:
    """F21: the reference takes it later, from what is there then."""
    x = torch.randn(1000)
    before = f"{zlib.crc32(x.numpy().tobytes()):08x}"

    def body() -> None:
        F.relu(x)
        x.zero_()

    assert record(tmp_path, body, summary_mode="md5").only("relu.0.forward")["input_args"][0]["md5"] == before


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).tolist())


class Subclass(torch.Tensor):
    pass


def odd() -> dict[str, tuple[torch.Tensor, bytes]]:
    """Label -> tensor, and the bytes whose checksum it has."""
    complex_ = torch.tensor([1 + 2j, -3 + 0.5j])
    sparse = torch.eye(3).to_sparse()
    csr = torch.eye(3).to_sparse_csr()
    packed = torch.quantize_per_channel(torch.rand(2, 4), torch.full((2,), 0.1), torch.full((2,), 0.0), 0, torch.quint4x2)
    quantized = torch.quantize_per_tensor(torch.tensor([1.5, -2.25, 3.0]), 0.1, 0, torch.qint8)
    zero = torch._efficientzerotensor(3)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.full((3,), 2.0)])
    return {
        "0-d": (torch.tensor(2.5), _bytes(torch.tensor(2.5))),
        "conjugate": (complex_.conj(), _bytes(complex_.conj())),
        "negative": (complex_.conj().imag, _bytes(complex_.conj().imag)),
        "transposed": (torch.arange(6.0).view(2, 3).t(), _bytes(torch.arange(6.0).view(2, 3).t())),
        "expanded": (torch.ones(1, 3).expand(4, 3), _bytes(torch.ones(4, 3))),
        "fp8": (torch.tensor([1.0, -2.0]).to(torch.float8_e5m2), b"\x3c\xc0"),
        "bool": (torch.tensor([True, False]), b"\x01\x00"),
        "complex32": (torch.tensor([1 + 1j]).to(torch.complex32), b"\x00\x3c\x00\x3c"),
        "empty": (torch.empty(0, 3), b""),
        "subclass": (torch.ones(2).as_subclass(Subclass), _bytes(torch.ones(2))),
        "quantized": (quantized, _bytes(quantized.int_repr())),
        "packed": (packed, _bytes(packed.int_repr())),
        "sparse": (sparse, _bytes(sparse.coalesce().indices()) + _bytes(torch.ones(3))),
        "csr": (csr, _bytes(csr.crow_indices()) + _bytes(csr.col_indices()) + _bytes(torch.ones(3))),
        "zero": (zero, bytes(12)),
        "nested": (nested, _bytes(torch.tensor([1.0, 1.0, 2.0, 2.0, 2.0]))),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("label", odd())
def test_unusual_kinds(label: str, mode: str) -> None:
    tensor, data = odd()[label]
    told: list[str] = []
    encoder = Encoder(None, lambda entry, reason: told.append(reason), summaries.OF_MODE[mode])
    found = encoder.value(tensor, ("0",), Side("X", "input", False))
    if label in ("sparse", "csr") and mode == "xor":
        return  # each part is filled up with zeros for itself: see summaries.digest
    assert found["md5"] == expected(data, mode)
    assert told == [] or "no statistics for dtype" in told[0]
    assert list(found)[: len(KEYS[mode])] == KEYS[mode]


@pytest.mark.parametrize("mode", MODES)
def test_without_memory_there_is_none(tmp_path: Path, mode: str) -> None:
    model = Holder()
    step = record(tmp_path, lambda: model.probe(torch.empty(2, device="meta")), model=model, level="L0", summary_mode=mode)
    found = step.only("forward")["input_args"][0]
    assert found["md5"] is None and "meta tensor has no values" in step.errors


@pytest.mark.parametrize("mode", MODES)
def test_on_another_device(mode: str) -> None:
    values = torch.randn(5, 3)
    with recordable():
        found = Encoder(None, lambda *_: None, summaries.OF_MODE[mode]).value(OnDevice(values), ("0",), Side("X", "input", False))
    assert found["md5"] == expected(_bytes(values), mode)
    if mode == "md5":
        assert found["Max"] == values.max().item() and found["Norm"] == pytest.approx(values.norm().item(), rel=1e-6)


def checksums(mode: str, *values: torch.Tensor) -> list[Any]:
    return [r["md5"] for r in Encoder(None, lambda *_: None, summaries.OF_MODE[mode]).positional(values, Side("X", "input", False))]


def test_what_each_tells_apart() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    changed = [x[[1, 0, 2, 3, 4]], -x, x.to(torch.float64), x + torch.eye(5)[2] * 1e-6, torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0])]
    for mode in MODES:
        one, *others = checksums(mode, x, *changed)
        assert one not in others, mode
    # What only the recorded shape and dtype tell, not the checksum: the bytes are the same.
    for mode in MODES:
        assert len(set(checksums(mode, x[:4], x[:4].view(2, 2), x[:4].view(torch.int32)))) == 1
    # What XOR cannot see (docs/recording.md).
    pairs = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert len(set(checksums("xor", pairs, pairs[[2, 3, 0, 1]]))) == 1 and len(set(checksums("md5", pairs, pairs[[2, 3, 0, 1]]))) == 2
    assert checksums("xor", torch.full((4,), 7.0)) == ["0x0000000000000000"]


@pytest.mark.parametrize("mode", MODES)
def test_two_dumps_are_compared(tmp_path: Path, mode: str) -> None:
    def dump(name: str, change: float) -> Step:
        torch.manual_seed(3)
        model = nn.Sequential()
        model.net = net = Net()
        with torch.no_grad():
            net.b.weight[0] += change
        (tmp_path / name).mkdir()
        step = record(tmp_path / name, lambda: train(net), model=model, level="mix", summary_mode=mode)
        forget_debugger()
        return step

    golden_, same, other = dump("golden", 0.0), dump("same", 0.0), dump("other", 1e-5)
    assert compare(same.directory, golden_.directory, tmp_path / "out1").exit_code == 0
    assert compare(other.directory, golden_.directory, tmp_path / "out2").exit_code == 1


def test_arrays_keep_their_statistics(tmp_path: Path) -> None:
    model = Holder()
    step = record(tmp_path, lambda: model.probe(np.arange(4.0)), model=model, level="L0", summary_mode="xor")
    assert statistics(step.only("forward")["input_args"][0]) == (3.0, 0.0, 1.5, pytest.approx(14**0.5))


WAYS = [{"summary_mode": "md5"}, {"summary_mode": "xor"}, {"async_dump": True}, {"task": "structure"}]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "".join(map(str, way.values())))
def test_training_stays_as_it_was(tmp_path: Path, way: dict[str, Any]) -> None:
    def run(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(5)
        model = nn.Sequential()
        model.net = net = Net()
        optimizer = torch.optim.AdamW(net.parameters())

        def body() -> None:
            for _ in range(2):
                optimizer.zero_grad()
                train(net)
                optimizer.step()

        if watched:
            assert record(tmp_path, body, model=model, level="mix", **way).errors == ""
        else:
            body()
        return [*(p.detach() for p in net.parameters()), *(p.grad for p in net.parameters()), torch.rand(1)]

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True), strict=True))
