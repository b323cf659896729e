"""The result of a comparison as an object, for Python: everything that the files hold, nothing on disk unless asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.comparison import report_csv
from msprobe.comparison.block import block
from msprobe.comparison.compared import Compared
from msprobe.comparison.conclusion import conclusion
from msprobe.comparison.describe import problems
from msprobe.comparison.order import guilty_first, unmatched_first
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.propagation import Propagation
from msprobe.comparison.sentence import lead
from msprobe.errors import MsprobeException
from msprobe.format import layout

if TYPE_CHECKING:
    import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]


@dataclass(frozen=True)
class Difference:
    """The first difference.

    Attributes:
        call: name of the entry where it starts, as in dump.json (`Functional.linear.12.forward`).
        kind: what differs there: output, own code, first input, input, argument, parameter, gradient, sequence, requires_grad
            (msprobe.comparison.first_difference), or unmatched for a call that only one side has.
        step, rank: where, None when unknown.
        module: the module around it, None when unknown or none.
        file, line: of the user's code, None when stack.json does not tell.
        sentence: all of it in one sentence.
        propagation: the modules around it, who takes the value in, and whether the difference grows; None for calls that are not the
            same call.
    """

    call: str
    kind: str
    step: int | None
    rank: int | None
    module: str | None
    file: str | None
    line: int | None
    sentence: str
    propagation: Propagation | None

    def __str__(self) -> str:
        return self.sentence


class Comparison:
    """What comparing two dumps gave. `str()` of it is the sentence to read first.

    Attributes:
        outcome: the reports of all pairs of dumps, as the command prints them.
        compared: the pairs themselves, with every measured row.
    """

    def __init__(self, outcome: Outcome, compared: Sequence[Compared]) -> None:
        self.outcome = outcome
        self.compared = tuple(compared)

    @property
    def exit_code(self) -> int:
        """0: what both sides recorded agrees. 1: something differs, or only one side has it. 2: something could not be compared."""
        return self.outcome.exit_code

    @property
    def passed(self) -> bool:
        """Whether everything was compared and agrees."""
        return self.exit_code == 0

    @cached_property
    def first_difference(self) -> Difference | None:
        """Where the two runs part, over all steps and ranks; None when no value differs beyond rounding."""
        found = guilty_first(self.outcome)
        return _difference(found[0], lead(self.outcome)) if found else None

    @property
    def problems(self) -> list[str]:
        """What could not be compared, one sentence each."""
        return list(problems(self.outcome))

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The rows, one dict each: `step`, `rank`, then the columns of the CSV of that mode. Numbers and texts are those of the dump."""
        return list(self._records())

    @cached_property
    def rows(self) -> pandas.DataFrame:
        """The records as a data frame of pandas.

        Raises:
            MsprobeException: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MsprobeException("rows is a data frame and needs pandas: pip install pandas; records needs nothing") from None
        return pandas.DataFrame.from_records(self.records)

    def to_html(self, path: str | Path) -> Path:
        """Writes one self-contained page, which opens offline; an existing file is replaced. Returns the path; raises OSError."""
        from msprobe.comparison.reports import report_html
        from msprobe.comparison.reports.report_html.page import document

        reports = tuple(replace(report, page=report_html.part(one)) for report, one in self._pairs())
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.writelines(document(replace(self.outcome, reports=reports), report_csv.timestamp()))
        return file

    def to_csv(self, directory: str | Path) -> list[Path]:
        """Writes the files that `msprobe compare` writes, by the same names; returns their paths. Raises OSError."""
        from msprobe.comparison.one_pair import stem_of

        stamp, root = report_csv.timestamp(), Path(directory)
        paths: list[Path] = []
        reports: list[PairReport] = []
        for report, one in self._pairs():
            step = report.pair.step
            place = Path(layout.step_dir(root, step)) if self.outcome.plan.level == "root" and step is not None else root
            paths.append(report_csv.write_pair(place, stem_of(report.pair), stamp, one))
            reports.append(replace(report, csv=paths[-1]))
        if self.outcome.plan.level == "root":
            from msprobe.comparison import report_summary

            header, lines = report_summary.table(replace(self.outcome, reports=tuple(reports)))
            paths.append(report_csv.write(root, "summary", stamp, header, lines))
        return paths

    def _pairs(self) -> Iterator[tuple[PairReport, Compared]]:
        return zip(self.outcome.reports, self.compared, strict=True)

    def _records(self) -> Iterator[dict[str, Any]]:
        from msprobe.comparison.reports.full_rows import full_rows

        for one in self.compared:
            header = report_csv.header(one)
            place = {"step": one.pair.step, "rank": rank_of(one.pair.label)}
            for row in full_rows(one):
                yield place | dict(zip(header, row.cells, strict=True))

    def __str__(self) -> str:
        """The first difference in one sentence; where nothing differs, that, and what makes the exit code; or what could not be done."""
        if self.first_difference is not None:
            return self.first_difference.sentence
        if self.problems:
            text = f"Not everything could be compared: {self.problems[0]}"
            return f"{text} (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else text
        sentences = (line.text for line in conclusion(self.outcome) if not line.text.startswith(" "))  # what is indented are remarks
        return next(sentences, "Nothing was compared.")

    def __repr__(self) -> str:
        return f"<Comparison, exit code {self.exit_code}: {self}>"


def rank_of(label: str) -> int | None:
    """3 for `rank3`, None for `proc123` and for two files."""
    return int(label[4:]) if label.startswith("rank") and label[4:].isdecimal() else None


def _difference(report: PairReport, sentence: str) -> Difference:
    findings = report.findings
    place = report.pair.step, rank_of(report.pair.label)
    if unmatched_first(report) and findings.unmatched is not None:
        name, kind, module, frame = findings.unmatched.name, "unmatched", None, report.unmatched
    else:
        first = findings.first
        assert first is not None
        name, kind, module, frame = first.call.name, str(first.kind), first.module, report.location.at
    file, line = (frame.path, frame.line) if frame is not None else (None, None)
    return Difference(name, kind, *place, module, file, line, sentence, report.propagation)


def details(comparison: Comparison, limit: int) -> Iterator[str]:
    """What an assertion shows below the sentence: lines of code and values of the first difference, then the first rows at fault."""
    found = guilty_first(comparison.outcome)
    if found and found[0].findings.first is not None:
        report = found[0]
        yield from (line.text for line in block(found[0].findings.first, report.location, report.mode))
    shown = 0
    for one in comparison.compared:
        for call, verdicts in zip(one.calls, one.verdicts, strict=True):
            for row, verdict in zip(call.rows, verdicts, strict=True):
                if verdict.result in ("pass", "warning"):
                    continue
                if shown == limit:
                    yield "  ..."
                    return
                known = row.pair.target or row.pair.golden
                shown += 1
                where = f"{one.pair.title}: " if one.pair.title else ""
                said = "; ".join(verdict.messages) or verdict.result
                yield f"  {where}{known.name if known is not None else call.name}: {said}"
