"""Names that a selection asks for and that never came by: which they are, and what they may have been meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from heapq import nlargest

from msprobe.format import names

MOST_NAMES = 4096
"""So many different names are remembered; more would only be more to search."""
MOST_SEARCHED = 10
"""For so many names at a time the nearest are looked for; the others are told without."""
_COMPARED = 400
"""So many names are compared letter by letter: those that have most parts in common with the wanted one."""

_WHERE_NAMES_ARE = 'no name that ran is like it, and a run with task "structure" writes all of them into its dump.json'

_API_PREFIXES = ("Functional.", "Torch.", "Tensor.", "VF.", "Aten.", "Distributed.", "NPU.", "MindSpeed.", "Triton.")


@dataclass
class NamesSeen:
    """What came by in all steps of a process, and what has been told about it.

    Attributes:
        calls: name without number and direction (`Functional.relu`) -> highest number seen.
        matched: (field, name) that a call has matched.
        told: (field, name) reported as unmatched.
    """

    calls: dict[str, int] = field(default_factory=dict)
    matched: set[tuple[str, str]] = field(default_factory=set)
    told: set[tuple[str, str]] = field(default_factory=set)

    def note(self, name: str) -> None:
        """Remember an entry's name."""
        parsed = names.parse(name)
        if isinstance(parsed, names.ApiName | names.ModuleName):
            operation = parsed.operation
            highest = self.calls.get(operation)
            if highest is None:
                if len(self.calls) < MOST_NAMES:
                    self.calls[operation] = parsed.count
            elif parsed.count > highest:
                self.calls[operation] = parsed.count

    def advice(self, wanted: str, level: str, left_out: Iterable[str], search: bool = True) -> str:
        """What a name that matched nothing may have been meant to be.

        Args:
            wanted: the name, or a part of one.
            level: the level of recording.
            left_out: APIs that ran and that risk_level leaves out.
            search: whether to look for similar names, which takes time.
        """
        parsed = names.parse(wanted)
        operation = wanted if parsed is None else parsed.operation
        risky = next((api for api in left_out if operation in api), None)
        if risky is not None:
            return f'"{risky}" ran, but risk_level leaves it out: set "risk_level" to "ALL"'
        if isinstance(parsed, names.ApiName | names.ModuleName) and operation in self.calls:
            return self._of_known(parsed)
        if level == "L1" and wanted.startswith(("Module.", "Cell.")):
            return 'level "L1" records no modules: use level "L0" or "mix"'
        if level == "L0" and (isinstance(parsed, names.ApiName) or wanted.startswith(_API_PREFIXES)):
            return 'level "L0" records no APIs: use level "L1" or "mix"'
        if not self.calls:
            return "no call came by at all"
        if not search:
            return ""
        nearest = self._nearest(operation)
        return f"the nearest names that ran: {', '.join(map(self._shown, nearest))}" if nearest else _WHERE_NAMES_ARE

    def _of_known(self, parsed: names.ApiName | names.ModuleName) -> str:
        """What there is of a call that ran, but not under the number or the direction that was asked for."""
        highest = self.calls[parsed.operation]
        if parsed.count > highest or parsed.direction == names.FORWARD:
            return f"{parsed.operation} ran with {_numbers(highest)} only"
        return f"{parsed.operation} ran, but no gradients came for it"

    def _shown(self, operation: str) -> str:
        return f'"{operation}" ({_numbers(self.calls[operation])})'

    def _nearest(self, wanted: str) -> list[str]:
        """Up to three names that are like `wanted`, or end in something that is, or of which a part is; upper and lower case are one."""
        wanted = wanted.casefold().removesuffix(".forward").removesuffix(".backward")
        pieces = wanted.split(".")
        lengths = range(max(1, len(pieces) - 1), len(pieces) + 2) if len(pieces) > 1 else (1,)
        keys: dict[str, str] = {}
        for operation in self.calls:
            parts = operation.casefold().split(".")
            for length in lengths:
                starts = range(len(parts)) if length == 1 else (len(parts) - length,)
                for start in starts:
                    if start >= 0:
                        keys.setdefault(".".join(parts[start : start + length]), operation)
        among = set(pieces)
        likely = nlargest(_COMPARED, keys, key=lambda key: len(among.intersection(key.split("."))))
        found = dict.fromkeys(keys[key] for key in get_close_matches(wanted, likely, n=6, cutoff=0.6))
        return list(found)[:3]


def _numbers(highest: int) -> str:
    return f"numbers 0 to {highest}" if highest else "number 0"
