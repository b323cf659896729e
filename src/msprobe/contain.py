"""Which exceptions are ours to contain, and which belong to the user."""

from __future__ import annotations

import signal
from types import CodeType


def let_through(error: BaseException) -> None:
    """Raise `error` again if a signal handler of the user's raised it while our code happened to run.

    A handler runs between any two instructions of the main thread: a timeout by SIGALRM, or the report of a data loader whose worker died.
    What it raises is meant for the user's code, not for us to contain.
    """
    handlers = _handler_codes()
    traceback = error.__traceback__
    while handlers and traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            raise error
        traceback = traceback.tb_next


def _handler_codes() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            for function in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
                code = getattr(function, "__code__", None)
                if isinstance(code, CodeType):
                    found.add(code)
    return found
