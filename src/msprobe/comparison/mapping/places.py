"""Where the names of a rule lie: `layers.*.self_attn.qkv_proj.output.0` -> a module's calls and a key in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.mapping.names import fill, match
from msprobe.comparison.mapping.nearest import hint
from msprobe.comparison.mapping.rules import How, TensorRule
from msprobe.comparison.rows import Call

_ROLES = frozenset({"input", "output", "parameters", "grad"})


class Place(NamedTuple):
    """A value of a module: the path of the module and the key of the row."""

    path: str
    key: str


class Use(NamedTuple):
    """A rule where it holds: one value of a module of the target and the golden values. `rule`: its target in the mapping file."""

    target: Place
    golden: tuple[Place, ...]
    how: How
    rule: str = ""


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
            yield f"the mapping file's rule for {rule.target} fits no module that both dumps have{_why(rule, target, golden)}"


def _why(rule: TensorRule, target: Modules, golden: Modules) -> str:
    """Which of its names is the one that fits nothing, and what it may have meant."""
    own = _held(rule.target, target)
    if own is None:
        return f": the target has no module {_path(rule.target)}{hint(_path(rule.target), target.forward)}"
    path, stars, key = own
    if not any(row.key == key for row in target.forward[path][0].rows):
        return f": {lacks(Place(path, key), (row.key for row in target.forward[path][0].rows), 'the target')}"
    for name in rule.golden:
        if golden.place(fill(name, stars)) is None:
            return f": the golden run has no module {_path(name)}{hint(_path(name), golden.forward)}"
    return ""


def lacks(place: Place, known: Iterable[str], side: str) -> str:
    """`fc of the target has no outputs.0; nearest: output.0`. `known`: the keys that its module has."""
    key = place.key.removeprefix("parameters.")
    return f"{place.path} of {side} has no {key}{hint(key, (other.removeprefix('parameters.') for other in known), stars=False)}"


def _held(name: str, modules: Modules) -> tuple[str, list[str], str] | None:
    """A module that a name fits, what its stars stand for there, and the key; the longest path counts."""
    parts = name.split(".")
    found: tuple[str, list[str], str] | None = None
    for path in modules.forward:
        own = path.split(".")
        stars = match(parts[: len(own)], own) if len(own) < len(parts) else None
        if stars is not None and (found is None or len(path) > len(found[0])):
            found = path, stars, key_of(parts[len(own) :])
    return found


def _path(name: str) -> str:
    """The module in the name of a value, as far as the name alone tells."""
    parts = name.split(".")
    role = next((place for place, part in enumerate(parts) if place and part in _ROLES), len(parts) - 1)
    return ".".join(parts[:role])


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
            yield Use(Place(path, key), known, rule.how, rule.target)
