"""Which rank this process is, among all and on its node, and waiting for what still runs."""

from __future__ import annotations

from msprobe.contain import let_through
from msprobe.mindspore.mindspore_internals import synchronize


def current_rank() -> int | None:
    """The rank in the world group, None where communication was not initialised (MindSpore's get_rank says 0 there)."""
    try:
        from mindspore.communication import GlobalComm, get_rank

        return int(get_rank()) if GlobalComm.INITED else None
    except Exception as error:
        let_through(error)
        return None


def rank_in_node() -> int | None:
    """Which of the processes of its node this one is, counted from 0; None where communication was not initialised, or does not say."""
    return _of_node("get_local_rank")


def ranks_of_node() -> int | None:
    """How many processes of the run are on this node; None where communication was not initialised, or does not say."""
    return _of_node("get_local_rank_size")


def _of_node(function: str) -> int | None:
    try:
        from mindspore import communication

        number = int(getattr(communication, function)()) if communication.GlobalComm.INITED else -1
        return number if number >= 0 else None
    except Exception as error:
        let_through(error)
        return None


def wait_for_device() -> Exception | None:
    """Return when everything that was started has run; gives what an operation of the user's raised meanwhile."""
    try:
        synchronize()
    except Exception as error:
        let_through(error)
        return error
    return None
