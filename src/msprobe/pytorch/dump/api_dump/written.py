"""Which arguments an operator of an extension writes to, and which of them say nothing before the call: both are in its schema.

`torch.ops._C.onednn_mm(c, a, bias, handler)` returns nothing; its result is `c`, which the caller has made with `torch.empty`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.ignoring import Ignored

_RESULTS = frozenset({"c", "out", "output", "outputs", "result", "results"})
"""What such arguments are called, or the first or last part of their names."""


@dataclass(frozen=True)
class Written:
    """The arguments of an operator that it writes to.

    Attributes:
        arguments: (position, name) of each.
        returns: whether the operator returns anything besides.
    """

    arguments: tuple[tuple[int, str], ...]
    returns: bool

    def output(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[Any, ...]:
        """What a call gave: what it returned, then what it wrote to and did not return; None for an argument that was not given."""
        returned: tuple[Any, ...] = ()
        if self.returns:
            returned = result if type(result) is tuple else (result,)
        there = [args[position] if position < len(args) else kwargs.get(name) for position, name in self.arguments]
        return (*returned, *(value for value in there if value is None or all(value is not one for one in returned)))


def written(packet: Any) -> tuple[Written | None, Ignored | None]:
    """What an operator writes to, None where that is nothing; and what of its inputs is left out: memory that holds nothing
    before the call, and addresses.

    Args:
        packet: an OpOverloadPacket. Of several overloads `default` counts, else the first.
    """
    names = packet.overloads()
    schema = torch_internals.schema_of(getattr(packet, "default" if "default" in names else names[0]))
    arguments = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    left_out = [(position, name) for position, name in arguments if _is_result(name)]
    left_out += [(position, argument.name) for position, argument in enumerate(schema.arguments) if _is_address(argument.name)]
    ignored = Ignored(inputs=frozenset(position for position, _ in left_out), keywords=frozenset(name for _, name in left_out))
    return Written(arguments, bool(schema.returns)) if arguments else None, ignored if left_out else None


def _is_address(name: str) -> bool:
    """Whether an argument holds the address of an object, as a number or in a tensor: it is another in every run."""
    return name in ("handle", "handler", "handler_tensor") or name.endswith(("_ptr", "_ptrs"))


def _is_result(name: str) -> bool:
    """Whether an argument that is written to is only written to, as far as its name tells: `out`, `output_scale`, `residual_out`."""
    parts = name.split("_")
    return name in _RESULTS or parts[0] in _RESULTS or parts[-1] in _RESULTS
