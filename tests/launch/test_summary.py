from __future__ import annotations

from typing import Any

import pytest

from msprobe.launch.summary import summary, too_late


def report(pid: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "event": "report",
        "pid": pid,
        "models": {"Net": [0, 1]},
        "steps": [0, 1],
        "incomplete": [],
        "unwritten": [],
        "counted": 2,
        "selected": [],
        "step_on": "optimizer",
        "optimizer_steps": 1,
        "forwards": 0,
        "left_out": [],
        "plain": {},
        "unseen": {},
        "roots": ["/d"],
        "why_nothing": "",
        "unselected": None,
        **more,
    }


def event(kind: str, pid: int = 1, **more: Any) -> dict[str, Any]:
    return {"event": kind, "pid": pid, **more}


def test_processes_that_say_the_same_say_it_once() -> None:
    lines = summary([event("torch"), report(1), report(2), report(3, steps=[0, 1, 3])])
    assert lines[0] == "recorded 2 steps (0-1) in each of 2 processes: /d"
    assert lines[3] == "recorded 3 steps (0-1, 3): /d"


def test_what_came_too_late_is_said_once_for_all_processes() -> None:
    lines = summary([report(1), report(2), *(event("late", pid, calls=3, optimizers=1, optimizer_steps=1, order=[1, 1]) for pid in (1, 2))])
    assert lines[-1].startswith("6 calls of earlier steps had their backward pass after their step had ended")
    assert "--step-on" not in lines[-1], "one optimizer: there is nothing to put together"


@pytest.mark.parametrize(
    ("order", "steps", "advice"),
    [
        ([], 1, "--step-on optimizer:2 makes one step of an iteration in which each of the 2 optimizers steps once"),
        ([2], 1, "--step-on optimizer:2 makes one step of an iteration in which each of the 2 optimizers steps once"),
        ([2, 1, 2, 1, 2], 1, "--step-on optimizer:2 makes one step of an iteration in which each of the 2 optimizers steps once"),
        ([2, 1, 2, 1, 2], 2, "(dump_error_info.log of each step names them)"),
        (
            [2, 2, 1, 2, 2, 1, 2],
            2,
            "--step-on optimizer:3 makes one step of an iteration in which the 2 optimizers step in the order 2, 2, 1",
        ),
        ([2, 2, 1, 2, 2, 1, 2], 6, "(dump_error_info.log of each step names them)"),
        (
            [2, 2, 1, 2, 2],
            1,
            "stepped in the order 2, 2, 1, 2, 2, in which no iteration of them all was seen to repeat, so no --step-on",
        ),
        ([2, 2], 1, "stepped in the order 2, 2, in which no iteration of them all was seen to repeat, so no --step-on"),
    ],
)
def test_how_many_steps_of_optimizers_make_an_iteration(order: list[int], steps: int, advice: str) -> None:
    said = too_late(3, 2, steps, order)
    assert advice in said
    assert ("--step-on" in said) == ("--step-on" in advice)


def test_steps_that_are_not_complete_are_named() -> None:
    lines = summary([report(1), report(2, incomplete=[0, 1])])
    assert lines[0] == lines[3] == "recorded 2 steps (0-1): /d" and lines[4].startswith("not complete: steps 0-1; ")


def test_steps_without_files_are_named_and_not_counted() -> None:
    lines = summary([report(steps=[0], unwritten=[1, 2], incomplete=[0])])
    assert lines[0] == "recorded 1 step (0): /d" and lines[1].startswith("not complete: step 0; ")
    assert lines[2] == "not written: steps 1-2; why is told in the lines above"
    lines = summary([report(1), report(2, unwritten=[7])])
    assert lines.count("recorded 2 steps (0-1): /d") == 2, "processes that say different things"


def test_a_process_that_could_write_nothing_stands_beside_the_others() -> None:
    lines = summary([report(1), report(2, steps=[], unwritten=[0, 1]), report(3, steps=[])])
    assert lines[0] == "recorded 2 steps (0-1): /d"
    assert lines[-1] == "process 2: no file of steps 0-1 could be written; why is told in the lines above"


def test_models_that_change() -> None:
    lines = summary([report(models={"A": [0, 0], "A, B": [1, 4]}, steps=[0, 1, 2, 3, 4])])
    assert lines[1:3] == ["taken as model: A (step 0)", "taken as models: A, B (steps 1 to 4)"]


def test_what_was_not_taken_is_cut_where_it_is_long() -> None:
    lines = summary([report(left_out=[[f"M{n}", 2, "why"] for n in range(9)])])
    assert lines[3] == "not recorded as a model: M0, 2 calls (why)"
    assert lines[-1] == "and 4 more of these" and len(lines) == 9


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "no Python process below the command could be reached"),
        ([], "or that sets PYTHONPATH without what it was (as a shell script may: export PYTHONPATH=.:$PYTHONPATH keeps it)"),
        ([event("python")], "torch was never imported"),
        ([event("python"), event("torch")], "the script called no nn.Module"),
        ([event("torch"), event("plain", plain={"ReLU": 1}), event("plain", 2, plain={"ReLU": 2})], "were called: ReLU (3 calls);"),
        ([event("torch"), event("plain", plain={}, unseen={"f": 2})], "called no nn.Module; no model was found in what these compiled"),
        ([report(steps=[], left_out=[["Net", 3, "why"]], unseen={"f": 2})], "are given and name: f (2 calls); one that they call is not"),
        ([report(steps=[], selected=[7], counted=3)], "the script made 3 steps, 0 to 2, and none of them is selected"),
        ([report(steps=[], unselected=1)], '"rank" does not select rank 1'),
        ([report(steps=[], left_out=[["Net", 3, "no optimizer trains it"]])], "Net was called 3 times (no optimizer trains it)"),
        ([report(steps=[], unwritten=[0, 1])], "nothing was recorded: no file of steps 0-1 could be written; why is told in"),
        ([report(steps=[], why_nothing="the reason")], "nothing was recorded: the reason"),
        ([event("failed", 3, reason="RuntimeError: ours")], "recording failed in process 3: RuntimeError: ours"),
        ([event("made way")], "a PrecisionDebugger of its own, which recorded as the script says (1 process)"),
        ([event("recording", 9, models="Net", root="/d", step=0)], "process 9 was cut off while it recorded Net into /d: no step had"),
        (
            [event("recording", 9, models="Net", root="/d", step=0), *(event("ended", pid, step=pid - 9) for pid in (9, 10))],
            "process 9 was cut off while it recorded Net into /d: step 0 had ended by then; its files are valid",
        ),
    ],
)
def test_every_outcome_is_one_line(events: list[dict[str, Any]], said: str) -> None:
    (line,) = summary(events)
    assert said in line


def test_a_rank_that_was_killed_stands_beside_the_others() -> None:
    begun = [event("recording", pid, models="Net", root="/d", step=0) for pid in (2, 1)]
    lines = summary([*begun, report(1)])
    assert lines[0].startswith("recorded 2 steps") and lines[-1].startswith("process 2 was cut off")
