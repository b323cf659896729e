"""module_dump and module_dump_end: record one module as a whole, and nothing of what runs inside it."""

from __future__ import annotations

from typing import Any

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.dump.module_dump import single

_MISSING: Any = object()


def module_dump(module: Any, module_name: Any = _MISSING, *, dump_name: Any = _MISSING) -> None:
    """From here to `module_dump_end` record this module, under a name of yours, and nothing else: neither what runs inside it nor others.

    Its entries are `Module.{module_name}.{class}.forward.{n}`, with `backward` and `parameters_grad`. It works at every level, also where
    `start()` was given no model, and does nothing while recording is off.

    Args:
        module: a torch.nn.Module.
        module_name: what it is called in the names of its entries.
        dump_name: another spelling of `module_name`.

    Raises:
        UsageError: an argument is missing or of a wrong type, or there is no PrecisionDebugger.
    """
    if module_name is _MISSING:
        module_name = dump_name
    if module_name is _MISSING:
        raise UsageError("module_dump(module, module_name): module_name is missing")
    session = PrecisionDebugger._current()
    single.checked(module, module_name)
    with session.lock:
        window = session.window
        if window is None:
            logger.debug(f"module_dump({module_name!r}): recording is off, so nothing is recorded")
            return
        try:
            single.begin(session.recorder, window._undo, module, module_name)
        except Exception as error:
            let_through(error)
            logger.error(f"module_dump({module_name!r}) failed, the module is not recorded: {error!r}")
            module_dump_end()


def module_dump_end() -> None:
    """Record everything again; nothing happens where no `module_dump` was.

    Raises:
        UsageError: there is no PrecisionDebugger.
    """
    session = PrecisionDebugger._current()
    with session.lock:
        try:
            single.end()
        except Exception as error:
            let_through(error)
            logger.error(f"module_dump_end failed: {error!r}")
