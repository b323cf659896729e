"""Gradients in the common case: what `GradientObservers` and `ParameterGradients` do, done by C; what is rare stays with their methods."""

from __future__ import annotations

from collections import OrderedDict

from msprobe.pytorch.dump.call_gradients import total
from msprobe.pytorch.dump.common_case import hot
from msprobe.pytorch.dump.gradients import GradientObservers
from msprobe.pytorch.dump.graph_call import in_dtype, part_from_outside
from msprobe.pytorch.dump.parameter_gradients import ParameterGradients

Classes = tuple[type[GradientObservers], type[ParameterGradients]]


def _in_c() -> Classes:
    hot.set_helpers(total, part_from_outside, in_dtype, OrderedDict)

    class Observers(hot.Observers, GradientObservers):
        """`watch`, `close` and the observers on nodes are in C."""

    class Parameters(hot.ParameterGradients, ParameterGradients):
        """All but `__init__` is in C."""

    return Observers, Parameters


IN_PYTHON: Classes = GradientObservers, ParameterGradients
COMMON: Classes = IN_PYTHON if hot is None else _in_c()
"""Those of a step of which `common_case.is_common` says yes."""
