"""A function is watched without being replaced: by every name, and undone without a trace."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from msprobe.pytorch.dump.distributed.functions import WatchedFunction


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
    watched = WatchedFunction(function)
    watched.on(lambda args, kwargs: seen.append((args, kwargs)) or watched.original(*args, **kwargs))
    try:
        assert function(1, c=5) == (1, 2, 5)
    finally:
        watched.off()
    assert seen == [((1,), {"c": 5})]
    assert function(1) == (1, 2, 3) and len(seen) == 1


def test_every_name_is_seen() -> None:
    watched = WatchedFunction(decorated)
    watched.on(lambda args, kwargs: "seen")
    try:
        assert another_name(1) == "seen" and another_name is decorated
    finally:
        watched.off()


@pytest.mark.parametrize("function", [plain, decorated])
def test_nothing_is_left(function: Any) -> None:
    before = (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__, dict(function.__dict__))
    watched = WatchedFunction(function)
    watched.on(lambda args, kwargs: None)
    assert pickle.loads(pickle.dumps(function)) is function and str(function.__name__) in ("plain", "decorated")
    watched.off()
    assert before == (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__, dict(function.__dict__))
    assert inspect.signature(function) == inspect.signature(plain)


def test_somebody_elses_code_stays() -> None:
    def victim() -> str:
        return "own"

    def other() -> str:
        return "other"

    watched = WatchedFunction(victim)
    watched.on(lambda args, kwargs: "ours")
    victim.__code__ = other.__code__
    watched.off()
    assert victim() == "other"


def test_watched_twice_in_order() -> None:
    first = WatchedFunction(plain)
    first.on(lambda args, kwargs: first.original(*args, **kwargs))
    second = WatchedFunction(plain)
    second.on(lambda args, kwargs: ("second", second.original(*args, **kwargs)))
    assert plain(1) == ("second", (1, 2, 3))
    second.off()
    assert plain(1) == (1, 2, 3)
    first.off()
    assert plain(1) == (1, 2, 3)


def test_errors_are_the_functions_own() -> None:
    watched = WatchedFunction(plain)
    watched.on(lambda args, kwargs: watched.original(*args, **kwargs))
    try:
        with pytest.raises(TypeError, match="plain"):
            plain()  # type: ignore[call-arg]
    finally:
        watched.off()
