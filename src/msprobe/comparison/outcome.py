"""What a comparison found, as plain values for whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msprobe.comparison.communication import Trail
from msprobe.comparison.first_difference import Findings
from msprobe.comparison.inputs import DumpPair, Plan
from msprobe.comparison.judge import Mode, Result
from msprobe.comparison.judging.reference import Tally
from msprobe.comparison.judging.weights import ALL_JUDGED, NotJudged
from msprobe.comparison.previous_step import Gradients
from msprobe.comparison.propagation import Propagation
from msprobe.comparison.reasons import Reason
from msprobe.comparison.stacks import Frame
from msprobe.comparison.unread import NOTHING, NotRecorded


@dataclass(frozen=True)
class Location:
    """Lines of code where the first difference starts, as far as stack.json tells.

    Attributes:
        user: the user's line in the target run.
        nearer: the line of an installed package (transformers, ...) that stands nearer to the call.
        golden: the user's line in the golden run, when it reads otherwise than `user`.
        inner: the user's line of the last call inside a module whose own code changed; None when that is `user` too.
        cause: the line of the call without partner that makes what differs, on the side that has it.
        is_outside: `user` lies outside of the module around the call, which is all code of an installed package: `nearer` says more.
    """

    user: Frame | None = None
    nearer: Frame | None = None
    golden: Frame | None = None
    inner: Frame | None = None
    cause: Frame | None = None
    is_outside: bool = False

    @property
    def at(self) -> Frame | None:
        """The line to name first: one inside the code at fault, where there is one, and not the line that calls it."""
        return self.cause or self.inner or (self.nearer if self.is_outside and self.nearer is not None else self.user)


@dataclass(frozen=True)
class PairReport:
    """The result for one pair of dumps.

    Attributes:
        pair: what was compared.
        mode: statistics, tensor or md5.
        csv: the file written, None when nothing was to be written.
        matched: rows that both sides have.
        counts: rows by Result.
        lost: rows not compared though at least one side recorded something to compare; `lost_example` names the first and the reason.
        nothing_measured: why no row at all could be measured, "" when one could.
        findings: the search for the first difference.
        reasons: why rows are `error` or `unmatched`, or were lost.
        other_calls: the dumps were made by different tools or at different levels: a call without partner says nothing.
        location: of the first difference; `value` and `beyond` of those of `findings`; `unmatched` of the first call without partner.
        notes: what the reader should know, one sentence each.
        xlsx, jsonl: the files written besides, None where they were not asked for.
        page: its part of the HTML report, None where that was not asked for.
        trail: what the search over the ranks needs.
        gradients: what the next step's report may need, when its parameters differ.
        propagation: what lies around the first difference of a value, and what becomes of it; None when there is none.
        truth: what the reference says, None without `--reference`.
        not_recorded: values that neither side recorded.
        not_judged: weights that are no casts of each other, and may have been trained apart.
        by_optimizer: of the calls that `findings` name, those that an optimizer makes.
    """

    pair: DumpPair
    mode: Mode
    csv: Path | None
    matched: int
    counts: Mapping[Result, int]
    lost: int
    lost_example: str
    nothing_measured: str
    findings: Findings
    reasons: tuple[Reason, ...]
    other_calls: bool
    location: Location
    value: Location
    beyond: Location
    unmatched: Frame | None
    notes: tuple[str, ...]
    trail: Trail = field(default_factory=Trail)
    gradients: Gradients = field(default_factory=Gradients)
    propagation: Propagation | None = None
    truth: Tally | None = None
    xlsx: Path | None = None
    jsonl: Path | None = None
    page: Page | None = None
    not_recorded: NotRecorded = NOTHING
    not_judged: NotJudged = ALL_JUDGED
    by_optimizer: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Page:
    """What one pair of dumps gives to the HTML report: gzip-compressed JSON, which the page unpacks when it is needed.

    Attributes:
        tree: names, parents and results of calls and rows.
        code: stacks, with the lines around them.
        blocks: the values of the rows, some thousand calls each; `pictures`: error distributions, one text for each pair of tensors.
        first: numbers of the calls that the search named: the first difference, the first call without partner.
    """

    tree: bytes
    code: bytes
    blocks: tuple[bytes, ...]
    pictures: tuple[bytes, ...]
    first: Mapping[str, int]


@dataclass(frozen=True)
class Failure:
    """A pair that could not be compared, and why. Of failures of one `kind` other than "" one speaks for all."""

    pair: DumpPair
    message: str
    kind: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of a whole comparison.

    Attributes:
        summary: the summary of a dump root.
        analyses: the files that `-da` wrote of the search over the ranks; None when it was not asked for.
    """

    plan: Plan
    reports: tuple[PairReport, ...]
    failures: tuple[Failure, ...]
    summary: Path | None = None
    analyses: tuple[Path, ...] | None = None
    html: Path | None = None

    @property
    def exit_code(self) -> int:
        """0: all that both sides recorded agrees. 1: an `error` or `unmatched` row, a value that only one side could show, or a step or
        rank that only one side has. 2: something could not be compared at all."""
        if self.failures or self.plan.problems or any(report.nothing_measured for report in self.reports):
            return 2
        found = any(report.counts["error"] or report.counts["unmatched"] or report.lost for report in self.reports)
        return 1 if found or self.plan.one_sided else 0
