"""The methods of communications' handles: torch's own until there is a call to wait for, and again after the window."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe.pytorch.dump.distributed.deferred import Deferred
from msprobe.pytorch.dump.distributed.pending import NOT_WAITED, PendingCalls

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed")


def methods() -> dict[str, Any]:
    return {**vars(torch.distributed.Work)}


def a_call(pending: PendingCalls) -> tuple[Any, list[Any]]:
    """A handle, and what has become of the call that gave it."""
    became: list[Any] = []
    work = torch.distributed.Work()
    deferred = Deferred("output", lambda: pending.add([work], deferred))
    deferred.keep(became.append, became.append)
    return work, became


def test_methods_are_replaced_when_the_first_call_waits() -> None:
    before = methods()
    pending = PendingCalls()
    for _ in range(2):
        pending.on()
        assert methods() == before
        work, became = a_call(pending)
        assert methods() != before and became == []
        pending.off()
        assert methods() == before
        assert became == [NOT_WAITED]
        del work


def test_a_call_that_ends_after_the_window_replaces_nothing() -> None:
    before = methods()
    pending = PendingCalls()
    pending.on()
    pending.off()
    a_call(pending)
    assert methods() == before
    pending.off()
