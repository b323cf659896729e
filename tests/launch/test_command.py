from __future__ import annotations

import os
from pathlib import Path

import pytest

from msprobe.errors import UsageError
from msprobe.launch.command import INJECTED, check, environment
from msprobe.launch.orders import EVENTS, VARIABLE, Orders


@pytest.mark.parametrize(
    ("command", "letter"),
    [
        ("python -I train.py", "I"),
        ("python3 -uE train.py", "E"),
        ("/usr/bin/python3.11 -u -S -m package", "S"),
        ("python -W ignore -X dev -I x.py", "I"),
        ("python -Wignore -BS x.py", "S"),
        ("python train.py -S", None),
        ("python -c pass -I", None),
        ("python -m package -E", None),
        ("python -X importtime train.py -E", None),
        ("python -WIE train.py", None),
        ("torchrun -E", None),
        ("no-such-program -I", None),
    ],
)
def test_options_that_keep_us_out(command: str, letter: str | None) -> None:
    if letter is None:
        check(command.split())
    else:
        with pytest.raises(UsageError, match=f"runs Python with -{letter}, which keeps msprobe out"):
            check(command.split())


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("#!/usr/bin/python3 -I", True),
        ("#!/usr/bin/python3", False),
        ("#!/usr/bin/env -S python3 -E", True),
        ("#!/usr/bin/env python3", False),
        ("#!/bin/sh -E", False),
        ("print()", False),
    ],
)
def test_the_first_line_of_a_program(line: str, refused: bool, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"{line}\n")
    program.chmod(0o755)
    if refused:
        with pytest.raises(UsageError, match="keeps msprobe out"):
            check([str(program)])
    else:
        check([str(program)])


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, []), ("", []), ("/a", ["/a"]), (f"/a{os.pathsep}{INJECTED}{os.pathsep}/b", ["/a", "/b"])],
)
def test_the_environment(before: str | None, after: list[str]) -> None:
    given = {"HOME": "/h"} | ({} if before is None else {"PYTHONPATH": before})
    found = environment(Orders(step_on="forward", forwards=3), "/e", given)
    assert found["PYTHONPATH"].split(os.pathsep) == [str(INJECTED), *after]
    assert (found["HOME"], found[EVENTS]) == ("/h", "/e")
    assert '"forwards": 3' in found[VARIABLE]


def test_orders_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders("/c.json", {"step": [1, "2-3"], "dump_path": "/d"}, "optimizer", 1, "all")
    monkeypatch.setenv(VARIABLE, orders.text())
    assert Orders.read() == orders
    monkeypatch.setenv(VARIABLE, "{")
    with pytest.raises(UsageError, match="holds no orders of msprobe run"):
        Orders.read()
