"""A function is watched without being replaced: by every name, and undone without a trace."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from msprobe.pytorch.dump.api_dump.exchanged import exchanged


def plain(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@logged
def decorated(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


another_name = decorated


@pytest.mark.parametrize("function", [plain, decorated])
def test_calls_go_to_the_handler(function: Any) -> None:
    seen: list[Any] = []
    watched = exchanged(function)

    def handler(args: Any, kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return watched.original(*args, **kwargs)

    watched.add(handler)
    try:
        assert function(1, c=5) == (1, 2, 5)
    finally:
        watched.remove(handler)
    assert seen == [((1,), {"c": 5})]
    assert function(1) == (1, 2, 3) and len(seen) == 1


def test_every_name_is_seen() -> None:
    watched = exchanged(decorated)

    def handler(args: Any, kwargs: Any) -> str:
        return "seen"

    watched.add(handler)
    try:
        assert another_name(1) == "seen" and another_name is decorated
    finally:
        watched.remove(handler)


@pytest.mark.parametrize("function", [plain, decorated])
def test_nothing_is_left(function: Any) -> None:
    before = (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__, dict(function.__dict__))
    watched = exchanged(function)

    def handler(args: Any, kwargs: Any) -> None:
        return None

    watched.add(handler)
    assert pickle.loads(pickle.dumps(function)) is function and str(function.__name__) in ("plain", "decorated")
    watched.remove(handler)
    assert before == (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__, dict(function.__dict__))
    assert inspect.signature(function) == inspect.signature(plain)


def test_somebody_elses_code_stays() -> None:
    def victim() -> str:
        return "own"

    def other() -> str:
        return "other"

    watched = exchanged(victim)

    def handler(args: Any, kwargs: Any) -> str:
        return "ours"

    watched.add(handler)
    victim.__code__ = other.__code__
    watched.remove(handler)
    assert victim() == "other"


def test_what_a_user_has_changed_is_taken_in_and_nothing_is_made_anew_without() -> None:
    def function(x: int = 1) -> int:
        """Text."""
        return x

    watched = exchanged(function)
    first = watched.original
    watched.renew()
    assert watched.original is first
    changes: list[tuple[str, Any]] = [
        ("__defaults__", (2,)),
        ("__doc__", "Other."),
        ("__kwdefaults__", {}),
        ("__qualname__", "f"),
        ("own", [1]),
    ]
    for name, value in changes:
        setattr(function, name, value)
        before = watched.original
        watched.renew()
        assert watched.original is not before and getattr(watched.original, name) == value
        assert watched.original() == function()


def test_watched_twice() -> None:
    watched = exchanged(plain)
    assert exchanged(plain) is watched

    def first(args: Any, kwargs: Any) -> Any:
        return watched.original(*args, **kwargs)

    def second(args: Any, kwargs: Any) -> Any:
        return "second", watched.original(*args, **kwargs)

    watched.add(first)
    watched.add(second)
    assert plain(1) == ("second", (1, 2, 3))
    watched.remove(second)
    assert plain(1) == (1, 2, 3)
    watched.remove(first)
    assert plain(1) == (1, 2, 3)


def test_errors_are_the_functions_own() -> None:
    watched = exchanged(plain)

    def handler(args: Any, kwargs: Any) -> Any:
        return watched.original(*args, **kwargs)

    watched.add(handler)
    try:
        with pytest.raises(TypeError, match="plain"):
            plain()  # type: ignore[call-arg]
    finally:
        watched.remove(handler)
