"""One recorded call of an API between its begin and its end."""

from __future__ import annotations

from typing import Any

from msprobe.pytorch.dump.api_dump.api_table import Api
from msprobe.recording.stacks import Stack


class ApiCall:
    """One call of an API between its begin and its end."""

    __slots__ = ("api", "data", "edges", "entry", "floor", "name", "number", "parent", "stack")

    def __init__(self, api: Api, name: str, number: int, parent: str | None, data: dict[str, Any] | None) -> None:
        self.api, self.name, self.number, self.parent, self.data = api, name, number, parent, data
        self.entry: Any = None
        self.edges: Any = None
        self.floor = 0
        self.stack: Stack


def backward_of(forward: str | None) -> str | None:
    """The backward entry that mirrors a forward one: `Module.a.Mlp.forward.0` -> `Module.a.Mlp.backward.0`."""
    if forward is None or ".forward." not in forward:
        return None
    head, _, tail = forward.rpartition(".forward.")
    return f"{head}.backward.{tail}"
