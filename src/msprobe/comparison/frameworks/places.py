"""Names of values inside a call: `gamma` of a LayerNorm is the `weight` of PyTorch's, `axis` is `dim`."""

from __future__ import annotations

from collections.abc import Mapping

from msprobe.comparison.frameworks.equivalents import equivalents
from msprobe.comparison.rows import Call


def places(call: Call, partner: Call, known: Mapping[str, str], known_there: Mapping[str, str]) -> dict[str, str]:
    """Key of a row -> the key that the partner in the other framework has for it.

    Args:
        call, partner: a pair of calls, either way round; nothing is renamed of the one that PyTorch made.
        known, known_there: keys of either for which the usual place is known already.
    """
    found = dict(known)
    if not call.parts.own:
        return found
    table = equivalents()
    theirs = {row.key for row in partner.rows}
    by_position = _positions(partner)
    for row in call.rows:
        role, _, name = row.key.rpartition(".")
        if row.key in theirs:
            continue
        if row.role in ("parameters", "parameters_grad"):
            key = _joined(role, table.parameters.get(name, name))
        elif row.role == "input" and not call.parts.is_module:
            argument = table.arguments.get(name, name)
            key = _joined(role, argument)
            key = key if key in theirs else by_position.get(argument, row.key)
        else:
            continue
        if key in theirs:
            found[row.key] = known_there.get(key, key)
    return found


def _joined(role: str, name: str) -> str:
    return f"{role}.{name}" if role else name


def _positions(call: Call) -> dict[str, str]:
    from msprobe.comparison.alignment.places import argument_names

    return {name: f"input.{place}" for place, name in enumerate(argument_names(call))}
