"""Gradients in the common case: what `GradientObservers` and `ParameterGradients` do, done by C; what is rare stays with their methods."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import total
from msprobe.pytorch.dump.common_case import hot
from msprobe.pytorch.dump.gradients import GradientObservers
from msprobe.pytorch.dump.graph_pass import in_dtype, part_from_outside
from msprobe.pytorch.dump.parameter_gradients import ParameterGradients

Classes = tuple[type[GradientObservers], type[ParameterGradients]]


def _in_c() -> Classes:
    hot.set_helpers(total, part_from_outside, in_dtype, OrderedDict, torch_internals.dispatch_modes)

    class Observers(hot.Observers, GradientObservers):
        """`watch`, `close` and the observers on nodes are in C."""

    class Parameters(hot.ParameterGradients, ParameterGradients):
        """All but `__init__` is in C."""

    return Observers, Parameters


IN_PYTHON: Classes = GradientObservers, ParameterGradients
COMMON: Classes = IN_PYTHON if hot is None else _in_c()
"""Those of a step of which `common_case.is_common` says yes."""


class QuickObservers:
    """For the window, torch keeps the C's observers on nodes without a handle made by Python, which costs more than the rest of them."""

    def __init__(self) -> None:
        self._before: Any = None

    def on(self) -> None:
        """All other hooks are kept as before."""
        before = torch_internals.hook_keeper()
        if isinstance(before, staticmethod):
            hot.keep_hooks(before.__func__)
            self._before = before
            torch_internals.replace_hook_keeper(hot.register_hook)

    def off(self) -> None:
        """Restore torch's way, unless somebody else has replaced it since."""
        if self._before is not None and torch_internals.hook_keeper() is hot.register_hook:
            torch_internals.replace_hook_keeper(self._before)
        self._before = None
