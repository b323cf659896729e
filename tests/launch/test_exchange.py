from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from msprobe.launch.exchange import Exchange


def plain(a: int, b: int = 2, *rest: int, key: int = 3, **more: int) -> list[Any]:
    """Its own words."""
    if a < 0:
        raise ValueError(a)
    return [a, b, rest, key, more]


def strict(a: int, /, b: int = 2, *, key: int = 3) -> list[Any]:
    if a < 0:
        raise ValueError(a)
    return [a, b, key]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Base:
    def method(self, a: int, b: int = 2, key: int = 3) -> list[Any]:
        return plain(a, b, key=key)


class Derived(Base):
    def method(self, *args: Any, **kwargs: Any) -> list[Any]:
        return super().method(*args, **kwargs)

    def mangled(self, a: int, __b: int = 2, key: int = 3, **rest: int) -> list[Any]:
        return plain(a, __b, key=key)

    def nested(self, a: int, b: int = 2, key: int = 3) -> list[Any]:
        def inner() -> list[Any]:
            return [*plain(a, b, key=key), (lambda: inner).__qualname__]

        return [*inner(), inner.__qualname__]


def without_source() -> Any:
    space: dict[str, Any] = {}
    text = "def made(a, b=2, key=3):\n    if a < 0: raise ValueError(a)\n    return [a, b, key]"
    exec(text, space)
    return space["made"]


def of_object(function: Any) -> Callable[..., Any]:
    """How a test calls it."""
    return functools.partial(function, Derived()) if "self" in inspect.signature(function).parameters else function


FUNCTIONS = [plain, strict, decorated(plain), Derived.method, Derived.nested, Derived.mangled, without_source()]
FROM_SOURCE = FUNCTIONS[:5]


class Words:
    """What an exchange tells: of calls that begin, and how they ended."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        self.ended: list[bool] = []
        self.answers = True

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[[bool], None] | None:
        self.began.append((args, kwargs))
        return self.ended.append if self.answers else None


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_call_is_told_and_the_object_stays(function: Any, answers: bool) -> None:
    signature, code = inspect.signature(function), function.__code__
    call = of_object(function)
    more = {} if function is Derived.mangled else {"b": 5}
    expected = [call(1), call(1, key=7, **more)]
    words = Words()
    words.answers = answers
    exchange = Exchange(function, words)
    exchange.on()
    exchange.on()
    assert inspect.signature(function) == signature and function.__code__ is not code
    assert [call(1), call(1, key=7, **more)] == expected
    assert len(words.began) == 2 and words.ended == ([True, True] if answers else [])
    with pytest.raises(ValueError, match="-1"):
        call(-1)
    assert words.ended == ([True, True, False] if answers else [])
    with pytest.raises(TypeError):
        function()
    exchange.off()
    assert function.__code__ is code and call(1) == expected[0]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("function", FROM_SOURCE)
def test_a_traceback_shows_the_same_lines_and_columns(function: Any, answers: bool) -> None:
    def text() -> str:
        try:
            of_object(function)(-1)
        except ValueError:
            return traceback.format_exc()
        return ""

    before = text()
    words = Words()
    words.answers = answers
    exchange = Exchange(function, words)
    exchange.on()
    try:
        assert text() == before != "" and len(words.began) == 1
    finally:
        exchange.off()


@pytest.mark.parametrize("now", ["def f(a):\n    return a - 1\n", "def f(a):\n    return (a - 1\n", 'def f(a):\n    """Begun\n', ""])
def test_a_source_that_was_changed_since_is_not_used(now: str, tmp_path: Any) -> None:
    path = tmp_path / "changing.py"
    path.write_text("def f(a):\n    return a + 1\n")
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    path.write_text(now)
    words = Words()
    exchange = Exchange(space["f"], words)
    exchange.on()
    assert space["f"](1) == 2 and words.ended == [True]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("def f(a):\n    g = lambda b: b + 1\n    return g(a)\n", "def f(a):\n    g = lambda b: b - 1\n    return g(a)\n"),
        (
            "def f(a):\n    if a > 5:\n        a += 1\n    a += 1\n    return a\n",
            "def f(a):\n    if a > 5:\n        a += 1\n        a += 1\n    return a\n",
        ),
    ],
    ids=["function inside", "indentation"],
)
def test_a_change_inside_of_a_lambda_or_of_what_an_if_holds_is_seen(was: str, now: str, tmp_path: Any) -> None:
    path = tmp_path / "changing.py"
    path.write_text(was)
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    path.write_text(now)
    exchange = Exchange(space["f"], Words())
    exchange.on()
    assert space["f"](1) == 2
    exchange.off()


def test_code_that_somebody_else_exchanged_stays() -> None:
    def function() -> int:
        return 1

    def other() -> int:
        return 2

    exchange = Exchange(function, lambda: None)  # type: ignore[arg-type]
    exchange.on()
    function.__code__ = other.__code__
    exchange.off()
    assert function() == 2
    exchange.on()
    assert function() == 2
