from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from msprobe.launch.exchange import Exchange


def plain(a: int, b: int = 2, *rest: int, key: int = 3, **more: int) -> list[Any]:
    return [a, b, rest, key, more]


def strict(a: int, /, b: int = 2, *, key: int = 3) -> list[Any]:
    return [a, b, key]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@pytest.mark.parametrize("function", [plain, strict, decorated(plain)])
def test_every_call_is_seen_and_the_object_stays(function: Any) -> None:
    signature, code = inspect.signature(function), function.__code__
    seen = []

    def handler(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            return original(*args, **kwargs)

        return call

    expected = [function(1), function(1, b=5, key=7)]
    exchange = Exchange(function, handler)
    exchange.on()
    exchange.on()
    assert inspect.signature(function) == signature and function.__code__ is not code
    assert [function(1), function(1, b=5, key=7)] == expected and len(seen) == 2
    with pytest.raises(TypeError):
        function()
    exchange.off()
    assert function.__code__ is code and function(1) == expected[0] and len(seen) <= 3


def test_code_that_somebody_else_exchanged_stays() -> None:
    def function() -> int:
        return 1

    def other() -> int:
        return 2

    exchange = Exchange(function, lambda original: original)  # type: ignore[arg-type]
    exchange.on()
    function.__code__ = other.__code__
    exchange.off()
    assert function() == 2
    exchange.on()
    assert function() == 2
