"""Two dumps, paired, measured and judged: what every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.first_difference import Findings
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judge import Mode, Verdict
from msprobe.comparison.judging.reference import Truth
from msprobe.comparison.judging.weights import ALL_JUDGED, NotJudged
from msprobe.comparison.unread import NOTHING, NotRecorded


@dataclass(frozen=True)
class Compared:
    """One pair of dumps after the last stage.

    Attributes:
        pair: what was compared.
        mode: statistics, tensor, md5 or structure.
        metrics: names of the metric columns.
        matched: rows that both sides have; every other one is `unmatched`.
        calls: the measured calls in the order of the report.
        verdicts: for each call the verdicts of its rows.
        findings: the search for the first difference.
        stacks, golden_stacks: entry name -> frames; None: the target has no stack.json; the golden one is
            read only where something differs.
        saved_at: key of a debug.json -> frames, of the target; `golden_stacks` are those of the golden dump then.
        parents, golden_parents: construct.json, entry name -> name of the module around it.
        other_calls: the dumps were made by different tools or at different levels: a call without partner says nothing.
        truths: for each call what the reference says of its rows; None without `--reference`.
        notes: what the reader should know, one sentence each.
        tensor_dirs: where target and golden dump keep their tensor files.
        not_recorded: values that neither side recorded.
        not_judged: weights that are no casts of each other, and may have been trained apart.
    """

    pair: DumpPair
    mode: Mode
    metrics: tuple[str, ...]
    matched: int
    calls: Sequence[MeasuredCall]
    verdicts: Sequence[Sequence[Verdict]]
    findings: Findings
    stacks: Mapping[str, Sequence[str]] | None
    golden_stacks: Mapping[str, Sequence[str]]
    parents: Mapping[str, str | None]
    golden_parents: Mapping[str, str | None]
    other_calls: bool
    notes: tuple[str, ...]
    truths: Sequence[Sequence[Truth]] | None = None
    tensor_dirs: tuple[Path, Path] | None = None
    not_recorded: NotRecorded = NOTHING
    not_judged: NotJudged = ALL_JUDGED
    saved_at: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def frames(self) -> Mapping[str, Sequence[str]]:
        """Entry name -> frames, of the target, wherever they were recorded."""
        return self.stacks or self.saved_at
