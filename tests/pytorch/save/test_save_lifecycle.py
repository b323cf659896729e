"""When save() records, where, and what is said."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import configured, environment, forget_debugger
from debug_json import debugger_for, save, step_of

import warm_python
from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.save import saving


def test_the_lines_of_a_step(tmp_path: Path, told: Any) -> None:
    debugger = debugger_for(tmp_path, task="tensor")
    y = torch.ones(2, requires_grad=True) * 2
    debugger.save([y, y], "y")
    debugger.save(object(), "o")
    y.sum().backward()
    debugger.step()
    begin, end, where = told()
    pid = os.getpid()
    assert begin == f"step 0: saving tensor of what save() is given into {tmp_path}/dump/step0/proc{pid}"
    assert end.startswith("[step 0] saved 4 tensors of 2 calls, 0.0 MB, +") and end.endswith(
        "; not recorded: 1 (1 × a object is no kind of value that is recorded; see dump_error_info.log)"
    )
    assert where == f"debug.json is at {tmp_path}/dump/step0"
    meta = step_of(tmp_path / "dump").meta
    assert meta["recorded"]["tensors"] == 4 and meta["recorded"]["calls"] == 2 and meta["step"] == 0
    assert list(meta["not_recorded"]) == ["o.0.debug: a object is no kind of value that is recorded"]


def test_start_and_stop_record_nothing(tmp_path: Path, told: Any) -> None:
    debugger = debugger_for(tmp_path)
    model = nn.Linear(2, 2)
    debugger.start()
    debugger.start(model)
    debugger.save(model(torch.ones(1, 2)), "y")
    debugger.stop()
    debugger.step()
    assert step_of(tmp_path / "dump").keys == ["y.0.debug", "y_grad.0.debug"]
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.stop()
    debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step0"]
    assert not any("nothing" in line for line in told())


def test_on_the_class(tmp_path: Path) -> None:
    debugger_for(tmp_path)
    PrecisionDebugger.save(torch.ones(1), "y")
    PrecisionDebugger.step()
    assert step_of(tmp_path / "dump").keys == ["y.0.debug", "y_grad.0.debug"]


def test_without_a_debugger() -> None:
    with pytest.raises(UsageError, match="there is no PrecisionDebugger yet"):
        PrecisionDebugger.save(1, "y")


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_other_levels_say_so_once(level: str, tmp_path: Path, told: Any) -> None:
    debugger = configured(tmp_path, level=level)
    for _ in range(3):
        debugger.save(torch.ones(1), "y")
        debugger.save(torch.ones(1), 5)  # type: ignore[arg-type]
        debugger.step()
    assert told() == [f'save() records at level "debug" only, and the level is "{level}": nothing is saved']
    assert not (tmp_path / "dump").exists()


def test_the_step_filter(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, step=[1, "3-4"])
    for n in range(6):
        for _ in range(2):
            debugger.save(n, "n", save_backward=False)
        debugger.step()
    root = tmp_path / "dump"
    assert sorted(p.name for p in root.iterdir()) == ["step1", "step3", "step4"]
    assert [step_of(root, n).data["n.1.debug"]["value"] for n in (1, 3, 4)] == [1, 3, 4]


def test_set_init_step(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    debugger.set_init_step(7)
    debugger.save(1, "n")
    debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step7"]


def test_rank_without_a_process_group(tmp_path: Path, told: Any) -> None:
    debugger = debugger_for(tmp_path, rank=[0])
    for _ in range(3):
        debugger.save(1, "n")
        debugger.step()
    (line,) = [line for line in told() if '"rank"' in line]
    assert "no process group" in line and not (tmp_path / "dump").exists()


def test_rank_id_of_start_names_the_directory(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, rank=[3])
    debugger.start(rank_id=3)
    debugger.save(1, "n")
    debugger.step()
    assert step_of(tmp_path / "dump").directory.name == "rank3"


def test_a_process_group_that_comes_between_two_steps(tmp_path: Path) -> None:
    import torch.distributed as dist

    debugger = debugger_for(tmp_path)
    debugger.save(1, "n")
    debugger.step()
    debugger.save(1, "n")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        debugger.save(2, "n")
        debugger.step()  # began without a rank, ends with one
        debugger.save(1, "n")
        debugger.step()
    finally:
        dist.destroy_process_group()
    names = [step_of(tmp_path / "dump", n).directory.name for n in range(3)]
    assert names == [f"proc{os.getpid()}", "rank0", "rank0"]
    assert [len(step_of(tmp_path / "dump", n).keys) for n in range(3)] == [2, 4, 2]


def test_dump_dir_follows_the_rank(tmp_path: Path) -> None:
    import torch.distributed as dist

    debugger = debugger_for(tmp_path, task="tensor")
    debugger.save(torch.ones(1), "n")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        debugger.step()
    finally:
        dist.destroy_process_group()
    assert step_of(tmp_path / "dump").document["dump_data_dir"] == str(tmp_path / "dump" / "step0" / "rank0" / "dump_tensor_data")


def edit(directory: Path, **fields: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def test_dump_enable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_LOOK_EVERY", 0.0)
    debugger = debugger_for(tmp_path, dump_enable=False)
    debugger.save(0, "n", False)
    edit(tmp_path, dump_enable=True)
    debugger.save(1, "n", False)
    edit(tmp_path, dump_enable=False)
    debugger.save(2, "n", False)
    edit(tmp_path, dump_enable=True)
    debugger.save(3, "n", False)
    debugger.step()
    assert [entry["value"] for entry in step_of(tmp_path / "dump").data.values()] == [1, 3]
    edit(tmp_path, dump_enable=False)
    debugger.save(4, "n", False)
    debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step0"]


def test_the_first_save_of_a_step_looks_at_the_file(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, dump_enable=False)
    for n in range(4):
        edit(tmp_path, dump_enable=n in (1, 2), level="debug" if n < 3 else "L1", summary_mode=None, step=[1] if n == 2 else [])
        debugger.save(torch.ones(1), "n")
        debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step1"]


def test_from_another_level_and_back(tmp_path: Path, told: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = configured(tmp_path, level="L0", dump_enable=True)
    for n in range(3):
        edit(tmp_path, level="debug" if n == 1 else "L0")
        debugger.start(model)
        debugger.save(model(torch.ones(1, 2)), "y")
        debugger.stop()
        debugger.step()
    names = [{p.name for p in next((tmp_path / "dump" / f"step{n}").iterdir()).iterdir()} for n in range(3)]
    assert ["dump.json" in found for found in names] == [True, False, True]
    assert ["debug.json" in found for found in names] == [False, True, False]
    assert sum('records at level "debug" only' in line for line in told()) == 1


def test_many_threads(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, task="tensor")
    failures: list[Any] = []

    def work(n: int) -> None:
        try:
            for k in range(25):
                y = torch.full((3,), float(n), requires_grad=True) * 1
                debugger.save([y, {"k": k}], "y")
                debugger.save(y, f"t{n}")
                (y * n).sum().backward()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    debugger.step()
    assert failures == []
    step = step_of(tmp_path / "dump")
    assert len(step.keys) == 8 * 25 * 4 and len(step.files) == 8 * 25 * 4
    for n in range(200):
        value, gradient = step.data[f"y.{n}.debug"][0], step.data[f"y_grad.{n}.debug"][0]
        assert step.values(value) == step.values(gradient)
    for n in range(8):
        assert [step.data[f"t{n}.{k}.debug"]["Max"] for k in range(25)] == [float(n)] * 25
        assert [step.data[f"t{n}_grad.{k}.debug"]["Max"] for k in range(25)] == [float(n)] * 25
    keys = step.keys
    assert all(keys[i + 1] == key.replace(".", "_grad.", 1) for i, key in enumerate(keys) if not i % 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_inert(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, task="tensor")
    y = torch.ones(2, requires_grad=True) * 2
    debugger.save(y, "y")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            debugger.save(y, "child")
            y.sum().backward()
            debugger.step()
            debugger.save(y.detach(), "child")
            debugger.step()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    y.sum().backward()
    debugger.save(y, "y")
    debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step0"]
    step = step_of(tmp_path / "dump")
    assert step.keys == ["y.0.debug", "y_grad.0.debug", "y.1.debug", "y_grad.1.debug"] and step.data["y_grad.0.debug"]["Max"] == 1.0


PROGRAM = """
import os, sys, time, torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path="dump", level="debug", task="tensor")
y = torch.ones(2, requires_grad=True) * 2
debugger.save({"y": y}, "early")
y.sum().backward()
z = torch.ones(2, requires_grad=True) * 3
debugger.save(z, "waits")
debugger.save(float("nan"), "behind")
%s
"""


@pytest.mark.parametrize("end", ["kill", "_exit", "raise", "exit", "end"])
def test_however_the_process_ends(end: str, tmp_path: Path) -> None:
    """At most the last second is lost where nothing runs any more; else nothing is."""
    way = {
        "kill": "time.sleep(1.2); os.kill(os.getpid(), 9)",
        "_exit": "time.sleep(1.2); os._exit(0)",
        "raise": "raise ValueError('user')",
        "exit": "sys.exit(3)",
        "end": "",
    }[end]
    done = subprocess.run(
        [*warm_python.command(), "-c", PROGRAM % way],
        cwd=tmp_path,
        env={**environment(), "WARM_PYTHON_END": "whole"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == {"kill": -9, "_exit": 0, "raise": 1, "exit": 3, "end": 0}[end]
    step = step_of(tmp_path / "dump")
    assert step.keys == [f"{name}{grad}.0.debug" for name in ("early", "waits", "behind") for grad in ("", "_grad")]
    assert step.values(step.data["early_grad.0.debug"]["y"]) == [1.0, 1.0] and step.data["waits_grad.0.debug"] is None
    if end not in ("kill", "_exit"):
        assert "debug.json is at dump/step0" in done.stderr and "was not ended" not in done.stderr


def test_a_run_that_saved_nothing_says_so(tmp_path: Path) -> None:
    program = "from msprobe.pytorch import PrecisionDebugger\nPrecisionDebugger(dump_path='dump', level='debug', step=[5]).step()"
    done = subprocess.run(
        [*warm_python.command(), "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert "nothing was recorded" in done.stderr and "is save() called, in this process?" in done.stderr


def test_an_error_of_ours_is_contained_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 2
        debugger.save(y, "fine")
        with monkeypatch.context() as patched:
            patched.setattr("msprobe.pytorch.dump.encoder.Encoder.value", lambda *a: 1 / 0)
            debugger.save(y, "broken")
            y.sum().backward()
        debugger.save(1, "later", False)

    step = save(tmp_path, body)
    assert step.keys == ["fine.0.debug", "fine_grad.0.debug", "later.0.debug"]
    assert "broken: could not be saved: ZeroDivisionError" in step.errors
    assert "fine_grad.0.debug: its gradient could not be recorded: ZeroDivisionError" in step.errors


def test_a_directory_that_cannot_be_written(tmp_path: Path, told: Any) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "step0").write_text("a file")
    debugger = debugger_for(tmp_path)
    debugger.save(torch.ones(1), "y")
    debugger.step()
    assert any("cannot be written" in line or "could not be written" in line for line in told())


def test_an_exception_of_the_user_s_passes_through(tmp_path: Path) -> None:
    import signal

    class Alarm(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    debugger = debugger_for(tmp_path)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            end = time.monotonic() + 20
            while time.monotonic() < end:
                debugger.save([torch.ones(2)] * 50, "y", False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    debugger.save(1, "after", False)
    debugger.step()
    assert "after.0.debug" in step_of(tmp_path / "dump").keys
    forget_debugger()


def test_the_package_is_not_the_function() -> None:
    """MindSpore's package has a function of this name."""
    from msprobe.pytorch import save as package

    with pytest.raises(UsageError, match=r"call PrecisionDebugger.save\(variable, name\), at level debug"):
        package(torch.ones(2), "x")  # type: ignore[operator]
