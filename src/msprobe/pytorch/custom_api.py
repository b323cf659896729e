"""Users' own functions as APIs: those that were registered by call, and all else that must be watched besides the function mode."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from dataclasses import replace
from types import BuiltinFunctionType, ClassMethodDescriptorType
from typing import Any

from msprobe.config.values import nearest
from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.format.names import MODULE_ROOTS
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import Api, ApiTable, seen_by_mode
from msprobe.pytorch.dump.api_dump.operation_files import CUSTOM
from msprobe.pytorch.dump.api_dump.packages import package_functions, triton_watches
from msprobe.pytorch.dump.api_dump.watching import checked_attribute, raw_attribute, switched_on, watch, why_not_watched
from msprobe.pytorch.dump.recorder import Recorder

_registered: dict[tuple[int, str], Registration] = {}
"""(id of the owner, attribute) -> what was registered; the owner is kept alive by it."""
_open: list[WatchedApis] = []
"""The parts of the windows that are open now; there is one at most."""


class Registration:
    """One function that a user has registered."""

    def __init__(self, owner: Any, attribute: str, prefix: str) -> None:
        self.owner, self.attribute, self.prefix = owner, attribute, prefix


def register(module: Any, api: Any, api_prefix: Any = None) -> None:
    """Record the calls of `module.api` in every window from now on; what has been registered before is registered anew.

    Args:
        module: what the function is an attribute of: a module, a class, or an object.
        api: the attribute's name.
        api_prefix: prefix of the entries; by default the module's `__name__`.

    Raises:
        UsageError: there is no such attribute, it is no function, or the prefix is none.
    """
    call = "register_custom_api(module, api, api_prefix)"
    if not isinstance(api, str) or not api:
        raise UsageError(f'{call}: api is {api!r}; allowed: the name of the function as text, such as "compute"')
    if module is builtins:
        raise UsageError(f"{call}: module is builtins; its functions are called everywhere, by msprobe too; name a function of your own")
    raw: Any = None
    try:
        raw = checked_attribute(module, api, call)
    except Exception as error:  # a property or a __getattr__ of the user's
        let_through(error)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{call}: {api!r} of {type(module).__name__} could not be looked at: {error!r}") from error
    if api_prefix is None:
        named = getattr(module, "__name__", None)
        api_prefix = named if isinstance(named, str) and named else type(module).__name__
    if not isinstance(api_prefix, str) or not api_prefix:
        raise UsageError(f'{call}: api_prefix is {api_prefix!r}; allowed: text, such as "my_ops"')
    if api_prefix.partition(".")[0] in MODULE_ROOTS:
        raise UsageError(f"{call}: api_prefix is {api_prefix!r}; names that begin with {' or '.join(MODULE_ROOTS)} are those of modules")
    registration = Registration(module, api, api_prefix)
    if (id(module), api) not in _registered and isinstance(raw, BuiltinFunctionType | ClassMethodDescriptorType) and not seen_by_mode(raw):
        logger.info(f"{call}: {api_prefix}.{api} is no Python function: a name that is bound to it before start() is not seen")
    for part in _open:
        part.forget(module, api)
    _registered[id(module), api] = registration
    for part in _open:
        part.add(registration)


def restore(module: Any, api: Any) -> None:
    """Record the calls of `module.api` no more; nothing happens where it was not registered.

    Raises:
        UsageError: there is no such attribute.
    """
    known = _registered.pop((id(module), api), None) if isinstance(api, str) else None
    for part in _open:
        part.forget(module, api)
    if known is None and not (isinstance(api, str) and hasattr(module, api)):
        named = getattr(module, "__name__", type(module).__name__)
        raise UsageError(f"restore_custom_api(module, api): {named} has no attribute {api!r}")


class WatchedApis:
    """For one window: the functions that the function mode does not see, or knows by another name.

    Args:
        table: the watched functions of torch, and what the operation files say.
        recorder: records the calls.
    """

    def __init__(self, table: ApiTable | None, recorder: Recorder) -> None:
        self._table, self._recorder = table, recorder
        self._undo: list[Callable[[], Any]] = []
        self._added: dict[tuple[int, str], Callable[[], Any]] = {}
        """What undoes the watching of what was registered."""

    def on(self) -> None:
        """Watch from now on."""
        table = self._table
        if table is None:
            return
        _open.append(self)
        for unseen in table.unseen:
            self._watch(unseen.owner, unseen.attribute, unseen.api)
        for owner, attribute, api in package_functions(table):
            self._watch(owner, attribute, api)
        for one in triton_watches(table, self._recorder):
            self._undo.append(one.off)
            switched_on(one, "triton")
        for module, names in table.files.custom.items():
            for name in names:
                self._custom(table, module, name)
        for registration in list(_registered.values()):
            self.add(registration)

    def off(self) -> None:
        """Undo `on`, in reverse."""
        if self in _open:
            _open.remove(self)
        for key in reversed(list(self._added)):
            _contained(self._added[key])
            self._added.pop(key, None)
        while self._undo:
            _contained(self._undo[-1])
            self._undo.pop()

    def add(self, registration: Registration) -> None:
        """Watch a registered function from now on."""
        table = self._table
        if table is None:
            return
        owner, attribute = registration.owner, registration.attribute

        def keep(undo: Callable[[], Any]) -> None:
            self._added[id(owner), attribute] = undo

        self._begin(owner, attribute, table.api(registration.prefix, attribute), keep)

    def forget(self, owner: Any, attribute: str) -> None:
        """Watch a registered function no more."""
        undo = self._added.pop((id(owner), attribute), None)
        if undo is not None:
            _contained(undo)

    def _watch(self, owner: Any, attribute: str, api: Api) -> None:
        self._begin(owner, attribute, api, self._undo.append)

    def _begin(self, owner: Any, attribute: str, api: Api, keep: Callable[[Callable[[], Any]], None]) -> None:
        """Begin to watch. What undoes it is kept first: an interruption of the user's may come between any two lines."""
        try:
            function = getattr(owner, attribute)
            if seen_by_mode(function):
                self._rename(function, api, keep)
            else:
                one = watch(owner, attribute, api, self._recorder)
                keep(one.off)
                switched_on(one, api.full)
        except Exception as error:
            let_through(error)
            logger.warning(f"{api.full} cannot be watched, its calls are not recorded: {error!r}")

    def _rename(self, function: Any, api: Api, keep: Callable[[Callable[[], Any]], None]) -> None:
        """The mode sees the calls of this function: for this window it knows them by this name."""
        assert self._table is not None
        names = self._table.by_function
        functions = [function]
        if type(function) is torch_internals.OpOverloadPacket:
            packet: Any = function
            functions += [getattr(packet, overload) for overload in packet.overloads()]
        before = [(one, names.get(one)) for one in functions]

        def undo() -> None:
            for one, known in before:
                if known is None:
                    names.pop(one, None)
                else:
                    names[one] = known

        keep(undo)
        for one, known in before:
            # How torch hands on the arguments of its own Python functions stays known.
            names[one] = api if known is None else replace(known, prefix=api.prefix, name=api.name, full=api.full, ignored=api.ignored)

    def _custom(self, table: ApiTable, module: str, name: str) -> None:
        """A line of custom_wrap_ops.yaml; what is not there is told once and looked for again at the next start."""
        owner = sys.modules.get(module)
        reason = ""
        if owner is None:
            reason = f"no module {module} has been imported when recording starts"
        else:
            try:
                raw, _ = raw_attribute(owner, name)
                reason = why_not_watched(raw, name)
            except AttributeError:
                close = nearest(name, tuple(vars(owner)))
                reason = f"module {module} has no {name}" + (f"; did you mean {close}?" if close else "")
        if not reason:
            self._watch(owner, name, table.api(module, name))
        elif (module, name) not in table.told:
            table.told.add((module, name))
            logger.warning(f"{CUSTOM}: {module}.{name} is not recorded: {reason}")


def _contained(undo: Callable[[], Any]) -> None:
    """One that cannot be undone (its attribute is gone) does not keep the others."""
    try:
        undo()
    except Exception as error:
        let_through(error)
        logger.debug(f"the watching of a function could not be undone: {error!r}")
