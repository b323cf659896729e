"""The files of one step."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.format import reader
from msprobe.log import logger
from msprobe.writer import CloseReport, StepWriter, flush_all, growing_file, step_files, step_writer
from msprobe.writer.entry import Entry
from msprobe.writer.flusher import flusher
from writer.interruption import interrupted

FILES = ["construct.json", "dump.json", "meta.json", "stack.json"]


def open_writer(directory: Path | str, **options: Any) -> StepWriter:
    return StepWriter(directory, task="statistics", level="mix", **options)


def record(value: Any = 1.5) -> dict[str, Any]:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": value, "requires_grad": False}
    return {"input_args": [tensor, None], "input_kwargs": {}, "output": [tensor]}


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            seen.append(line.getMessage())

    monkeypatch.setattr(logger, "handlers", [Keep()])
    return seen


def test_the_files_of_a_new_step(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path / "a" / "step0" / "proc1")
    assert sorted(os.listdir(writer.directory)) == FILES
    shell = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": {}}
    document = strict(Path(writer.directory) / "dump.json")
    assert document == shell
    assert list(document) == list(shell)
    for name in ("stack.json", "construct.json", "meta.json"):
        assert (Path(writer.directory) / name).read_text() == "{}"
    report = writer.close()
    assert report == CloseReport(sum((Path(writer.directory) / name).stat().st_size for name in FILES))
    assert sorted(os.listdir(writer.directory)) == FILES


def test_everything_once(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    writer.add("b", record(1), True)
    entry = writer.add("a", record(2))
    writer.add_call("a", None)
    writer.add_call("b", "a")
    writer.add_stack("a", 1, ["f"])
    writer.add_stack("b", 1, ["f"])
    writer.meta["seed"] = 3
    writer.error("something was odd\n")
    entry.data["output"] = [None]
    report = writer.close()
    data = strict(tmp_path / "dump.json")["data"]
    assert list(data.items()) == [("b", record(1)), ("a", {**record(2), "output": [None]})]
    assert list(strict(tmp_path / "construct.json").items()) == [("a", None), ("b", "a")]
    assert strict(tmp_path / "stack.json") == {"0": [["a", "b"], ["f"]]}
    assert strict(tmp_path / "meta.json") == {"seed": 3}
    assert (tmp_path / "dump_error_info.log").read_text() == "something was odd\n"
    assert (report.problems, report.lost) == ({}, 0)
    assert report.bytes_written == sum((tmp_path / name).stat().st_size for name in FILES)


def test_flushes_in_between_change_nothing(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    for number in range(20):
        writer.add(f"n{number}", record(number), True)
        writer.add_call(f"n{number}", None if number < 3 else "n1")
        writer.add_stack(f"n{number}", number % 3, [f"frame {number % 3}"])
        writer.error(f"line {number}")
        writer.meta["count"] = number
        writer.flush()
        assert list(strict(tmp_path / "dump.json")["data"]) == [f"n{n}" for n in range(number + 1)]
        assert len(strict(tmp_path / "construct.json")) == number + 1
        assert set(reader.read_stack(tmp_path)) == {f"n{n}" for n in range(number + 1)}
        assert strict(tmp_path / "meta.json") == {"count": number}
        assert (tmp_path / "dump_error_info.log").read_text().splitlines()[-1] == f"line {number}"
    writer.close()
    assert list(strict(tmp_path / "stack.json").values())[1] == [[f"n{n}" for n in range(1, 20, 3)], ["frame 1"]]
    assert len(strict(tmp_path / "stack.json")) == 3
    assert sorted(os.listdir(tmp_path)) == [*FILES[:2], "dump_error_info.log", *FILES[2:]]


def test_pending_entries_are_written_at_every_flush_until_done(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    entry = writer.add("slow", {"input_args": []})
    for number in range(3):
        writer.add(f"n{number}", {}, True)
        entry.data["output"] = number
        writer.flush()
        assert strict(tmp_path / "dump.json")["data"]["slow"] == {"input_args": [], "output": number}
    entry.done = True
    writer.flush()
    entry.data["output"] = "too late"
    writer.close()
    assert strict(tmp_path / "dump.json")["data"] == {"n0": {}, "n1": {}, "n2": {}, "slow": {"input_args": [], "output": 2}}


def test_tensor_directory_is_named_as_given(tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = open_writer("dump dir/stëp0", tensors=True)
    monkeypatch.chdir("/")  # a relative path means the directory it meant at the beginning
    writer.add("a", {}, True)
    writer.flush()
    writer.close()
    document = strict(tmp_path / "dump dir" / "stëp0" / "dump.json")
    assert document["dump_data_dir"] == "dump dir/stëp0/dump_tensor_data"
    assert document["data"] == {"a": {}}
    assert (tmp_path / "dump dir" / "stëp0" / "dump_tensor_data").is_dir()


def test_without_extra_info(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("of an earlier run")
    writer = open_writer(tmp_path, extra_info=False)
    writer.add_call("a", None)
    writer.add_stack("a", 1, ["f"])
    writer.flush()
    writer.close()
    assert sorted(os.listdir(tmp_path)) == ["dump.json", "meta.json"]


def test_an_earlier_run_is_replaced(tmp_path: Path, strict: Any) -> None:
    leftovers = [*FILES, "dump_error_info.log", *(f".{name}.next" for name in FILES), ".dump.json.next~", "..meta.json.next"]
    for name in leftovers:
        (tmp_path / name).write_text("stale " * 1000)
    os.link(tmp_path / "dump.json", tmp_path / "kept as.json")
    (tmp_path / "dump_tensor_data").mkdir()
    (tmp_path / "dump_tensor_data" / "old.pt").write_text("x")
    (tmp_path / "dump_tensor_data" / ".0a1b2c3d.next").write_text("half a tensor")
    writer = open_writer(tmp_path, tensors=True)
    kept = ["..meta.json.next", "dump_tensor_data", "kept as.json"]
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, *kept])
    assert strict(tmp_path / "dump.json")["data"] == {}
    writer.add("a", {}, True)
    writer.flush()
    writer.add("b", {}, True)
    writer.close()
    assert list(strict(tmp_path / "dump.json")["data"]) == ["a", "b"]
    assert (tmp_path / "kept as.json").read_text().startswith("stale")
    assert os.listdir(tmp_path / "dump_tensor_data") == ["old.pt"]


@pytest.mark.parametrize("flush_between", [False, True])
@pytest.mark.parametrize("first_done", [False, True])
@pytest.mark.parametrize("second_done", [False, True])
def test_a_name_added_twice_gets_the_later_value_and_place(
    flush_between: bool, first_done: bool, second_done: bool, tmp_path: Path, strict: Any
) -> None:
    writer = open_writer(tmp_path)
    writer.add("x", {"value": 1}, first_done)
    writer.add("y", {}, True)
    if flush_between:
        writer.flush()
    writer.add("x", {"value": 2}, second_done)
    writer.flush()
    assert strict(tmp_path / "dump.json")["data"]["x"] == {"value": 2}
    writer.add("z", {}, True)
    writer.close()
    data = strict(tmp_path / "dump.json")["data"]
    assert data == {"y": {}, "x": {"value": 2}, "z": {}}
    assert list(data).index("y") < list(data).index("x")


def test_a_parent_given_twice(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    for flush, (name, parent) in enumerate([("a", None), ("b", "a"), ("a", "root"), ("c", "b"), ("c", "a"), ("b", "a")]):
        writer.add_call(name, parent)
        if flush % 2:
            writer.flush()
    assert strict(tmp_path / "construct.json") == {"a": "root", "b": "a", "c": "a"}
    writer.close()
    assert strict(tmp_path / "construct.json") == {"a": "root", "b": "a", "c": "a"}


def test_values_json_cannot_say(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    writer.add("good", {"x": 1}, True)
    writer.add("bad", {"x": 1 + 2j, "y": 2}, True)
    report = writer.close()
    assert strict(tmp_path / "dump.json")["data"] == {"good": {"x": 1}, "bad": {"x": None, "y": 2}}
    assert list(report.problems) == ["bad: a builtins.complex has no JSON form; null written instead"]
    assert report.lost == 0
    assert "bad: a builtins.complex" in (tmp_path / "dump_error_info.log").read_text()


def test_after_close(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    writer.add("a", {}, True)
    report = writer.close()
    entry = writer.add("late", {}, True)
    entry.done = True
    writer.add_call("late", None)
    writer.add_stack("late", 1, ["f"])
    writer.error("late")
    writer.flush()
    flush_all()
    assert writer.close() is report
    assert strict(tmp_path / "dump.json")["data"] == {"a": {}}
    assert not (tmp_path / "dump_error_info.log").exists()
    assert id(writer) not in flusher().live


def test_what_another_thread_adds_while_the_step_ends(tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the last look at what there is: it is written, as far as it has come. After it: it is lost, and told as that."""
    writer, collect, finish = open_writer(tmp_path), StepWriter._collect, growing_file.GrowingFile.finish

    def collect_later(self: StepWriter) -> growing_file.Pieces:
        writer.add("running", {"input": 1})
        return collect(self)

    def finish_later(self: growing_file.GrowingFile, transient: growing_file.Pieces = ()) -> None:
        writer.add(f"late for {os.path.basename(self.path)}", {}, True)
        finish(self, transient)

    monkeypatch.setattr(StepWriter, "_collect", collect_later)
    monkeypatch.setattr(growing_file.GrowingFile, "finish", finish_later)
    writer.add("a", {}, True)
    report = writer.close()
    assert strict(tmp_path / "dump.json")["data"] == {"a": {}, "running": {"input": 1}}
    assert report.problems == {"entries of dump.json lost: added by another thread as the step ended": 3}
    assert report.lost == 3


@pytest.mark.parametrize("flush_first", [False, True])
def test_the_directory_is_taken_away(flush_first: bool, tmp_path: Path, strict: Any, warnings: list[str]) -> None:
    directory = tmp_path / "step0"
    writer = open_writer(directory, tensors=True)
    writer.add("early", {}, True)
    writer.add_call("early", None)
    writer.add_stack("early", 1, ["f"])
    if flush_first:
        writer.flush()
    shutil.rmtree(directory)
    writer.add("late", {}, True)
    writer.add_call("late", "early")
    writer.add_stack("late", 2, ["g"])
    report = writer.close()
    names = ["late"] if flush_first else ["early", "late"]
    assert list(strict(directory / "dump.json")["data"]) == names
    assert strict(directory / "construct.json") == {"early": None, "late": "early"}  # these are kept in memory
    assert strict(directory / "stack.json") == {"0": [["early"], ["f"]], "1": [["late"], ["g"]]}
    assert (directory / "dump_tensor_data").is_dir()
    assert report.lost == (1 if flush_first else 0)
    assert len(warnings) == 1
    assert "removed" in warnings[0]
    assert str(directory) in warnings[0]


def test_one_file_is_taken_away(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    for number in range(3):
        writer.add(f"n{number}", {}, True)
        writer.add_stack(f"n{number}", number, ["f"])
        writer.flush()
    os.unlink(tmp_path / "stack.json")
    writer.add("n3", {}, True)
    writer.add_stack("n3", 3, ["f"])
    report = writer.close()
    assert list(strict(tmp_path / "dump.json")["data"]) == ["n0", "n1", "n2", "n3"]
    assert len(strict(tmp_path / "stack.json")) == 4
    assert report.lost == 0


def test_a_loss_is_told_also_where_making_the_next_file_anew_fails(tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_writer(tmp_path)
    for number in range(9):
        writer.add(f"n{number}", {}, True)
        writer.add_call(f"n{number}", None)
    writer.flush()
    for name in ("dump.json", "construct.json"):
        os.unlink(tmp_path / name)
    real = step_files._place

    def once(hidden: str, path: str, data: bytes) -> None:
        if path.endswith("construct.json"):
            monkeypatch.setattr(step_files, "_place", real)
            raise OSError(28, "No space left on device")
        real(hidden, path, data)

    monkeypatch.setattr(step_files, "_place", once)
    for name in ("a", "b"):
        writer.add(name, {}, True)
        writer.add_call(name, None)
        writer.flush()
    assert writer.close().lost == 9
    assert list(strict(tmp_path / "dump.json")["data"]) == ["a", "b"]
    assert len(strict(tmp_path / "construct.json")) == 11


@pytest.mark.parametrize("name", ["dump.json", "stack.json", "construct.json"])
def test_a_document_that_is_taken_away_when_nothing_more_comes(name: str, tmp_path: Path, strict: Any, warnings: list[str]) -> None:
    writer = open_writer(tmp_path)
    writer.add("a", {}, True)
    writer.add_call("a", None)
    writer.add_stack("a", 1, ["f"])
    writer.flush()
    os.unlink(tmp_path / name)
    assert writer.close().lost == (name == "dump.json")
    assert strict(tmp_path / "construct.json") == {"a": None} and len(strict(tmp_path / "stack.json")) == 1
    assert len(warnings) == 1 and "was removed during the run" in warnings[0]


@pytest.mark.parametrize("when", ["from the beginning", "later", "for a while"])
def test_full_disk(when: str, tmp_path: Path, strict: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    if when == "from the beginning":
        monkeypatch.setattr(os, "pwritev", full)
    writer = open_writer(tmp_path / "step0")
    writer.add("a", record(), True)
    writer.flush()
    monkeypatch.setattr(os, "pwritev", full)
    for number in range(3):
        writer.add(f"n{number}", record(), True)
        writer.flush()
    if when == "later":
        assert list(strict(tmp_path / "step0" / "dump.json")["data"]) == ["a"]
    if when == "for a while":
        monkeypatch.undo()
        monkeypatch.setattr(logger, "handlers", [])
    report = writer.close()
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    if when == "for a while":
        assert list(strict(tmp_path / "step0" / "dump.json")["data"]) == ["a", "n0", "n1", "n2"]
        assert report.lost == 0
    else:
        assert report.lost == (4 if when == "from the beginning" else 3)
        assert report.problems["entries of dump.json lost: No space left on device"] == report.lost
        assert not [name for name in os.listdir(tmp_path / "step0") if name.endswith(".next") and "dump.json" in name]


def test_what_an_earlier_run_wrote_is_not_taken_for_what_could_not_be_written(
    tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_writer(tmp_path)
    first.add("earlier", {}, True)
    first.close()
    assert (tmp_path / "dump.json").exists()

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        second = open_writer(tmp_path)
        second.add("a", {}, True)
        second.flush()
        assert not [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    second.add("b", {}, True)
    assert second.close().lost == 0
    assert list(strict(tmp_path / "dump.json")["data"]) == ["a", "b"]


@pytest.mark.parametrize("lazy", [False, True])
def test_the_text_of_a_step_is_never_put_together(lazy: bool, tmp_path: Path) -> None:
    """Copies of it would be large enough for malloc to take other memory for them in every step, and keep it."""
    writer = open_writer(tmp_path / "step0", lazy=lazy)
    for number in range(40 * step_writer._READY):
        writer.add(f"n{number}", {"text": "x" * 1000}, True)
    size = sum(len(entry.text) for entry in writer._entries)
    tracemalloc.start()
    try:
        writer.flush()  # the hidden file takes it again at the next one
        writer.add("last", {}, True)
        writer.flush()
        writer.close()
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()


def test_memory_for_a_full_disk_is_bounded(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.writer import step_writer

    monkeypatch.setattr(step_writer, "_MAX_WAITING", 10_000)
    writer = open_writer(tmp_path)

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    for number in range(30):
        writer.add(f"n{number}", {"text": "x" * 1000}, True)
        writer.flush()
        assert writer._dump.waiting < 15_000
    assert writer.close().lost == 30


def test_a_directory_that_cannot_be_made(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("x")
    writer = open_writer(tmp_path / "file" / "step0")
    writer.add("a", {}, True)
    writer.flush()
    report = writer.close()
    assert report.lost == 1
    assert len(warnings) == 1
    assert "cannot be written" in warnings[0]
    assert (tmp_path / "file").read_text() == "x"


def test_file_size_limit_in_a_child_process(tmp_path: Path, strict: Any) -> None:
    """The kernel itself refuses, in the middle of a write."""
    import subprocess

    code = (
        "import resource, sys\n"
        "from msprobe.writer import StepWriter\n"
        "writer = StepWriter(sys.argv[1], task='statistics', level='L1')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "for number in range(40):\n"
        "    writer.add(f'n{number}', {'text': 'x' * 1000}, True)\n"
        "    writer.flush()\n"
        "print(writer.close().lost)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(growing_file.__file__).parents[2])}
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment, check=True)
    kept = len(strict(tmp_path / "dump.json")["data"])
    assert 10 < kept < 25
    assert int(result.stdout) == 40 - kept
    assert result.stderr.count("\n") == 1
    assert "File too large" in result.stderr


def test_the_thread_writes_by_itself(tmp_path: Path, strict: Any) -> None:
    import time

    writer = open_writer(tmp_path)
    writer.add("a", {}, True)
    deadline = time.monotonic() + 20
    while not strict(tmp_path / "dump.json")["data"]:
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.02)
    writer.close()


def test_adding_from_many_threads_while_flushing(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(thread: int) -> None:
        for number in range(150):
            entry = writer.add(f"t{thread}n{number}", {"value": number})
            writer.add_call(f"t{thread}n{number}", None)
            writer.add_stack(f"t{thread}n{number}", number % 7, ["f"])
            entry.data["output"] = [number]
            entry.done = True

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        writer.flush()
    sys.setswitchinterval(before)
    report = writer.close()
    expected = {f"t{thread}n{number}": {"value": number, "output": [number]} for thread in range(4) for number in range(150)}
    assert strict(tmp_path / "dump.json")["data"] == expected
    assert set(strict(tmp_path / "construct.json")) == set(expected)
    assert set(reader.read_stack(tmp_path)) == set(expected)
    assert (report.lost, report.problems) == (0, {})


def test_a_signal_handler_may_close_the_writer(tmp_path: Path, strict: Any) -> None:
    import signal

    writer = open_writer(tmp_path)
    writer.add("a", {}, True)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: writer.close())
    real = step_files.StepFiles.append_errors
    try:
        writer.error("makes the flush call the handler in the middle of its work")

        def interrupting(files: step_files.StepFiles, lines: list[str]) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            real(files, lines)

        step_files.StepFiles.append_errors = interrupting  # type: ignore[method-assign]
        writer.flush()
    finally:
        step_files.StepFiles.append_errors = real  # type: ignore[method-assign]
        signal.signal(signal.SIGUSR1, before)
    writer.add("b", {}, True)
    writer.close()
    assert list(strict(tmp_path / "dump.json")["data"]) == ["a", "b"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add done", "finish one", "change one", "again", "flush", "interrupt"]), st.integers(0, 10**6)),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(STEPS)
def test_any_sequence(tmp_path: Path, strict: Any, steps: list[tuple[str, int]]) -> None:
    """Whatever is added, finished, flushed and interrupted: the files say what a plain dict says."""
    shutil.rmtree(tmp_path / "step", ignore_errors=True)
    writer = open_writer(tmp_path / "step")
    model: dict[str, Any] = {}
    open_entries: list[Any] = []
    parents: dict[str, str | None] = {}
    for number, (step, choice) in enumerate(steps):
        if step in {"add", "add done"} or (step == "again" and not model):
            name = f"n{number}"
            model[name] = {"value": choice}
            entry = writer.add(name, model[name], step == "add done")
            parents[name] = f"n{choice % 5}" if choice % 3 else None
            writer.add_call(name, parents[name])
            writer.add_stack(name, choice % 4, [f"frame {choice % 4}"])
            if not entry.done:
                open_entries.append(entry)
        elif step == "again":
            name = sorted(model)[choice % len(model)]
            open_entries = [entry for entry in open_entries if entry.name != name]
            model.pop(name)
            model[name] = {"again": choice}
            open_entries.append(writer.add(name, model[name]))
        elif step == "finish one" and open_entries:
            open_entries.pop(choice % len(open_entries)).done = True
        elif step == "change one" and open_entries:
            open_entries[choice % len(open_entries)].data["changed"] = choice
        elif step == "interrupt":
            interrupted(writer.flush, choice % 150 + 1)
            strict(tmp_path / "step" / "dump.json")
        elif step == "flush":
            writer.flush()
            assert strict(tmp_path / "step" / "dump.json")["data"] == model
            assert strict(tmp_path / "step" / "construct.json") == parents
    report = writer.close()
    assert strict(tmp_path / "step" / "dump.json")["data"] == model
    assert strict(tmp_path / "step" / "construct.json") == parents
    stacks = strict(tmp_path / "step" / "stack.json")
    assert set(reader.read_stack(tmp_path / "step")) == set(parents)
    assert len(stacks) == len({tuple(frames) for _, frames in stacks.values()})
    assert sum(len(names) for names, _ in stacks.values()) == len(parents)
    assert (report.lost, report.problems) == (0, {})
    assert not [name for name in os.listdir(tmp_path / "step") if name.startswith(".")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=3), st.integers(0, 2))
def test_close_interrupted(tmp_path: Path, strict: Any, moments: list[int], flushes: int) -> None:
    """Ctrl-C in close() at any line, again and again: the next close() (or the end of the process) writes everything."""
    shutil.rmtree(tmp_path / "step", ignore_errors=True)
    writer = open_writer(tmp_path / "step")
    for number in range(flushes + 1):
        writer.add(f"n{number}", {}, True)
        writer.add(f"p{number}", {})
        writer.add_call(f"n{number}", None)
        writer.add_stack(f"n{number}", 1, ["f"])
        if number < flushes:
            writer.flush()
    for moment in moments:
        interrupted(writer.close, moment)
        strict(tmp_path / "step" / "dump.json")
    report = writer.close()
    assert set(strict(tmp_path / "step" / "dump.json")["data"]) == {f"{kind}{n}" for n in range(flushes + 1) for kind in "np"}
    assert strict(tmp_path / "step" / "stack.json") == {"0": [[f"n{n}" for n in range(flushes + 1)], ["f"]]}
    assert report.lost == 0
    assert sorted(os.listdir(tmp_path / "step")) == FILES


def test_json_of_our_own_is_read_by_our_reader(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, tensors=True)
    writer.add("Torch.add.0.forward", record(float("nan")), True)
    writer.add_stack("Torch.add.0.forward", 1, ["frame"])
    writer.add_call("Torch.add.0.forward", None)
    writer.close()
    dump = reader.read_dump(tmp_path)
    assert json.dumps(dump.data["Torch.add.0.forward"]) == json.dumps(record(float("nan")))
    assert reader.read_stack(tmp_path) == {"Torch.add.0.forward": ["frame"]}
    assert reader.read_construct(tmp_path) == {"Torch.add.0.forward": None}
    assert dump.tensor_dir == tmp_path / "dump_tensor_data"


def test_another_file_that_cannot_be_written_is_told_of(
    tmp_path: Path, strict: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(tmp_path)
    for number in range(3):
        writer.add(f"n{number}", {}, True)
        writer.add_stack(f"n{number}", number, ["f"])
        writer.flush()
    real = os.open

    def refuse(path: str, *rest: Any) -> int:
        if "stack" in str(path):
            raise OSError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    writer.add("n3", {}, True)
    writer.add_stack("n3", 3, ["f"])
    report = writer.close()
    assert list(strict(tmp_path / "dump.json")["data"]) == ["n0", "n1", "n2", "n3"]
    assert len(strict(tmp_path / "stack.json")) == 3
    assert (report.lost, dict(report.problems)) == (0, {"stack.json is not complete: Permission denied": 1})
    assert len(warnings) == 1


def test_what_is_wrong_beside_the_entries_does_not_stop_them(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    writer.add("a", {}, True)
    writer.add_stack("a", ["unhashable"], ["f"])
    writer.add_call({}, None)  # type: ignore[arg-type]
    writer.error(3)  # type: ignore[arg-type]
    writer.meta["odd"] = {1 + 2j}
    writer.flush()
    writer.flush()
    writer.add("b", {}, True)
    writer.add_stack("b", 1, ["f"])
    writer.add_call("b", None)
    report = writer.close()
    assert strict(tmp_path / "dump.json")["data"] == {"a": {}, "b": {}}
    assert strict(tmp_path / "stack.json") == {"0": [["b"], ["f"]]}
    assert strict(tmp_path / "construct.json") == {"b": None}
    assert strict(tmp_path / "meta.json") == {"odd": None}
    assert report.lost == 0
    assert len(report.problems) == 3
    assert len((tmp_path / "dump_error_info.log").read_text().splitlines()) == 4


def test_an_unfinished_entry_with_a_bad_value_is_told_of_once(tmp_path: Path, strict: Any) -> None:
    writer = open_writer(tmp_path)
    entry = writer.add("a", {"x": 1j})
    for _ in range(3):
        writer.flush()
        assert strict(tmp_path / "dump.json")["data"] == {"a": {"x": None}}
    entry.done = True
    assert list(writer.close().problems.values()) == [1]


def test_the_order_does_not_depend_on_flushes(tmp_path: Path) -> None:
    """An entry that is not done at a flush keeps its place before those that are done meanwhile."""
    orders = []
    for flushes in (False, True):
        writer = StepWriter(tmp_path / str(flushes), task="statistics", level="mix")
        early = writer.add("early", {"x": 0})
        for number in range(5):
            writer.add(f"later{number}", {"x": number}, True)
            if flushes:
                writer.flush()
                assert next(iter(json.loads((tmp_path / "True" / "dump.json").read_text())["data"])) == "early"
        early.data["x"] = 1
        writer.finish(early)
        writer.close()
        data = json.loads((tmp_path / str(flushes) / "dump.json").read_text())["data"]
        assert data["early"] == {"x": 1}
        orders.append(list(data))
    assert orders[0] == orders[1] == ["early", *(f"later{number}" for number in range(5))]


def test_much_that_is_done_overtakes_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_writer, "_MAX_HELD", 100)
    writer = StepWriter(tmp_path, task="statistics", level="mix")
    early = writer.add("early", {"x": 0})
    writer.add("later", {"x": "y" * 200}, True)
    writer.flush()
    writer.finish(early)
    writer.close()
    assert list(json.loads((tmp_path / "dump.json").read_text())["data"]) == ["later", "early"]


class _FinishedMeanwhile(Entry):
    """Another thread finishes it just after somebody has looked whether it is done."""

    __slots__ = ()
    looks = 0

    @property
    def done(self) -> bool:  # type: ignore[override]
        _FinishedMeanwhile.looks += 1
        return _FinishedMeanwhile.looks > 1

    @done.setter
    def done(self, value: bool) -> None:
        pass


def test_an_entry_that_is_finished_during_a_flush_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_writer, "_MAX_HELD", 100)
    monkeypatch.setattr(_FinishedMeanwhile, "looks", 0)
    writer = StepWriter(tmp_path, task="statistics", level="mix")
    early = writer.add("early", {"x": 0})
    writer.add("later", {"x": "y" * 200}, True)
    monkeypatch.setattr(step_writer, "Entry", _FinishedMeanwhile)
    writer.add("turning", {"x": 1})
    writer.flush()
    writer.finish(early)
    assert writer.close().lost == 0
    assert sorted(json.loads((tmp_path / "dump.json").read_text())["data"]) == ["early", "later", "turning"]
