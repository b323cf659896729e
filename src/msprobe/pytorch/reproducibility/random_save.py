"""random_save: where a script draws random numbers, one line for each place in a csv."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch.reproducibility import dropout_removal, interception
from msprobe.pytorch.reproducibility.call_site_file import CallSiteFile
from msprobe.pytorch.reproducibility.random_functions import RandomFunction
from msprobe.recording.stacks import Stack, StackCache

_MAX_SITES = 20_000
_FUNCTIONAL = vars(torch.nn.functional)
_session: _Session | None = None


def random_save(output_path: str = "./output") -> None:
    """List every place from which a random function is called, in `{output_path}/random_rank{id}_{timestamp}.csv`.

    Without a process group the name is `random_proc{pid}_{timestamp}.csv`. Columns: `api_name` (`torch_random.randn.3` is the fourth call
    of `torch.randn`; the other kinds are `tensor_random`, `functional_random`, `numpy_random` and `python_random`) and `stack`, innermost
    frame first. A place, that is one whole stack, is listed at its first call. Calls that draw nothing are not: dropout in evaluation, with
    p = 0, or removed by `seed_all(rm_dropout=True)`. Nothing is drawn for the list, so the script's numbers are those without it.

    Watched are the functions of torch (`torch.rand`, methods that fill a tensor, dropout in functions, attention and recurrent layers) and
    those of the modules `numpy.random` and `random`, data-loader workers that are forked included. Not seen are draws inside compiled and
    scripted code and by objects with a state of their own (`random.Random()`, a NumPy `Generator`; that one was made without a seed is).

    A line is on disk at once. The list ends with the process; a second call with another path goes on there.

    Args:
        output_path: a directory; it is made if there is none.

    Raises:
        UsageError: `output_path` is no path of a directory that can be written.
    """
    global _session
    if not isinstance(output_path, (str, os.PathLike)) or not os.fspath(output_path):
        raise UsageError(f"random_save(output_path): output_path is {output_path!r}; allowed: the path of a directory")
    directory = os.path.abspath(os.fspath(output_path))
    if _session is not None and _session.file.directory == directory and _session.file.owner == os.getpid():
        return
    try:
        file = CallSiteFile(directory)
    except (OSError, ValueError) as error:
        raise UsageError(f"random_save(output_path): {directory} cannot be written: {error}") from error
    if _session is not None:
        _session.file.close()
    _session = _Session(file)
    interception.observe(_session.called)
    logger.info(f"calls of random functions are listed in {file.path}")


def stop_random_save() -> None:
    """End the list before the process ends; nothing happens if there is none."""
    global _session
    session, _session = _session, None
    if session is not None:
        interception.observe(None)
        session.file.close()


class _Session:
    """One list in the making."""

    def __init__(self, file: CallSiteFile) -> None:
        self.file = file
        self._stacks = StackCache()
        self._seen: set[tuple[str, Stack]] = set()
        self._numbers: dict[str, itertools.count[int]] = {}
        self._failed = False

    def called(self, function: RandomFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A random function is about to be called, by the code three frames above."""
        if self._failed:
            return
        try:
            if function.draws is not None and (not function.draws(args, kwargs) or (function.dropout and dropout_removal.removed())):
                return
            name = f"{function.prefix}.{function.name}"
            hidden: frozenset[int] = frozenset()
            if function.by_caller:
                frame = sys._getframe(3)
                if frame.f_globals is _FUNCTIONAL:
                    name = f"{function.prefix}.{frame.f_code.co_name}"
                    hidden = frozenset((id(frame.f_code),))
            number = next(self._numbers.setdefault(name, itertools.count()))
            stack, _ = self._stacks.take(4, hidden)
            if (name, stack) not in self._seen and len(self._seen) < _MAX_SITES:
                self._seen.add((name, stack))
                self.file.add(name, number, "\n".join(stack.text) or _place(sys._getframe(3)))
                if len(self._seen) == _MAX_SITES:
                    logger.warning(f"{self.file.path}: {_MAX_SITES} places are listed, no more will be")
        except Exception as error:
            let_through(error)
            self._failed = True
            logger.error(f"random_save failed, the list in {self.file.path} ends here: {error!r}")


def _place(frame: Any) -> str:
    """For code whose source nobody has."""
    return f"File {frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name}"


def _at_exit() -> None:
    session = _session
    if session is not None and session.file.owner == os.getpid():
        stop_random_save()
        logger.info(f"calls of random functions are listed in {session.file.path}")


atexit.register(_at_exit)
