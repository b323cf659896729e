from __future__ import annotations

import threading

from msprobe.recording.calls import OpenModule, ThreadState
from msprobe.recording.stacks import Anchor


def opened(name: str, depth: int) -> OpenModule:
    return OpenModule(name, object(), Anchor(0, 0, depth))


def test_the_parent_is_the_innermost_open_module() -> None:
    state = ThreadState()
    assert state.parent() is None
    state.open.append(opened("outer", 1))
    state.open.append(opened("inner", 2))
    assert state.parent() == "inner"
    state.open.pop()
    assert state.parent() == "outer"


def test_unwinding_closes_what_lies_deeper() -> None:
    state = ThreadState()
    state.open += [opened("a", 1), opened("b", 2), opened("c", 4)]
    assert [gone.name for gone in state.unwind(2)] == ["c"]
    assert state.parent() == "b"
    assert state.unwind(2) == []
    assert [gone.name for gone in state.unwind(0)] == ["b", "a"]
    assert state.open == []


def test_each_thread_has_its_own() -> None:
    state = ThreadState()
    state.open.append(opened("mine", 1))
    state.inside = True
    seen: list[object] = []

    def other() -> None:
        seen.extend((state.parent(), state.inside, state.spelling, state.open))
        state.open.append(opened("theirs", 1))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[:3] == [None, False, None]
    assert state.parent() == "mine" and len(state.open) == 1
