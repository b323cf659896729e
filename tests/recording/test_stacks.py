"""Stacks are those of Python's own traceback, however they are shortened on the way."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from msprobe.recording import stacks
from msprobe.recording.stacks import StackCache


@pytest.fixture(params=[stacks.walk, stacks.walk_in_python], ids=["as installed", "in Python"], autouse=True)
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "walk", request.param)


def test_both_walks_agree() -> None:
    def walks(stop: int, counted: tuple[int, ...]) -> list[Any]:
        frame = sys._getframe(1)
        return [w(frame, stop, 7, 3, counted)[1] for w in (stacks.walk, stacks.walk_in_python)]

    frames = []
    frame: Any = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for stop, counted in itertools.product((0, id(frames[0]), id(frames[3])), ((), (id(frames[0].f_code), id(frames[2].f_code)))):
        assert len(set(walks(stop, counted))) == 1


def expected(skip: int = 0) -> list[str]:
    """The frames from the caller outwards, read line by line."""
    lines = []
    frame: Any = sys._getframe(skip + 1)
    while frame is not None:
        code = frame.f_code
        source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
        if source:
            lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
        frame = frame.f_back
    return lines


def test_the_text_of_a_stack() -> None:
    cache = StackCache()
    key, right = cache.take(1), expected()
    found, line = key[0].text, sys._getframe().f_lineno - 1
    assert found == right
    assert found[0] == f"File {__file__}, line {line}, in test_the_text_of_a_stack, \n key, right = cache.take(1), expected()"


def test_frames_are_skipped_from_the_inside() -> None:
    cache = StackCache()

    def inner() -> tuple[list[str], list[str]]:
        return cache.take(2)[0].text, expected(1)

    found, right = inner()
    assert found == right and "in test_frames_are_skipped_from_the_inside" in found[0]


def test_one_line_is_one_stack() -> None:
    cache = StackCache()
    keys = {cache.take(1)[0] for _ in range(5)}
    one = [cache.take(1)[0] for _ in range(2)]
    other = cache.take(1)[0]
    assert len(keys) == 1 and len(set(one)) == 1 and len({*keys, *one, other}) == 3


def test_one_line_reached_in_two_ways_is_two_stacks() -> None:
    cache = StackCache()

    def leaf() -> Any:
        return cache.take(1)[0]

    first = leaf()
    second = leaf()
    assert first != second
    assert first.text[0] == second.text[0] and first.text[1] != second.text[1]


def test_hidden_frames_are_left_out_only_when_innermost() -> None:
    cache = StackCache()

    def api(call: Callable[[], Any]) -> Any:
        return call()

    def take() -> Any:
        return cache.take(1, frozenset((id(take.__code__), id(api.__code__))))[0]

    found = api(take).text
    assert "in test_hidden_frames_are_left_out_only_when_innermost" in found[0]

    def user() -> Any:
        return cache.take(1, frozenset((id(api.__code__),)))[0]

    found = api(user).text
    assert "in user" in found[0] and "in api" in found[1]


def test_counted_frames() -> None:
    def call(levels: int) -> Any:
        return call(levels - 1) if levels else cache.take(1)

    cache = StackCache(frozenset((id(call.__code__),)))
    assert [call(levels)[1] for levels in (0, 1, 5)] == [1, 2, 6]
    assert [call(levels)[1] for levels in (5, 1)] == [6, 2]
    assert cache.take(1)[1] == 0


def run_generated(name: str, source: str, **names: Any) -> dict[str, Any]:
    code = compile(source, name, "exec")
    exec(code, names)
    return names


def test_code_without_source_has_no_frame() -> None:
    cache = StackCache()
    made = run_generated("<no such file>", "def generated(f):\n    return f()\n")
    found = made["generated"](lambda: cache.take(1)[0].text)
    assert all("in generated," not in line for line in found[1:]) and "test_code_without_source" in found[1]


def test_our_own_frames_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = StackCache()
    ours = stacks.__file__.replace("stacks.py", "made_up.py")
    linecache.cache[ours] = (10, None, ["def ours(f):\n", "    return f()\n"], ours)
    made = run_generated(ours, "def ours(f):\n    return f()\n")
    found = made["ours"](lambda: cache.take(1)[0].text)
    assert all("made_up.py" not in line for line in found) and len(found) > 2
    del linecache.cache[ours]


def test_code_that_is_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit nothing is kept, and every text is still right."""
    monkeypatch.setattr(stacks, "_LIMIT", 5)
    cache = StackCache()
    for i in range(20):
        name = f"<made {i}>"
        linecache.cache[name] = (10, None, [f"def made_{i}(f):\n", f"    return f()  # {i}\n"], name)
        made = run_generated(name, f"def made_{i}(f):\n    return f()\n")
        key = made[f"made_{i}"](lambda: cache.take(1)[0])
        found = key.text
        assert f"in made_{i}" in found[1] and found[1].endswith(f"# {i}")
        del linecache.cache[name]


def test_reused_addresses_of_code_are_not_confused() -> None:
    """Code objects come and go at the same address; while a key is known its code is kept."""
    cache = StackCache()
    seen: dict[Any, str] = {}
    for i in range(200):
        name = f"<short-lived {i}>"
        linecache.cache[name] = (10, None, [f"def f(g): return g()  # {i}\n"], name)
        made = run_generated(name, "def f(g): return g()\n")
        key = made["f"](lambda: cache.take(1)[0])
        text = key.text[1]
        assert text.endswith(f"# {i}") and key not in seen
        seen[key] = text
        del linecache.cache[name], made


def test_recursion_and_generators() -> None:
    cache = StackCache()

    def down(levels: int) -> tuple[list[str], list[str]]:
        return down(levels - 1) if levels else (cache.take(1)[0].text, expected())

    found, right = down(50)
    assert found == right

    def items() -> Any:
        yield cache.take(1)[0].text, expected()

    found, right = next(items())
    assert found == right
    (pair,) = [next(generator) for generator in (items(),)]
    assert pair[0] == pair[1]


# --- anchors -------------------------------------------------------------------------------------------------------------------------
def test_an_anchor_shortens_the_way_and_changes_nothing() -> None:
    def module(cache: StackCache, inner: Callable[[Any], Any], anchor: Any = None) -> Any:
        key, own = cache.enter(1, anchor)
        right = expected()
        right[0] = right[0].replace(f"line {sys._getframe().f_lineno - 1}", f"line {sys._getframe().f_lineno - 2}")
        assert key.text[1:] == right[1:] and "in module" in key.text[0]
        return inner(own)

    def call(cache: StackCache, anchor: Any) -> Any:
        return cache.take(1, anchor=anchor)[0].text, expected(), cache.take(1, anchor=anchor)[1]

    cache = StackCache(frozenset((id(module.__code__),)))
    for _ in range(2):
        found, right, depth = module(cache, lambda a: module(cache, lambda b: call(cache, b), a))
        assert found == right and depth == 2
    found, right, depth = call(cache, None)
    assert found == right and depth == 0


def test_an_anchor_that_is_not_on_the_stack() -> None:
    """Left behind by an exception: the walk goes to the end."""
    cache = StackCache()

    def gone() -> Any:
        return cache.enter(1)[1]

    anchor = gone()
    found, right = cache.take(1, anchor=anchor)[0].text, expected()
    assert found == right


def test_texts_are_shared_not_copied_by_the_user() -> None:
    cache = StackCache()
    one, two = (cache.take(1)[0] for _ in range(2))
    assert one is two and one.text is two.text
    assert isinstance(sys._getframe().f_code, CodeType)
