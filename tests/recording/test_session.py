"""A session without any framework: what is selected, and what is said once, at the end of a step, and at that of the interpreter."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import load_config
from msprobe.errors import UsageError
from msprobe.recording.debugger import BaseDebugger
from msprobe.recording.session import BaseSession, check_rank_id, contained, every_part
from msprobe.recording.step import Step


class Session(BaseSession):
    NO_RANK = "no rank"

    def __init__(self, root: Path, **fields: Any) -> None:
        super().__init__()
        file = root / "config.json"
        file.write_text(json.dumps({"task": "statistics", "level": "L1", "dump_path": str(root / "dump"), "statistics": {}, **fields}))
        self.config = load_config(str(file))
        self.root = self.config.dump_path
        self.off = self.forgotten = self.left = 0

    def switch_off(self) -> None:
        self.off += 1

    def forget(self) -> None:
        self.forgotten += 1

    def at_exit(self) -> None:
        self.left += 1


@pytest.fixture(autouse=True)
def everything_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "msprobe")


def test_steps_and_ranks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(tmp_path, step=[0, 1], rank=[0])
    assert session.selects(0)
    assert not session.selects(None)
    assert not session.selects(None)
    assert caplog.messages == ['no rank, so nothing is recorded; leave "rank" empty']
    assert not session.selects(3)
    session.tell_nothing()
    assert caplog.messages[1:] == ['nothing was recorded: "rank" does not select rank 3']
    session.number = 2
    assert not session.selects(0, "save()")
    session.unselected = None
    session.tell_nothing("save()")
    assert caplog.messages[2:] == [
        'nothing was recorded: 2 steps were ended by step(), and only the steps [0, 1] are selected by "step"; save() was called in none of'
        " these"
    ]


def test_a_place_is_kept_for_a_rank(tmp_path: Path) -> None:
    session = Session(tmp_path)
    first = session.place_of(0)
    assert session.place_of(0) is first
    assert session.place_of(1) is not first
    third = session.place_of(1)
    session.root = str(tmp_path / "elsewhere")
    assert session.place_of(1) is not third


def test_the_last_selected_step_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(tmp_path, step=[0, 5])
    for number in range(6):
        session.number += 1
        session.has_ended(Step(session.config, number, session.place_of(0), None))
    assert session.ended == 6
    assert caplog.messages == ['step 5 was the last one selected by "step": nothing more is recorded']


@pytest.mark.parametrize("rank", [True, -1, "0", 1.0])
def test_what_is_no_rank(rank: object) -> None:
    with pytest.raises(UsageError, match=r"start\(rank_id\): rank_id is .*; allowed: an integer of 0 or more"):
        check_rank_id(rank)


def test_ranks() -> None:
    check_rank_id(None)
    check_rank_id(0)


def test_an_error_of_ours_switches_off_and_goes_no_further(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(tmp_path)

    def failing() -> None:
        raise KeyError("ours")

    contained(failing, session)
    assert session.off == 1
    assert caplog.messages == ["recording failed and is off until the next start(): KeyError('ours')"]
    session.switch_off = failing  # type: ignore[method-assign]
    contained(failing, session)
    assert caplog.messages[2:] == ["could not switch recording off: KeyError('ours')"]


def test_level_debug_goes_on_without_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(tmp_path, level="debug")

    def failing() -> None:
        raise KeyError("ours")

    contained(failing, session)
    assert session.off == 1 and caplog.messages == ["recording failed, the training goes on: KeyError('ours')"]


@pytest.mark.parametrize("error", [UsageError, KeyboardInterrupt])
def test_what_belongs_to_the_user_passes(tmp_path: Path, error: type[BaseException]) -> None:
    session = Session(tmp_path)

    def failing() -> None:
        raise error("theirs")

    with pytest.raises(error, match="theirs"):
        contained(failing, session)
    assert session.off == 0


def test_one_debugger_of_each_framework(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class First(BaseDebugger[Session]):
        @classmethod
        def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> Session:
            return Session(tmp_path, **{key: value for key, value in arguments.items() if value is not None})

    class Second(BaseDebugger[Session]):
        @classmethod
        def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> Session:
            return Session(tmp_path)

    class OfTheUser(First):
        pass

    with pytest.raises(UsageError, match="there is no PrecisionDebugger yet"):
        OfTheUser.set_init_step(1)
    one = OfTheUser(level="L1")
    assert type(one) is OfTheUser and First() is one and OfTheUser() is one
    assert caplog.messages == []
    assert First(task="tensor") is one
    place = f"{__file__}:{one._made_at.rpartition(':')[2]}"
    [told] = caplog.messages
    assert told.startswith(
        f"there is one PrecisionDebugger in a process: the first one, of {place}, goes on, and the arguments of this one, at "
    )
    assert told.endswith(", are ignored") and told.count(f"{__file__}:") == 2
    other = Second()
    assert other is not one
    First.set_init_step(7)
    assert (First._session.number, Second._session.number) == (7, 0)
    assert one.config is First._session.config
    for step in (True, -1, "1"):
        with pytest.raises(UsageError, match=r"set_init_step\(step\): step is .*; allowed: an integer of 0 or more"):
            First.set_init_step(step)  # type: ignore[arg-type]
    First._forget_in_child()
    Second._at_exit(First._session)
    Second._at_exit(Second._session)
    counts = [(session.forgotten, session.left) for session in (First._session, Second._session)]
    assert counts == [(1, 0), (0, 1)]
    First._instance = First._session = Second._instance = Second._session = None


@pytest.mark.parametrize("error", [RuntimeError("as expected"), UsageError("as expected")])
def test_the_end_of_the_interpreter_shows_no_traceback(error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Third(BaseDebugger[Session]):
        _session = Session(tmp_path)

    def fails() -> None:
        raise error

    session = Third._session
    session.at_exit = fails  # type: ignore[method-assign]
    session.late.untold = 2
    Third._at_exit(session)
    first, second = caplog.messages
    assert "as expected" in first
    assert second.startswith("calls whose backward pass came after their step had ended: 2")


def test_every_part_is_done_whatever_goes_wrong_in_one(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def part(number: int, error: BaseException | None = None) -> None:
        done.append(number)
        if error is not None:
            raise error

    every_part(lambda: part(0), lambda: part(1))
    with pytest.raises(ValueError, match="one"):
        every_part(lambda: part(2, ValueError("one")), lambda: part(3), lambda: part(4, TypeError("two")), lambda: part(5))
    assert caplog.messages == ["recording failed, too: TypeError('two')"]
    with pytest.raises(KeyboardInterrupt):  # the user's goes before ours
        every_part(lambda: part(6, ValueError("three")), lambda: part(7, KeyboardInterrupt()), lambda: part(8))
    assert done == list(range(9)) and caplog.messages[1:] == ["recording failed, too: ValueError('three')"]


@pytest.mark.parametrize(
    ("name", "end"),
    [("config", "; did you mean 'config_path'?"), ("rank_id", "task, dump_path, level, step")],
)
def test_an_argument_that_a_debugger_has_not(name: str, end: str, tmp_path: Path) -> None:
    class Only(BaseDebugger[Session]):
        @classmethod
        def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> Session:
            return Session(tmp_path)

    with pytest.raises(UsageError, match=f"PrecisionDebugger has no argument '{name}'; it takes config_path, task, ") as raised:
        Only(**{name: "config.json"})
    assert str(raised.value).endswith(end) and Only._instance is None
