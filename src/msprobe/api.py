"""The Python interface of the comparison: msprobe.compare and msprobe.assert_same."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from msprobe.comparison.compare import plan_of
from msprobe.comparison.compared import Compared
from msprobe.comparison.kinds import KindsDiffer
from msprobe.comparison.mapping.names import Names
from msprobe.comparison.mapping.rules import TensorRules
from msprobe.comparison.measure import Agreement
from msprobe.comparison.number_lists import parse_numbers
from msprobe.comparison.one_pair import examine, report_of
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Failure, Outcome, PairReport
from msprobe.comparison.remote import is_url, local_path
from msprobe.comparison.result import Comparison, details
from msprobe.comparison.work import without_collector
from msprobe.errors import DumpFormatError, UsageError

_SHOWN = 5
_OF_THE_COMMAND = frozenset({"reports", "diff_analyze", "jobs", "cluster"})
"""Options about files and processes; here nothing is written, and everything is kept."""

_FILES = ("data_mapping", "mapping", "cell_mapping", "api_mapping", "layer_mapping")
"""Mapping files, as the command takes them; data_mapping may be a dict too."""

_TYPES: dict[str, Any] = {
    **dict.fromkeys(("fuzzy", "accept_dtype"), bool),
    **dict.fromkeys(("steps", "ranks"), (str, int, Iterable)),
    "names": Names,
    "tensors": TensorRules,
    "reference": (str, Path),
    **dict.fromkeys(_FILES, (str, Path)),
    "data_mapping": (str, Path, Mapping),
}
_WORDS = {
    **dict.fromkeys(("fuzzy", "accept_dtype"), "True or False"),
    **dict.fromkeys(("steps", "ranks"), 'numbers, as in "0,2-3" or [0, 2]'),
    "names": "a Names",
    "tensors": "a TensorRules",
    "data_mapping": "a path or a dict",
}


def compare(target: str | Path, golden: str | Path, **options: Any) -> Comparison:
    """Compares two dumps and returns what was found; writes nothing.

    Args:
        target, golden: two dump.json, two directories of one process, two step directories or two dump roots: the run in question, and
            the one that is trusted. They are read from the disk; end a running debugger's step first.
        options: fields of msprobe.comparison.options.Options by name, such as steps="0,2-3", ranks=[0, 1], reference=path,
            accept_dtype=True; and the mapping files of the command: mapping, data_mapping, cell_mapping, api_mapping, layer_mapping.

    Returns:
        All rows of all pairs are kept in it: about 2 kB for each recorded value.

    Raises:
        UsageError: the paths are not of one kind, hold no dump, or have nothing in common; an option does not exist.
        DumpFormatError: the only pair there is cannot be read.
    """
    chosen = _options(options)
    if chosen.reference is not None:
        _path(chosen.reference, "reference")
    plan = plan_of(_path(target, "target"), _path(golden, "golden"), chosen)
    kept: list[Compared] = []
    reports: list[PairReport] = []
    failures: list[Failure] = []
    for pair in plan.pairs:
        try:
            with without_collector():
                compared = examine(pair, chosen)
        except (DumpFormatError, UsageError) as error:
            if plan.level == "file":
                raise
            failures.append(Failure(pair, str(error), "kinds" if isinstance(error, KindsDiffer) else ""))
            continue
        kept.append(compared)
        reports.append(report_of(compared, None))
    return Comparison(Outcome(plan, tuple(reports), tuple(failures)), kept)


def assert_same(target: str | Path, golden: str | Path, *, exact: bool = False, **options: Any) -> None:
    """Fails unless two dumps agree; for tests.

    Args:
        target, golden: as for compare.
        exact: every recorded bit has to agree. Otherwise differences no larger than rounding are none, as in `msprobe compare`.
        options: as for compare.

    Raises:
        AssertionError: something differs, only one side has it, or it could not be compared. The text is the sentence, with lines of code,
            values, and the first rows.
        UsageError, DumpFormatError: as for compare.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    comparison = compare(target, golden, **options)
    if not comparison.passed:
        told = str(comparison)
        problems = [text for text in comparison.problems if text not in told]
        raise AssertionError("\n".join([told, *problems, *details(comparison, _SHOWN)]))
    if exact:
        _assert_exact(comparison)


def _assert_exact(comparison: Comparison) -> None:
    __tracebackhide__ = True
    count, example = 0, ""
    for one in comparison.compared:
        for call in one.calls:
            for row in call.rows:
                if row.measure is not None and row.measure.agreement is not Agreement.SAME and row.pair.target is not None:
                    count += 1
                    unknown = row.measure.reason or f"relative size {row.measure.size:.3g}"
                    example = example or f"{f'{one.pair.title}: ' if one.pair.title else ''}{row.pair.target.name} ({unknown})"
    if count:
        raise AssertionError(f"{count} values agree up to rounding only, or could not be compared; the first: {example}")


def _path(given: Any, side: str) -> Path:
    if not isinstance(given, (str, os.PathLike)) or not isinstance(os.fspath(given), str):
        raise UsageError(f"the {side} must be a path, a str or a Path, not {type(given).__name__}")
    path = local_path(os.fspath(given))
    if not path:
        raise UsageError(f"the {side} path is empty")
    if is_url(path):
        raise UsageError(f"the {side} {given} is a URL; msprobe.compare reads local dumps; the command `msprobe compare` reads it")
    return Path(path)


def _options(given: dict[str, Any]) -> Options:
    known = list(dict.fromkeys((*(field.name for field in fields(Options) if field.name not in _OF_THE_COMMAND), *_FILES)))
    for name in given:
        if name in _OF_THE_COMMAND:
            raise UsageError(f"{name} is an option of the command `msprobe compare`; here nothing is written and one process works")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
            raise UsageError(f"compare has no option {name!r}; {hint}")
        if given[name] is not None and not isinstance(given[name], _TYPES.get(name, object)):
            raise UsageError(f"{name} must be {_WORDS.get(name, 'a path')}, not {type(given[name]).__name__}")
    mapped = given.get("data_mapping")
    if isinstance(mapped, Mapping) and not all(isinstance(text, str) for pair in mapped.items() for text in pair):
        raise UsageError("data_mapping must map names of rows to names of rows, both texts as in the CSV")
    given = {name: value for name, value in given.items() if value is not None}
    numbers = {name: parse_numbers(given[name], name) for name in ("steps", "ranks") if given.get(name) is not None}
    reference = {"reference": str(given["reference"])} if given.get("reference") is not None else {}
    files = {name: Path(given[name]) for name in _FILES if isinstance(given.get(name), (str, Path))}
    rest = {name: value for name, value in given.items() if name not in files and (name == "data_mapping" or name not in _FILES)}
    return Options(**(_of_files(files, rest) | rest | numbers | reference))


def _of_files(files: dict[str, Path], rest: dict[str, Any]) -> dict[str, Any]:
    """What the mapping files say, as fields of Options."""
    if not files:
        return {}
    from argparse import Namespace

    from msprobe.cli.pairing import options_of

    given = dict.fromkeys(_FILES) | files
    return dict(options_of(Namespace(**given, fuzzy_match=rest.get("fuzzy", False))))
