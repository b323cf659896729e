"""What the user of a comparison can choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msprobe.comparison.mapping.names import NO_NAMES, Names
from msprobe.comparison.mapping.rules import NO_RULES, TensorRules


@dataclass(frozen=True)
class Options:
    """How to pair, to measure and to report. Plain values: a unit of work travels to other processes with them.

    Attributes:
        data_mapping: row name in the target -> row name in the golden dump, for rows that are named differently (`-dm`).
        fuzzy: calls that are left over are paired by their API and order alone, whatever module they are in (`-fm`).
        names: modules, classes and APIs of the target that are called otherwise on the golden side (`-cm`, `-am`, `-lm`, `--mapping`).
        tensors: values that are put together otherwise on the two sides (`--mapping`).
        accept_dtype: a change from one floating-point dtype to another is no error by itself; values are judged by their size
            (`--accept-dtype`).
        steps: numbers of the steps to compare, None for all (`--step`).
        ranks: numbers of the ranks to compare, None for all (`--rank`).
        reference: a third dump, of a run in higher precision, shaped like the target (`--reference`).
        diff_analyze: write the JSON files of the search over the ranks (`-da`).
        reports: what is written besides the CSV: any of `xlsx`, `jsonl`, `html`.
        jobs: processes of this machine among which pairs of dumps are divided, None for as many as pay (`--jobs`).
        cluster: address of a Dask scheduler whose workers compare, None for this machine (`--cluster`).
    """

    data_mapping: Mapping[str, str] | None = None
    fuzzy: bool = False
    names: Names = NO_NAMES
    tensors: TensorRules = NO_RULES
    accept_dtype: bool = False
    steps: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    reference: str | None = None
    diff_analyze: bool = False
    reports: frozenset[str] = frozenset()
    jobs: int | None = None
    cluster: str | None = None

    @property
    def maps(self) -> bool:
        """Whether the user says that something is called or built otherwise on the two sides."""
        return bool(self.data_mapping or self.names or self.tensors or self.fuzzy)


DEFAULTS = Options()
