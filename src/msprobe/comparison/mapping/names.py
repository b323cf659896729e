"""What a call of the target is called on the golden side: mapping files, and a model that is wrapped on one side only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msprobe.comparison.alignment.meaning import meaning
from msprobe.comparison.alignment.side import Rename, path_of
from msprobe.comparison.frameworks.naming import mapped_class, mapped_name
from msprobe.comparison.mapping.nearest import hint
from msprobe.comparison.names import EntryName
from msprobe.comparison.rows import Call

TOP = "TopLayer"


@dataclass(frozen=True)
class Names:
    """Names that the user has mapped.

    Attributes:
        modules, classes, calls: as in the mapping file; `calls` also holds what `-am` says.
        cells: `-cm`: `path.Class` -> `path.Class`, or parts of them.
        layers: `-lm`: class -> attribute -> path, relative to the golden module.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.modules or self.classes or self.calls or self.cells or self.layers)


NO_NAMES = Names()


def _in_common(names: Names, golden: Sequence[Call]) -> Names:
    """With what stands on the golden side in the names by which calls are paired, which are those of PyTorch."""
    if not names or not any(call.parts.own for call in golden):
        return names
    classes = {name: mapped_class(to) for name, to in names.classes.items()}
    calls = {name: mapped_name(to) for name, to in names.calls.items()}
    return replace(names, classes=classes, calls=calls, cells={name: mapped_class(to) for name, to in names.cells.items()})


def renaming(names: Names, target: Sequence[Call], golden: Sequence[Call]) -> Rename | None:
    """The function that gives each call of the target its base on the golden side; None where no name changes."""
    found = _Renaming(_in_common(names, golden), _classes(target), _classes(golden))
    return found if names or found.prefix != ("", "") else None


def without_effect(names: Names, target: Sequence[Call]) -> list[str]:
    """What the user has mapped and the target does not have: `modules: transformer.hh`. A typing error would else go unseen."""
    known = _Known(target)
    found = [f"modules: {rule}" for rule in names.modules if not known.has_module(rule)]
    found += [f"classes: {name}" for name in names.classes if name not in known.classes]
    found += [f"calls: {name}" for name in names.calls if name not in known.calls]
    rest = [f"{path}.{name}" for path, name in known.modules.items()]
    found += [name for name in names.cells if not any(name in text for text in rest)]
    found += [name for name in names.layers if name != TOP and name not in known.classes]
    return found


def without_effect_there(names: Names, golden: Sequence[Call]) -> list[str]:
    """What the user has mapped something to and the golden run does not have."""
    known = _Known(golden)
    meanings = {meaning(call.parts.base) for call in golden if not call.parts.is_module}
    found = [f"modules: {rule}" for rule in names.modules.values() if not known.has_module(rule)]
    found += [f"classes: {name}" for name in names.classes.values() if name not in known.classes]
    return found + [f"calls: {name}" for name in names.calls.values() if name not in known.calls and meaning(name) not in meanings]


def nearest_to(name: str, calls: Sequence[Call]) -> str:
    """What one of these may have meant, as the end of a sentence."""
    kind, _, text = name.rpartition(": ")
    known = _Known(calls)
    parts = [path.split(".") for path in known.modules]
    inner = {".".join(path[:count]) for path in parts for count in range(1, len(path) + 1)}
    return hint(text, {"modules": inner, "calls": known.calls, "classes": known.classes}.get(kind, known.classes))


class _Known:
    """What there is on one side."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.modules = _classes(calls)
        self.classes = set(self.modules.values())
        self.calls = {call.parts.recorded for call in calls if not call.parts.is_module}
        self._paths = [path.split(".") for path in self.modules]

    def has_module(self, rule: str) -> bool:
        """Whether a module lies at this path, or inside it."""
        return any(match(rule.split("."), path) is not None for path in self._paths)


class _Renaming:
    def __init__(self, names: Names, target: Mapping[str, str], golden: Mapping[str, str]) -> None:
        self.names = names
        self.classes = target
        self.rules = sorted(((rule.split("."), to) for rule, to in names.modules.items()), key=lambda rule: -len(rule[0]))
        self.layers: dict[str, str] = {}
        self.prefix = _prefix(target.keys(), golden.keys()) if not (names.modules or names.layers or names.cells) else ("", "")

    def __call__(self, parts: EntryName) -> str:
        if not parts.is_module:
            return self.names.calls.get(parts.recorded, parts.base)
        root, _, rest = parts.base.partition(".")
        path, _, class_name = rest.rpartition(".")
        cell = self._cell(parts.recorded.partition(".")[2])
        if cell is not None:
            return f"{root}.{cell}"
        path = self.path(path)
        return ".".join(filter(None, (root, path, self.names.classes.get(parts.recorded.rpartition(".")[2], class_name))))

    def path(self, path: str) -> str:
        """Of a module, whatever its class."""
        if self.names.layers:
            path = self._layer(path)
        given = path.split(".")
        for rule, to in self.rules:
            stars = match(rule, given)
            if stars is not None:
                return ".".join([fill(to, stars), *given[len(rule) :]])
        ours, theirs = self.prefix
        if ours and (path == ours or path.startswith(ours + ".")):
            path = path[len(ours) + 1 :]
        return f"{theirs}.{path}" if theirs and path else path

    def _cell(self, rest: str) -> str | None:
        if rest in self.names.cells:
            return self.names.cells[rest]
        changed = rest
        for ours, theirs in self.names.cells.items():
            changed = changed.replace(ours, theirs, 1)
        return changed if changed != rest else None

    def _layer(self, path: str) -> str:
        """By the rules of the class around a module, and what that itself is called."""
        if path in self.layers or not path:
            return self.layers.get(path, "")
        parts = path.split(".")
        outer = next((known for count in range(len(parts) - 1, 0, -1) if (known := ".".join(parts[:count])) in self.classes), "")
        inner = path[len(outer) + 1 :] if outer else path
        rules = self.names.layers.get(self.classes[outer] if outer else TOP, {})
        inside = inner.split(".")
        for count in range(len(inside), 0, -1):
            to = rules.get(".".join(inside[:count]))
            if to is not None:
                inner = ".".join([to, *inside[count:]])
                break
        self.layers[path] = ".".join(filter(None, (self._layer(outer), inner)))
        return self.layers[path]


def match(rule: Sequence[str], path: Sequence[str]) -> list[str] | None:
    """What the stars of `rule` stand for, if it is the beginning of `path`; else None."""
    if len(rule) > len(path):
        return None
    stars: list[str] = []
    for wanted, part in zip(rule, path):  # noqa: B905 - the rule may be shorter
        if wanted == "*":
            stars.append(part)
        elif wanted != part:
            return None
    return stars


def fill(pattern: str, stars: Iterable[str]) -> str:
    """`pattern` with its stars replaced, in their order."""
    waiting = iter(stars)
    return ".".join(next(waiting, "*") if part == "*" else part for part in pattern.split("."))


def _classes(calls: Sequence[Call]) -> dict[str, str]:
    """Path of a module -> its class."""
    bases = {call.parts.recorded for call in calls if call.parts.is_module}
    return {path_of(base): base.rpartition(".")[2] for base in bases}


def _prefix(target: Iterable[str], golden: Iterable[str]) -> tuple[str, str]:
    """What nearly all paths of one side begin with and those of the other do not (`module` under DDP); ("", "") for most pairs."""
    paths = set(filter(None, target)), set(filter(None, golden))
    if not paths[0] or not paths[1]:
        return "", ""
    best, chosen = len(paths[0] & paths[1]), ("", "")
    if 2 * best >= min(map(len, paths)):
        return chosen
    for side in (0, 1):
        for prefix in _leading(paths[side]):
            shorter = {path[len(prefix) + 1 :] for path in paths[side] if path.startswith(prefix + ".")}
            common = len(shorter & paths[1 - side])
            if common > best and 2 * common >= min(len(shorter), len(paths[1 - side])):
                best, chosen = common, ((prefix, "") if side == 0 else ("", prefix))
    return chosen


def _leading(paths: set[str]) -> list[str]:
    counts: Counter[str] = Counter()
    for path in paths:
        parts = path.split(".")
        counts.update(".".join(parts[:count]) for count in (1, 2, 3) if len(parts) > count)
    return [prefix for prefix, count in counts.items() if 2 * count >= len(paths)]


__all__ = ["NO_NAMES", "TOP", "Names", "fill", "match", "nearest_to", "renaming", "without_effect", "without_effect_there"]
