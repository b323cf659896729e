"""Where the names of a rule lie: `layers.*.self_attn.qkv_proj.output.0` -> a module's calls and a key in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.mapping.names import fill, match
from msprobe.comparison.mapping.rules import How, TensorRule
from msprobe.comparison.rows import Call

_ROLES = frozenset({"input", "output", "parameters", "grad"})


class Place(NamedTuple):
    """A value of a module: the path of the module and the key of the row."""

    path: str
    key: str


class Use(NamedTuple):
    """A rule where it holds: one value of a module of the target and the golden values."""

    target: Place
    golden: tuple[Place, ...]
    how: How


def key_in(key: str, direction: str, through: bool = True) -> str:
    """Where what a rule calls `key` stands in an entry of this direction; "" where it does not.

    The gradient of an output comes into the backward call, that of an input goes out of it.

    Args:
        through: what is said of a value holds for its gradient too, as for tensors that are joined and not for terms of a sum.
    """
    if direction == "forward":
        return "" if key.startswith("grad.") else key
    if direction == "parameters_grad":
        return key.removeprefix("parameters.") if key.startswith("parameters.") else ""
    if key.startswith("grad.output"):
        return f"input{key[11:]}"
    if key.startswith("grad.input"):
        return f"output{key[10:]}"
    return f"input{key[6:]}" if through and key.startswith("output") else ""


class Modules:
    """The modules of one dump.

    Attributes:
        forward: path -> forward calls in their order.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.forward: defaultdict[str, list[Call]] = defaultdict(list)
        for call in calls:
            if call.parts.is_module and call.parts.direction == "forward":
                self.forward[path_of(call.parts.base)].append(call)

    def place(self, name: str) -> Place | None:
        """The longest path of a module that `name` begins with, and the rest as a key; None where there is no such module."""
        parts = name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            path = ".".join(parts[:count])
            if path in self.forward:
                return Place(path, key_of(parts[count:]))
        return None


def key_of(rest: Sequence[str]) -> str:
    """`output.0` and `grad.input.0` (the gradient of that input) as they are; `weight` as `parameters.weight`."""
    return ".".join(rest) if rest[0] in _ROLES else ".".join(("parameters", *rest))


def uses(rules: Iterable[TensorRule], target: Modules, golden: Modules) -> Iterator[Use | str]:
    """Each rule wherever it holds, and a sentence for each rule that holds nowhere."""
    for rule in rules:
        found = list(_uses(rule, target, golden))
        if found:
            yield from found
        else:
            yield f"the mapping file's rule for {rule.target} fits no module that both dumps have"


def _uses(rule: TensorRule, target: Modules, golden: Modules) -> Iterator[Use]:
    parts = rule.target.split(".")
    for path, calls in target.forward.items():
        own = path.split(".")
        stars = match(own_pattern, own) if len(own_pattern := parts[: len(own)]) == len(own) and len(own) < len(parts) else None
        if stars is None:
            continue
        key = key_of(parts[len(own) :])
        if not key.startswith("grad.") and not any(row.key == key for row in calls[0].rows):
            continue
        places = [golden.place(fill(name, stars)) for name in rule.golden]
        known = tuple(place for place in places if place is not None)
        if len(known) == len(places):
            yield Use(Place(path, key), known, rule.how)
