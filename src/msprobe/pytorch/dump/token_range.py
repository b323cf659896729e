"""start(token_range=[a, b]): recording is on while an inference loop makes its tokens a to b.

One call of the model makes one token. Recording begins when call a - 1 ends, so that what leads to call a is recorded too, and ends when
call b + 1 begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch import compile_internals, torch_internals
from msprobe.pytorch.dump.module_dump.fast_path import FAST_PATH_CLASSES
from msprobe.pytorch.dump.module_dump.hooks import ScriptGuard, hook_pair
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.pytorch.dump.module_dump.single import SingleModule

_KEY = "msprobe token_range"


def checked_range(model: Any, token_range: Any) -> tuple[int, int]:
    """First and last token.

    Raises:
        UsageError: `token_range` is no list or tuple of two integers 0 <= a <= b, or there is no model to count the calls of.
    """
    integers = isinstance(token_range, list | tuple) and [type(item) for item in token_range] == [int, int]
    if not integers or not 0 <= token_range[0] <= token_range[1]:
        raise UsageError(f"start(token_range): token_range is {token_range!r}; allowed: [first, last], integers, 0 <= first <= last")
    if model is None or not checked_models(model):
        raise UsageError("start(model, token_range): model is missing; its calls are what token_range counts")
    return token_range[0], token_range[1]


def _is_traced() -> bool:
    """Whether a call is no token, but torch finding out what the model does."""
    return torch_internals.is_compiling() or torch.jit.is_tracing()


class TokenRange:
    """Counts the calls of the model from start() on, of the first one where there are several.

    The hooks survive no copy of the model, and change nothing about a call. Compiled code runs eagerly until the range has ended: it would
    be compiled anew for them.

    Args:
        model: as start() takes it.
        first, last: calls of the model, from 0; both are recorded.
        begin, end: switch recording on and off.
    """

    def __init__(self, model: Any, first: int, last: int, begin: Callable[[], Any], end: Callable[[], Any]) -> None:
        self._first, self._last = first, last
        self._begin, self._end = begin, end
        self.calls = 0
        self._begun = self._done = False
        self._model: torch.nn.Module = compile_internals.unwrap_compiled(checked_models(model)[0][1])
        self._restore: Callable[[], None] | None = None
        self._aside: SingleModule | None = None
        self._guard = ScriptGuard()

    def start(self) -> None:
        """Count from here."""
        self._restore = compile_internals.force_eager()
        if isinstance(self._model, FAST_PATH_CLASSES):  # a hook of its own would drive it off its fast path
            self._aside = SingleModule(self._call_begins, self._call_ends, self._call_begins)
            self._aside.register_one("token_range", self._model)
        else:
            self._guard.on()
            torch_internals.put_module_hooks(self._model, _KEY, *hook_pair("token_range", self._model, self._call_begins, self._call_ends))
        if self._first == 0:
            self._begin_now()

    def _call_begins(self, *_: Any) -> None:
        if self._done or _is_traced():
            return
        number = self.calls
        self.calls += 1
        if number > self._last:
            self._contained(self._end_now)
        elif number >= self._first:
            self._contained(self._begin_now)  # the call before was left without a word (KeyboardInterrupt)

    def _call_ends(self, *_: Any) -> None:
        if not self._done and self.calls == self._first and not _is_traced():
            self._contained(self._begin_now)

    def _contained(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            let_through(error)
            self._done = True
            logger.error(f"token_range could not be followed: {error!r}")

    def _begin_now(self) -> None:
        if not self._begun:
            self._begun = True
            logger.info(f"token {self._first}: recording begins")
            self._begin()

    def _end_now(self) -> None:
        self._done = True
        logger.info(f"token {self._last}: recording has ended")
        self._end()
        self._compile_again()

    def _compile_again(self) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def close(self) -> None:
        """stop(): hooks off; a range that was not reached is told."""
        self.forget()
        asked = f"token_range [{self._first}, {self._last}]: between start() and stop() the model was called {self.calls} times"
        if not self._begun or self.calls <= self._first:
            logger.warning(f"{asked}, so none of these tokens was recorded")
        elif self.calls <= self._last:
            logger.info(f"{asked}: the tokens {self._first} to {self.calls - 1} were recorded")

    def forget(self) -> None:
        """Count no more, and say nothing."""
        self._done = True
        torch_internals.take_module_hooks(self._model, _KEY)
        self._guard.off()
        if self._aside is not None:
            self._aside.remove()
        self._compile_again()
