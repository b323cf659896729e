"""What an entry's name says of it."""

from __future__ import annotations

import dataclasses

from msprobe.format import names


def kind_of(name: str) -> str:
    """The direction in an entry's name; `forward` for a name that is none."""
    parsed = names.parse(name)
    return names.FORWARD if parsed is None else parsed.direction


def forward_of(name: str) -> str:
    """`X.0.backward.pass1` -> `X.0.forward`; `Module.a.B.backward.0` -> `Module.a.B.forward.0`."""
    parsed = names.parse(name)
    if isinstance(parsed, names.ApiName | names.ModuleName):
        parsed = dataclasses.replace(parsed, direction=names.FORWARD, extra_pass=0)
    return str(parsed)
