"""async_dump: nothing waits for a device inside a step, room is bounded, the values are those at the time of the call."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_golden import sample_differences
from capturing import Run, configured, golden, record, statistics, tensors
from odd_values import Holder
from on_device import WAITED, OnDevice, recordable
from sample_runs import small_net

from msprobe.errors import ConfigError
from msprobe.format import tensor_file
from msprobe.numerics.checksum import xor_checksum
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump import device_statistics, staging
from msprobe.pytorch.dump.encoder import Side
from msprobe.pytorch.dump.staging import HoldingWriter, StagedEncoder, Staging
from msprobe.pytorch.dump.summaries import Holds
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool

pytestmark = pytest.mark.filterwarnings("ignore")
NULLS = (None,) * 4


def exact(values: torch.Tensor) -> tuple[Any, ...]:
    wide = values.double()
    return pytest.approx((wide.max().item(), wide.min().item(), wide.mean().item(), wide.norm().item()), rel=1e-12)


# --- configuration ----------------------------------------------------------------------------------------------------------------------
def refusal(directory: Path, **config: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(directory, async_dump=True, **config)
    return str(caught.value)


def test_task_tensor_needs_a_list(tmp_path: Path) -> None:
    text = refusal(tmp_path, task="tensor")
    assert '"tensor"."list" is []' in text and "name here what is to be recorded" in text


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_md5_is_refused(tmp_path: Path, task: str) -> None:
    text = refusal(tmp_path, task=task, list=["relu"], summary_mode="md5")
    assert f'"{task}"."summary_mode" is "md5"' in text and '"statistics"' in text


def test_other_tasks_are_refused(tmp_path: Path) -> None:
    assert '"async_dump" is true: works with task "statistics" or "tensor" only' in refusal(tmp_path, task="structure")


def test_only_booleans(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dump_path": str(tmp_path), "async_dump": "true"}))
    with pytest.raises(ConfigError, match='"async_dump" is "true"'):
        PrecisionDebugger(config_path=str(tmp_path / "config.json"))


# --- host memory ------------------------------------------------------------------------------------------------------------------------
def test_the_sample(tmp_path: Path) -> None:
    step = small_net("async_tensor", tmp_path).step()
    theirs = golden("async_tensor")["steps"]["0"]["data"]
    assert step.names == list(theirs) and sample_differences(theirs, step.data, backward_output=True) == []
    names = {found["data_name"] for entry in theirs.values() for found in tensors(entry)}
    assert {path.name for path in (step.directory / "dump_tensor_data").iterdir()} == names


def test_complex_has_four_nulls(tmp_path: Path) -> None:
    model = Holder()
    z = torch.tensor([1 + 1j])
    step = record(tmp_path, lambda: model.probe(z, z.conj(), torch.ones(1)), model=model, level="L0", async_dump=True)
    assert [statistics(r) for r in step.only("forward")["input_args"]] == [NULLS, NULLS, (1.0, 1.0, 1.0, 1.0)]
    assert step.errors == ""


def test_what_was_there_at_the_call(tmp_path: Path) -> None:
    x = torch.ones(4)

    def body() -> None:
        F.relu(x)
        x.zero_()

    assert record(tmp_path, body, async_dump=True).only("relu.0.forward")["input_args"][0]["Max"] == 1.0


# --- a device ---------------------------------------------------------------------------------------------------------------------------
class Staged:
    """An encoder and what it needs, on its own."""

    def __init__(self, directory: Path, holds: Holds = Holds.STATISTICS, keeps: bool = False) -> None:
        self.told: list[str] = []
        self.pool = TensorPool()
        report = lambda entry, reason: self.told.append(f"{entry}: {reason}")
        self.writer = HoldingWriter(str(directory), task="tensor", level="L1", tensors=keeps)
        self.staging = Staging(self.writer, report)
        saver = TensorSaver(str(directory / "dump_tensor_data"), self.pool) if keeps else None
        self.encoder = StagedEncoder(saver, report, holds, self.staging)
        self.side = Side("X.0.forward", "input", keeps)

    def end(self) -> None:
        self.encoder.settle()
        self.pool.drain()
        self.writer.close()


VALUES = {
    "float32": torch.randn(4, 5),
    "float16": torch.full((300,), 60000.0, dtype=torch.float16),
    "float8": torch.tensor([1.0, -2.0, 0.5]).to(torch.float8_e4m3fn),
    "int64": torch.tensor([2**62, -3]),
    "uint64": torch.tensor([2**64 - 1, 3], dtype=torch.uint64),
    "0-d": torch.tensor(-2.5),
}


@pytest.mark.parametrize("label", VALUES)
def test_statistics_without_waiting(tmp_path: Path, label: str) -> None:
    staged = Staged(tmp_path)
    with recordable():
        found = staged.encoder.value(OnDevice(VALUES[label].clone()), ("0",), staged.side)
        assert WAITED == [] and statistics(found) == NULLS
        staged.end()
        assert WAITED != []
    assert found["Max"] == VALUES[label].double().max().item() or found["Max"] == VALUES[label].tolist()[0]
    wide = VALUES[label].to(torch.float64)
    assert (found["Mean"], found["Norm"]) == pytest.approx((wide.mean().item(), wide.norm().item()), rel=1e-12)
    assert staged.told == []


def test_bool_empty_and_complex(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    values = [torch.tensor([True, False]), torch.empty(0), torch.tensor([1j])]
    with recordable():
        records = staged.encoder.positional(tuple(OnDevice(v) for v in values), staged.side)
        assert WAITED == []
        staged.end()
    assert [statistics(r) for r in records] == [(True, False, None, None), NULLS, NULLS] and staged.told == []


def test_xor_without_waiting(tmp_path: Path) -> None:
    staged = Staged(tmp_path, Holds.XOR)
    values = [torch.randn(n) for n in (1, 2, 3, 8, 9, 1000)] + [torch.tensor([1, 2, 3], dtype=torch.uint8)]
    with recordable():
        records = staged.encoder.positional(tuple(OnDevice(v) for v in values), staged.side)
        assert WAITED == []
        staged.end()
    assert [r["md5"] for r in records] == [xor_checksum(v) for v in values]


@pytest.mark.parametrize("kind", ["transposed", "in the middle of a word", "quantized", "complex", "bool"])
def test_xor_on_a_device_is_that_of_the_host(kind: str) -> None:
    tensor = {
        "transposed": torch.randn(3, 5).t(),
        "in the middle of a word": torch.arange(20, dtype=torch.uint8)[3:19],
        "quantized": torch.quantize_per_tensor(torch.randn(11), 0.1, 0, torch.qint8),
        "complex": torch.randn(3, dtype=torch.complex64).conj().resolve_conj(),
        "bool": torch.tensor([True, False, True]),
    }[kind]
    ((text, *_),) = device_statistics.read([device_statistics.launch_xor(tensor)])
    assert text == xor_checksum(tensor)


def test_values_are_those_at_the_time_of_the_call(tmp_path: Path) -> None:
    staged = Staged(tmp_path, keeps=True)
    inner = torch.tensor([1.0, 2.0, 3.0])
    with recordable():
        found = staged.encoder.value(OnDevice(inner), ("0",), staged.side)
        assert WAITED == [] and found["data_name"] == "X.0.forward.input.0.pt"
        inner.zero_()
        staged.end()
    assert statistics(found) == exact(torch.tensor([1.0, 2.0, 3.0])) and staged.told == []
    assert (tmp_path / "dump_tensor_data" / found["data_name"]).exists()


def test_entries_wait_for_their_values(tmp_path: Path) -> None:
    """Valid JSON meanwhile, with nulls; the numbers when the step ends."""
    staged = Staged(tmp_path)
    written = lambda: json.loads((tmp_path / "dump.json").read_text())["data"]
    with recordable():
        data = {"input_args": staged.encoder.positional((OnDevice(torch.ones(2)),), staged.side)}
        entry = staged.writer.add("X.0.forward", data)
        staged.writer.finish(entry)
        staged.writer.add("Y.0.forward", {"input_args": []}, True)
        staged.writer.flush()
        assert statistics(written()["X.0.forward"]["input_args"][0]) == NULLS and list(written()) == ["X.0.forward", "Y.0.forward"]
        staged.end()
    assert statistics(written()["X.0.forward"]["input_args"][0]) == (1.0, 1.0, 1.0, pytest.approx(2**0.5))
    assert list(written()) == ["X.0.forward", "Y.0.forward"]


def test_the_number_of_results_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(staging, "MOST_RESULTS", 4)
    staged = Staged(tmp_path)
    logging.getLogger("msprobe").addHandler(caplog.handler)
    with recordable():
        records = [staged.encoder.value(OnDevice(torch.full((2,), float(i))), ("0",), staged.side) for i in range(10)]
        assert [r["Max"] for r in records] == [*map(float, range(8)), None, None]
        staged.end()
    logging.getLogger("msprobe").removeHandler(caplog.handler)
    assert [r["Max"] for r in records] == [*map(float, range(10))]
    assert len([r for r in caplog.records if "the device was waited for" in r.getMessage()]) == 1


def test_the_bytes_of_copies_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_BYTES", 100)
    staged = Staged(tmp_path, keeps=True)
    most = 0
    with recordable():
        records = []
        for i in range(9):
            size = 100 if i == 5 else 8  # one is larger than all the room there is
            records.append(staged.encoder.value(OnDevice(torch.full((size,), float(i))), (str(i),), staged.side))
            most = max(most, staged.staging._bytes)
        staged.end()
    assert most <= 100 and staged.staging._bytes == 0 and staged.told == []
    for i, found in enumerate(records):
        assert statistics(found)[0] == float(i)
        data = tensor_file.read(tmp_path / "dump_tensor_data" / found["data_name"]).data
        assert bytes(data) == torch.full((100 if i == 5 else 8,), float(i)).numpy().tobytes()


def test_a_file_that_cannot_be_made_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Staged(tmp_path, keeps=True)
    with recordable():
        found = staged.encoder.value(OnDevice(torch.ones(2)), ("0",), staged.side)

        def fail(*_: Any) -> None:
            raise RuntimeError("gone")

        monkeypatch.setattr(TensorSaver, "write", fail)
        staged.end()
    assert "data_name" not in found and len(staged.told) == 1 and "gone" in staged.told[0]


def test_a_device_that_fails_loses_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Staged(tmp_path)

    def fail(*_: Any) -> None:
        raise RuntimeError("device lost")

    with recordable():
        found = staged.encoder.value(OnDevice(torch.ones(2)), ("0",), staged.side)
        entry = staged.writer.add("X.0.forward", {"input_args": [found]})
        staged.writer.finish(entry)
        monkeypatch.setattr(staging.device_statistics, "read", fail)
        staged.end()
    assert "device lost" in staged.told[0]
    assert list(json.loads((tmp_path / "dump.json").read_text())["data"]) == ["X.0.forward"]


def test_a_whole_step(tmp_path: Path) -> None:
    model = Holder()
    with recordable():
        debugger = configured(tmp_path, level="L0", async_dump=True, tensor_list=["probe"])
        debugger.start(model)
        model.probe.result = OnDevice(torch.tensor([3.0, -1.0]))
        model.probe(OnDevice(torch.ones(3)), torch.zeros(1))
        debugger.stop()
        assert WAITED == []
        debugger.step()
        assert WAITED != []
    entry = Run(tmp_path / "dump").step().only("forward")
    assert [r["Max"] for r in tensors(entry)] == [1.0, 0.0, 3.0]
    assert all((Run(tmp_path / "dump").step().directory / "dump_tensor_data" / r["data_name"]).exists() for r in tensors(entry))
