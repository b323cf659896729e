"""A step without any framework: its files, its end."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import load_config
from msprobe.recording.place import Place
from msprobe.recording.selecting import make_selection
from msprobe.recording.step_of_calls import StepOfCalls
from msprobe.writer import StepWriter, TensorPool, native_pool
from msprobe.writer.native_pool import NativePool


def begun(root: Path, pool: TensorPool | None = None, level: str = "mix", **section: Any) -> StepOfCalls:
    file = root / "config.json"
    file.write_text(json.dumps({"task": "statistics", "level": level, "dump_path": str(root / "dump"), "statistics": section}))
    config = load_config(str(file))
    step = StepOfCalls(config, 2, Place(config.dump_path, 2, 0), make_selection(config), pool)
    step.writer = StepWriter(step.directory, **step.settings)
    return step


def ended(step: StepOfCalls, caplog: pytest.LogCaptureFixture, late: int = 0) -> list[tuple[int, str]]:
    with caplog.at_level(logging.INFO, "msprobe"):
        step.conclude_calls(time.perf_counter(), late, lambda: {"kind": "test"}, lambda: "; more")
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_what_is_said_and_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = begun(tmp_path)
    step.writer.add("Torch.relu.0.forward", {"output": []}, True)
    step.counters.take("Torch.relu")
    step.counters.take("Module.a.Linear")
    step.tally.calls = step.tally.apis = 1
    step.tally.tensors, step.tally.modules_hooked = 3, 4
    step.tally.modules.add("Module.a.Linear")
    step.report("Torch.relu.0.forward", "input 0: no values")
    (_, line), (level, where) = ended(step, caplog, late=5)
    assert line.startswith("[step 2] recorded 3 tensors of 1 calls (modules 1/4, APIs 1), 0.0 MB, +")
    late = "5 calls of earlier steps had their backward pass after their step had ended"
    assert line.endswith(f"; not recorded: 1 (1 × no values; see dump_error_info.log); {late}; more")
    assert (level, where) == (logging.INFO, f"dump.json is at {tmp_path}/dump/step2")
    meta = json.loads((tmp_path / "dump" / "step2" / "rank0" / "meta.json").read_text())
    assert {key: meta[key] for key in ("recorded", "seen", "hooked_modules", "not_recorded", "kind")} == {
        "recorded": {"tensors": 3, "calls": 1, "apis": 1, "modules": 1},
        "seen": {"apis": 1, "modules": 1},
        "hooked_modules": 4,
        "not_recorded": {"Torch.relu.0.forward: input 0: no values": 1},
        "kind": "test",
    }


@pytest.mark.parametrize(
    ("level", "section", "hooked", "why"),
    [
        ("L1", {"list": ["relu"]}, 0, ': "list" or "scope" matched no call'),
        ("L0", {}, 0, ": the model holds no modules (a model itself is not recorded, only what is inside it)"),
        ("mix", {}, 2, ": no module of the model given to start() was called"),
        ("L1", {}, 0, ""),
    ],
)
def test_why_there_is_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str, section: dict[str, Any], hooked: int, why: str
) -> None:
    step = begun(tmp_path, level=level, **section)
    step.tally.modules_hooked = hooked
    severity, line = ended(step, caplog)[0]
    assert severity == logging.WARNING
    assert line.endswith(f" ms; more: nothing was recorded between start() and step(){why}")


@pytest.mark.parametrize(
    ("level", "hooked", "skipped", "said"),
    [
        ("mix", 0, 0, "; no module was recorded: the model holds no modules (a model itself is not recorded, only what is inside it)"),
        ("mix", 0, 1, "; no module was recorded: no module inside of the model can be watched"),
        ("mix", 1, 1, ""),
        ("L1", 0, 0, ""),
    ],
)
def test_a_model_without_modules_inside_is_told_where_apis_were_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str, hooked: int, skipped: int, said: str
) -> None:
    step = begun(tmp_path, level=level)
    step.tally.calls = step.tally.apis = 2
    step.tally.modules_hooked, step.tally.modules_skipped = hooked, skipped
    severity, line = ended(step, caplog)[0]
    assert severity == logging.INFO
    assert line.endswith(f" ms{said}; more")


def test_only_the_step_s_own_tensor_files_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(path: str) -> None:
        raise OSError("no space")

    pool = TensorPool()
    pool.submit_saver(str(tmp_path / "earlier.npy"), lambda path: Path(path).write_bytes(b"x" * 9_000_000), 9_000_000)
    pool.submit_saver(str(tmp_path / "broken.npy"), broken, 1)
    pool.drain()
    step = begun(tmp_path, pool)
    pool.submit_saver(str(tmp_path / "mine.npy"), lambda path: Path(path).write_bytes(b"x" * 2_000_000), 2_000_000)
    pool.submit_saver(str(tmp_path / "mine_broken.npy"), broken, 1)
    line = next(text for _, text in ended(step, caplog) if text.startswith("[step 2]"))
    pool.close()
    assert ", 2.0 MB, +" in line
    assert "; not recorded: 1 (1 × " in line


@pytest.mark.parametrize("pool_type", [TensorPool, NativePool] if native_pool._queue_type else [TensorPool])
def test_tensor_files_that_could_not_be_written_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pool_type: type[TensorPool]
) -> None:
    pool = pool_type()
    pool.submit(f"{tmp_path}/elsewhere/bad.pt", "int64", (3,), b"1")
    step = begun(tmp_path, pool)
    pool.submit(f"{step.tensor_directory}/{'x' * 300}.pt", "uint8", (1,), b"1")
    for number in range(250):
        pool.submit(f"{step.tensor_directory}/{number}.pt", "int64", (3,), b"1")
    lines = [text for _, text in ended(step, caplog) if text.startswith("[step 2]")]
    pool.close()
    assert "not recorded: 251 (250 × ValueError: 1 bytes given" in lines[0]
    told = (Path(step.directory) / "dump_error_info.log").read_text().splitlines()
    why = "ValueError: 1 bytes given for int64 of shape (3,), which has 24"
    long = f"dump_tensor_data/{'x' * 300}.pt: {os.strerror(errno.ENAMETOOLONG)}"
    assert sorted(told) == sorted([*(f"dump_tensor_data/{n}.pt: {why}" for n in range(200)), f"50 more tensor files: {why}", long])
    meta = json.loads((Path(step.directory) / "meta.json").read_text())
    assert meta["not_recorded"] == {f"tensor files: {why}": 250, f"tensor files: {os.strerror(errno.ENAMETOOLONG)}": 1}


def test_tensor_files_of_an_earlier_run_go(tmp_path: Path) -> None:
    tensors = tmp_path / "dump" / "step2" / "rank0" / "dump_tensor_data"
    tensors.mkdir(parents=True)
    for name in ("a.pt", "b.npy", ".0a1b2c3d.next", "notes.txt"):
        (tensors / name).touch()
    begun(tmp_path)
    assert [path.name for path in tensors.iterdir()] == ["notes.txt"]


def test_a_document_that_is_not_there_is_told_and_no_place_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = begun(tmp_path)
    step.tally.calls = 1
    step.directory = str(tmp_path / "elsewhere")
    said = ended(step, caplog)
    assert said[1:] == [(logging.WARNING, "dump.json of step 2 is not there: it could not be written")]
    assert step.absent and step.tally.lost == 1


def test_a_step_without_a_directory_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = begun(tmp_path)
    shutil.rmtree(tmp_path / "dump")
    (tmp_path / "dump").touch()  # in the way, since the configuration was checked
    step.writer.add("Torch.relu.0.forward", {"output": []}, True)
    step.tally.calls = 1
    said = [text for _, text in ended(step, caplog)]
    assert said[-1] == "dump.json of step 2 is not there: entries of dump.json lost: Not a directory"
    assert not any("is at" in text for text in said)


def test_a_document_that_lacks_its_end_is_told_with_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = begun(tmp_path)
    step.tally.calls = 1
    step.writer.add("Torch.relu.0.forward", {"output": []}, True)
    hidden = Path(step.directory) / ".dump.json.next"
    hidden.unlink(missing_ok=True)
    hidden.mkdir()  # what the file grows in can neither be written nor be replaced
    said = [text for _, text in ended(step, caplog)]
    assert said[-2].startswith("dump.json of step 2 is not complete: entries of dump.json lost: ")
    assert said[-1] == f"dump.json is at {tmp_path}/dump/step2"
    assert not step.absent


def test_the_files_are_complete_also_where_a_part_of_the_end_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> dict[str, Any]:
        raise KeyError("facts")

    step = begun(tmp_path)
    step.writer.add("Torch.relu.0.forward", {"output": []}, True)
    with caplog.at_level(logging.INFO, "msprobe"):
        step.conclude(time.perf_counter(), failing, lambda: {"kind": "test"})
    assert "not recorded: 1 (1 × KeyError('facts'); see dump_error_info.log)" in caplog.text
    directory = tmp_path / "dump" / "step2" / "rank0"
    assert list(json.loads((directory / "dump.json").read_text())["data"]) == ["Torch.relu.0.forward"]
    assert json.loads((directory / "meta.json").read_text())["kind"] == "test"
    assert (directory / "dump_error_info.log").read_text() == "end of step 2: KeyError('facts')\n"
