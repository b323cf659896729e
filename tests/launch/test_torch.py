"""One real start: nothing is forked, nothing is loaded before."""

from __future__ import annotations

import sys

import pytest

from launch import programs
from launch.runs import Runs


@pytest.mark.slow
def test_functions_are_seen_that_the_first_use_of_dynamo_compiles(alone: Runs) -> None:
    command = [sys.executable, alone.script(programs.COMPILED_STEP)]
    without, done = alone.plain(*command), alone.recorded(*command, options=("--step", "0,2"))
    assert (without.code, without.out, without.others) == (done.code, done.out, done.others) and done.steps() == ["step0", "step2"]


def test_python_as_users_start_it(alone: Runs) -> None:
    command = [sys.executable, "-m", "script"]
    alone.script(programs.PLAIN)
    without, done = alone.plain(*command), alone.recorded(*command, options=("--step", "1-2"))
    assert (without.code, without.out, without.others) == (done.code, done.out, done.others)
    assert done.steps() == ["step1", "step2"] and done.calls(2) == ["first.Linear.0", "norm.BatchNorm1d.0", "last.Linear.0"]
