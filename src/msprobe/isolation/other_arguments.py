"""Arguments that are other ones than in the golden run: what they may explain, and the remark on those that explain nothing.

They may be the reason for what is wrong in the module that is called with them, and no more than that: a port may well do without an
argument, and what is wrong besides is judged on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msprobe.isolation.differences import Difference
from msprobe.isolation.evidence import CallFacts
from msprobe.isolation.suspects import Suspect, class_of, short

_SHOWN = 4


class Arguments:
    """The calls of a run that have other arguments.

    Args:
        calls: all calls that both runs made.
    """

    def __init__(self, calls: Sequence[CallFacts]) -> None:
        self._calls = {facts.name: facts for facts in calls}
        self._spoilt = {facts.parent for facts in calls if facts.arrived or facts.outputs} | {
            facts.name for facts in calls if facts.outputs
        }
        """Calls in which something is wrong."""
        self._found: dict[str, CallFacts] = {}
        self._blamed: set[str] = set()

    def add(self, facts: CallFacts) -> None:
        """A call whose arguments are other ones, and not because of what ran before."""
        self._found[facts.name] = facts

    def blame(self, suspect: Suspect, facts: CallFacts | None) -> None:
        """Tell a suspect of the arguments of the module that is to blame, unless another of its class is right with the same ones."""
        if facts is None or facts.name not in self._found or self._harmless(facts):
            return
        suspect.arguments = facts.arguments
        first = self._first(facts)
        suspect.handed_down = first if first != facts.name else None
        self._blamed.add(first)

    def remarks(self) -> Iterator[str]:
        """A sentence for all calls of a class with the same arguments that nobody blames, where they come in."""
        alike: dict[tuple[object, ...], list[str]] = {}
        for name, facts in self._found.items():
            if self._first(facts) == name and name not in self._blamed:
                alike.setdefault((class_of(name), *_shown(facts)), []).append(name)
        for (_, *shown), names in alike.items():
            calls = f"{short(names[0])} and {len(names) - 1} more are called" if len(names) > 1 else f"{short(names[0])} is called"
            told = ", ".join(map(str, shown[:_SHOWN])) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
            yield f"{calls} with other arguments, which explain nothing that is wrong: {told}"

    def _first(self, facts: CallFacts) -> str:
        """The outermost call around it that has all of these, and hands them down."""
        above = self._found.get(facts.parent or "")
        keys = {difference.key for difference in facts.arguments}
        while above is not None and keys <= {difference.key for difference in above.arguments}:
            facts, above = above, self._found.get(above.parent or "")
        return facts.name

    def _harmless(self, facts: CallFacts) -> bool:
        return any(
            class_of(name) == class_of(facts.name) and name not in self._spoilt and _shown(other) == _shown(facts)
            for name, other in self._found.items()
            if name != facts.name
        )


def _shown(facts: CallFacts) -> list[str]:
    return [_in_words(difference) for difference in facts.arguments]


def _in_words(difference: Difference) -> str:
    return f"{difference.key.removeprefix('input.')} ({difference.how})"
