"""Which line of the user's has called."""

from __future__ import annotations

import inspect

from msprobe.recording import calling_place as room
from msprobe.recording.calling_place import calling_place


def test_the_line_that_calls() -> None:
    here = inspect.currentframe()
    assert here is not None
    assert calling_place() == f"{__file__}:{here.f_lineno}"


def test_lines_of_our_own_are_passed_over() -> None:
    code = compile("def ours(ask):\n    return ask()\n", room.__file__, "exec")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    here = inspect.currentframe()
    assert here is not None
    assert namespace["ours"](calling_place) == f"{__file__}:{here.f_lineno}"  # type: ignore[operator]
