"""Calls whose backward pass comes after step(): a warning once, their names in the step's log, their number at the end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from msprobe.format import layout
from msprobe.recording import late_calls
from msprobe.recording.late_calls import LateCalls, LateInStep
from msprobe.writer import flush_all


def lines(directory: Path) -> list[str]:
    flush_all()
    return (directory / layout.ERRORS).read_text().splitlines()


def test_each_name_once_behind_what_the_log_held(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / layout.ERRORS).write_text("earlier\n")
    late, step = LateCalls(), LateInStep()
    step.tell_to(late.of_step(3, str(tmp_path)))
    for name in ("a.backward", "b.backward", "a.backward"):
        step.came(name)
    first, *rest = lines(tmp_path)
    assert first == "earlier"
    assert [line.partition(":")[0] for line in rest] == ["a.backward", "b.backward"]
    assert len(caplog.messages) == 1
    assert "had ended step 3" in caplog.messages[0]
    assert "call step() after backward()" in caplog.messages[0]
    assert (late.take(), late.take()) == (3, 0)


def test_the_log_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_calls, "_MOST_LINES", 4)
    late = LateCalls()
    came = late.of_step(0, str(tmp_path))
    for number in range(9):
        came(str(number))
    assert len(lines(tmp_path)) == 4
    assert late.untold == 9


def test_two_steps_have_two_logs_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    late = LateCalls()
    for number in (0, 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        late.of_step(number, str(directory))(f"call{number}")
        assert len(lines(directory)) == 1
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("count", "said"), [(0, []), (2, ["calls whose backward pass came after their step had ended: 2"])])
def test_the_end_of_the_interpreter_says_what_no_closing_line_did(
    count: int, said: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "msprobe")
    late = LateCalls()
    came = late.of_step(0, str(tmp_path))
    for number in range(count):
        came(str(number))
    caplog.set_level(logging.INFO, "msprobe")
    late.tell_rest()
    late.tell_rest()
    assert [text[: len(start)] for text, start in zip(caplog.messages, said, strict=True)] == said


def test_a_directory_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    late = LateCalls()
    late.of_step(0, str(tmp_path / "gone"))("call")
    flush_all()
    assert late.untold == 1
    assert not (tmp_path / "gone").exists()


def test_nothing_of_ours_reaches_the_backward_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("as expected")

    monkeypatch.setattr(late_calls.logger, "warning", broken)
    late = LateCalls()
    late.of_step(0, str(tmp_path))("call")
    assert late.untold == 1


def test_a_forked_child_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = LateCalls()
    came = late.of_step(0, str(tmp_path))
    monkeypatch.setattr(late_calls.os, "getpid", lambda: -1)
    came("call")
    late.tell_rest()
    monkeypatch.undo()
    flush_all()
    assert late.untold == 0
    assert not (tmp_path / layout.ERRORS).exists()


def test_what_comes_while_the_step_is_being_ended_is_told_when_it_has(tmp_path: Path) -> None:
    late, step = LateCalls(), LateInStep()
    step.came("a.backward")
    assert late.untold == 0
    step.tell_to(late.of_step(3, str(tmp_path)))
    step.came("b.backward")
    assert [line.partition(":")[0] for line in lines(tmp_path)] == ["a.backward", "b.backward"]
    assert late.untold == 2
