"""When the shared threads are left alone for a while, since waiting took longer than the work: functions of team.h, compiled alone."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import msprobe.numerics

HEADERS = Path(msprobe.numerics.__file__).parent / "csrc"
COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")

pytestmark = pytest.mark.skipif(
    not HEADERS.is_dir() or shutil.which(COMPILER[0]) is None or sysconfig.get_platform().startswith("win"),
    reason="there is no C compiler, or the installation has no headers",
)
FIRST, MOST, AFTER = 16, 1024, 20e-6
WORKED = 1e-3
WAITED, QUICK = 2 * WORKED + 1.01 * AFTER, 2 * WORKED + 0.99 * AFTER


@pytest.fixture
def rest(tmp_path: Path) -> ctypes.CDLL:
    """A library of its own for each test, with the state of the start."""
    source, library = tmp_path / "rest.c", tmp_path / "rest.so"
    source.write_text(
        '#include "team.h"\nint rests(void) { return team_rests(); }\nvoid note(double w, double all) { note_wait(w, all); }\n'
    )
    subprocess.run(
        [*COMPILER, "-std=gnu99", "-shared", "-fPIC", "-Wno-unused-function", f"-I{HEADERS}", str(source), "-o", str(library), "-lm"],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    loaded.note.argtypes = [ctypes.c_double, ctypes.c_double]
    loaded.note.restype = None
    return loaded


def jobs_alone(rest: ctypes.CDLL) -> int:
    return next(count for count in range(2 * MOST) if not rest.rests())


def test_at_first_they_are_used(rest: ctypes.CDLL) -> None:
    rest.note(WORKED, QUICK)
    assert jobs_alone(rest) == 0


def test_each_wait_doubles_the_rest_up_to_an_end(rest: ctypes.CDLL) -> None:
    rests = []
    for _ in range(10):
        rest.note(WORKED, WAITED)
        rests.append(jobs_alone(rest))
    assert rests == [min(FIRST << k, MOST) for k in range(10)]


def test_each_time_without_a_wait_halves_the_next_rest(rest: ctypes.CDLL) -> None:
    for _ in range(4):
        rest.note(WORKED, WAITED)
    jobs_alone(rest)
    for _ in range(3):
        rest.note(WORKED, QUICK)
    assert jobs_alone(rest) == 0, "who does not wait does not rest"
    rest.note(WORKED, WAITED)
    assert jobs_alone(rest) == 2 * FIRST
    for _ in range(20):
        rest.note(WORKED, QUICK)
    rest.note(WORKED, WAITED)
    assert jobs_alone(rest) == FIRST


def test_a_short_job_may_wait_a_moment(rest: ctypes.CDLL) -> None:
    rest.note(0.0, 0.9 * AFTER)
    assert jobs_alone(rest) == 0
    rest.note(0.0, 1.1 * AFTER)
    assert jobs_alone(rest) == FIRST
