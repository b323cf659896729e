"""The tree of calls: who called what, with a result for every row. What the page needs before anything is selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.comparison import report_csv
from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.reports.full_rows import STACK
from msprobe.comparison.reports.report_html.values import BLOCK

LETTERS = {"pass": "p", "warning": "w", "error": "e", "unmatched": "u", "not compared": "n"}


def tree(compared: Compared) -> dict[str, Any]:
    """Columns, one element a call or a row; calls without rows that only gather others stand behind the recorded ones."""
    calls = compared.calls
    names, parents = _parents(compared)
    keys: dict[str, int] = {}
    key_of: list[int] = []
    results: list[str] = []
    for call, verdicts in zip(calls, compared.verdicts, strict=True):
        for (ours, theirs), _ in call.rows:
            row = ours or theirs
            key_of.append(keys.setdefault(row.key if row is not None else "", len(keys)))
        results.extend([LETTERS[verdict.result] for verdict in verdicts])
    return {
        "header": [name for name in report_csv.header(compared) if name != STACK],
        "metrics": list(compared.metrics),
        "block": BLOCK,
        "names": names,
        "recorded": len(calls),
        "golden": _renamed(calls),
        "sides": "".join("b" if call.matched else "t" if call.pair.target is not None else "g" for call in calls),
        "parents": parents,
        "rows": [len(call.rows) for call in calls],
        "results": "".join(results),
        "keys": list(keys),
        "key": key_of,
    }


def first_calls(compared: Compared) -> dict[str, int]:
    """Numbers of the calls that the search for the first difference named."""
    numbers = {call.name: number for number, call in enumerate(compared.calls)}
    found = compared.findings
    named = {
        "first": found.first.call.name if found.first is not None else None,
        "value": found.value.call.name if found.value is not None else None,
        "beyond": found.beyond_rounding.call.name if found.beyond_rounding is not None else None,
        "unmatched": found.unmatched.name if found.unmatched is not None else None,
    }
    return {word: numbers[name] for word, name in named.items() if name in numbers}


def _renamed(calls: Sequence[MeasuredCall]) -> dict[str, str]:
    """Number of a call -> its name in the golden dump, where that is another one."""
    found: dict[str, str] = {}
    for number, call in enumerate(calls):
        golden = call.pair.golden
        if golden is not None and golden.name != call.name:
            found[str(number)] = golden.name
    return found


def _parents(compared: Compared) -> tuple[list[str], list[int]]:
    """Names of all nodes, and for each the number of the node around it, -1 for none."""
    calls = compared.calls
    names = [call.name for call in calls]
    numbers = {name: number for number, name in enumerate(names)}
    of_golden = {call.pair.golden.name: number for number, call in enumerate(calls) if call.pair.golden is not None}
    last_backward = {c.parts.base: n for n, c in enumerate(calls) if c.parts.is_module and c.parts.direction == "backward"}
    parents: list[int] = []
    known: Mapping[str, int]
    pending: list[tuple[int, str, Mapping[str, str | None], Mapping[str, int]]] = []
    for number, call in enumerate(calls):
        ours = call.pair.target is not None
        recorded = compared.parents if ours else compared.golden_parents
        known = numbers if ours else of_golden
        around = recorded.get(call.name)
        parents.append(-1)
        if isinstance(around, str):
            if around in known:
                parents[number] = known[around]
            else:
                pending.append((number, around, recorded, known))
        elif call.parts.direction == "parameters_grad":
            parents[number] = last_backward.get(call.parts.base, -1)
    while pending:  # what is around a call may have no entry of its own, as an optimizer
        number, around, recorded, known = pending.pop()
        node = numbers.get(around)
        if node is None:
            node = numbers[around] = len(names)
            names.append(around)
            parents.append(-1)
            outer = recorded.get(around)
            if isinstance(outer, str):
                if outer in known:
                    parents[node] = known[outer]
                else:
                    pending.append((node, outer, recorded, known))
        parents[number] = node
    _cut_circles(parents)
    return names, parents


def _cut_circles(parents: list[int]) -> None:
    """A damaged construct.json may hold a circle: then one of its calls gets no parent."""
    done = bytearray(len(parents))
    for start in range(len(parents)):
        path: list[int] = []
        node = start
        while node >= 0 and not done[node]:
            done[node] = 2
            path.append(node)
            if parents[node] >= 0 and done[parents[node]] == 2:
                parents[node] = -1
            node = parents[node]
        for node in path:
            done[node] = 1
