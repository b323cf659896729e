"""Where the values come from: steps, ranks, processes and files of the source."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import forget_debugger
from overriding import TAKES, ZERO, Around, clean, configured, numbered, overridden, source, value

from msprobe.errors import MsprobeException
from msprobe.pytorch import PrecisionDebugger


def test_one_step_of_the_source_for_all(tmp_path: Path) -> None:
    numbered(tmp_path, steps=2)
    model, seen = Around(), []
    debugger = configured(tmp_path, [TAKES], source_step=1)
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [101, 101, 101]


def test_a_step_that_the_source_does_not_have_is_told_and_the_next_is_loaded(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, step=1)
    model, seen = Around(), []
    debugger = configured(tmp_path, [TAKES])
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [0, 1, 0]
    told = [line for line in log if "nothing is replaced in this step" in line]
    assert [line.split(":")[0] for line in told] == ["WARNING [load] step 0"]
    assert f'{tmp_path / "source"} has no step0; "source_step" loads one step of it in every step' in told[0]


def test_steps_without_a_source_are_told_once_and_counted_at_the_end(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, step=3)
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    for _ in range(8):
        debugger.start(model)
        model(ZERO)
        debugger.step()
    assert len([line for line in log if "nothing is replaced in this step" in line]) == 1
    assert PrecisionDebugger._session is not None and PrecisionDebugger._session.override is not None
    PrecisionDebugger._session.override.at_exit()
    assert log[-1] == "WARNING [load] nothing was replaced in 7 steps, for which there was no source: 0-2, 4-7"


@pytest.mark.parametrize("content", [None, b"damaged"], ids=["missing", "damaged"])
def test_a_file_that_cannot_be_loaded_in_any_step_is_told_once(tmp_path: Path, log: list[str], content: bytes | None) -> None:
    for step in range(3):
        root = source(tmp_path, {}, step=step)
        if content is not None:
            (root / f"step{step}" / "proc1" / "dump_tensor_data" / f"{TAKES}.input.0.pt").write_bytes(content)
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        debugger.step()
    assert len([line for line in log if line.startswith("WARNING")]) == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (
            {"task": "statistics", "level": "L0"},
            'the dump was recorded with task "statistics", and only task "tensor" writes tensor files',
        ),
        ({"task": "tensor", "level": "L1"}, "the dump was recorded at level L1, which has no modules; L0 and mix do"),
    ],
    ids=["statistics", "L1"],
)
def test_a_dump_that_can_be_no_source_says_so_once(tmp_path: Path, log: list[str], how: dict[str, Any], why: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "source"), **how}))
    model = Around()
    debugger = PrecisionDebugger(config_path=str(path))
    debugger.start(model)
    model(ZERO + 0, ZERO + 1)
    debugger.stop()
    debugger.step()
    forget_debugger()
    log.clear()
    with overridden(tmp_path, [TAKES], model):
        model(ZERO, torch.ones(2))
    assert [line for line in log if line.startswith("WARNING")] == [
        f"WARNING [load] no source for {TAKES}.input.0, nor for any other call: {why}; the values that arrived are kept"
    ]


def test_a_call_that_the_dump_does_not_have(tmp_path: Path, log: list[str]) -> None:
    root = source(tmp_path, {}, dump={"Module.other.Takes.forward.0": {}})
    with overridden(tmp_path, [TAKES], model := Around()):
        model(ZERO)
    file = root / "step0" / "proc1" / "dump_tensor_data" / f"{TAKES}.input.0.pt"
    told = f"no source for {TAKES}.input.0: {file} does not exist (the dump has no such call); the value that arrived is kept"
    assert f"WARNING [load] {told}" in log


def test_a_missing_file_leaves_the_value(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.1": torch.ones(2)})
    model, x, empty = Around(), torch.zeros(2), torch.zeros(0, 3)
    with overridden(tmp_path, [TAKES], model):
        model(x, ZERO, 3, empty)
    assert model.inner.args[0] is x
    assert model.inner.args[1].tolist() == [1, 1]
    assert model.inner.args[3] is empty
    file = tmp_path / "source" / "step0" / "proc1" / "dump_tensor_data" / f"{TAKES}.input.0.pt"
    assert [line for line in log if line.startswith("WARNING")] == [
        f"WARNING [load] no source for {TAKES}.input.0: {file} does not exist; the value that arrived is kept"
    ]


def test_a_damaged_or_dangerous_file_leaves_the_value(tmp_path: Path, log: list[str]) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    root = source(tmp_path, {f"{TAKES}.input.3": torch.ones(2)})
    data = root / "step0" / "proc1" / "dump_tensor_data"
    (data / f"{TAKES}.input.0.pt").write_bytes(b"PK\3\4 torn")
    torch.save(Evil(), data / f"{TAKES}.input.1.pt")
    (data / f"{TAKES}.input.2.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"a": torch.ones(2)}, data / f"{TAKES}.input.4.pt")
    os.mkfifo(data / f"{TAKES}.input.5.pt")
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(*[torch.zeros(2) for _ in range(6)])
    assert [float(a[0]) for a in model.inner.args] == [0, 0, 0, 1, 0, 0]
    assert not (tmp_path / "executed").exists()
    for number in (0, 1, 2, 4, 5):
        assert any(f"{TAKES}.input.{number} could not be replaced, the value that arrived is kept: " in line for line in log), number


def test_an_empty_tensor_needs_no_file(tmp_path: Path) -> None:
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [0, 3], "Max": None, "Min": None, "Mean": None, "Norm": None}
    source(tmp_path, {}, dump={TAKES: {"input_args": [record], "input_kwargs": {}, "output": [record]}})
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(torch.zeros(2, 3))
    assert model.inner.args[0].shape == (0, 3)


def test_the_data_name_is_believed(tmp_path: Path) -> None:
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": "other.pt"}
    root = source(tmp_path, {"other": torch.ones(2), f"{TAKES}.input.0": ZERO - 1}, dump={TAKES: {"input_args": [record]}})
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == 1
    forget_debugger()
    record["data_name"] = f"../../../step0/proc1/dump_tensor_data/{'other.pt'}"  # no file name: it is not followed
    source(tmp_path, {}, dump={TAKES: {"input_args": [record]}})
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == -1
    forget_debugger()
    (root / "step0" / "proc1" / "dump.json").write_text("{broken")
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == -1


def test_several_processes_in_the_source(tmp_path: Path) -> None:
    for place in ("proc7", "proc12"):
        source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place=place)
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    with pytest.raises(MsprobeException, match=r"has the directories of several processes, proc7, proc12: remove all but") as caught:
        debugger.start(model)
    assert str(tmp_path / "source" / "step0") in str(caught.value)
    assert clean(model)
    (tmp_path / "source" / "step0" / "proc7" / "dump_tensor_data" / f"{TAKES}.input.0.pt").unlink()
    for directory in ("proc7/dump_tensor_data", "proc7"):
        (tmp_path / "source" / "step0" / directory).rmdir()
    debugger.start(model)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 1


def test_several_processes_in_a_later_step_are_a_warning(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path, steps=2)
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, step=1, place="proc2")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    for expected in (1, 0):
        debugger.start(model)
        model(ZERO)
        assert value(model.inner) == expected
        debugger.step()
    assert any("the directories of several processes, proc1, proc2" in line for line in log)


def test_ranks_of_the_source(tmp_path: Path) -> None:
    for rank in (0, 3):
        source(tmp_path, {f"{TAKES}.input.0": torch.full((2,), rank + 1.0)}, place=f"rank{rank}")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    with pytest.raises(MsprobeException, match=r'holds rank0, rank3, and this process has no rank: say which one to load by "source_rank"'):
        debugger.start(model)
    debugger.start(model, rank_id=3)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 4
    forget_debugger()
    with overridden(tmp_path, [TAKES], model, source_rank=0):
        model(ZERO)
    assert value(model.inner) == 1
    forget_debugger()
    debugger = configured(tmp_path, [TAKES], source_rank=1)
    with pytest.raises(MsprobeException, match=r"has no rank1, but rank0, rank3$"):
        debugger.start(model)


def test_a_rank_that_is_not_selected_or_not_there(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place="rank0")
    model = Around()
    debugger = configured(tmp_path, [TAKES], rank=[0, 2])
    seen = []
    for rank in (0, 1, 2, None):
        debugger.start(model, rank_id=rank)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.stop()
        debugger.set_init_step(0)
        debugger.step()
        debugger.set_init_step(0)
    assert seen == [1, 0, 0, 0]
    assert any('has no rank2, but rank0; "source_rank" loads one rank of it on every rank; nothing is replaced' in line for line in log)
    assert any('"load"."rank" is set, but this process has no rank' in line for line in log)


def test_the_one_directory_there_is(tmp_path: Path) -> None:
    """A source of one process for a run with a rank, and the other way round."""
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place="proc5")
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2) * 2}, step=1, place="rank4")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    seen = []
    for rank in (0, None):
        debugger.start(model, rank_id=rank)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [1, 2]


@pytest.mark.parametrize("relative", [True, False])
def test_a_relative_path_is_that_of_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    numbered(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = Around()
    debugger = configured(tmp_path, [TAKES], path="source" if relative else str(tmp_path / "source"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    debugger.start(model)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 1
