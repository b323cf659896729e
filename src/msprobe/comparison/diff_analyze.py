"""`-da`: the search over the ranks as JSON, for scripts that read the files of the existing tool. Names and keys are a contract.

`compare_result_rank{r}_{time}.json` holds every call of a pair of dumps with its rows; `diff_analyze_{time_ns}.json` the calls where the
difference starts, by rank.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_md5 import COLUMNS as MD5_COLUMNS
from msprobe.comparison.measure_md5 import checksum
from msprobe.comparison.measure_statistics import COLUMNS, StatisticsMeasurer
from msprobe.comparison.order import beyond_rounding, by_blame, search_step, unmatched_first
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.rows import Row
from msprobe.comparison.stacks import frames_of
from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader

_STATISTICS = ("max", "min", "mean", "l2norm")
_NO_PARTNER = "N/A"


def write_pair(directory: Path, stem: str, stamp: str, compared: Compared) -> Path:
    """Writes `{stem}_{stamp}.json` of one pair of dumps; an existing file is never overwritten.

    `is_same` is false where an output differs by more than rounding, in any number or checksum, or where only one side has the call.

    Raises:
        OSError: it cannot be written.
    """
    content: dict[str, Any] = {}
    for call in compared.calls:
        if call.rows:
            differs = call.outputs is Agreement.DIFFERENT or not call.matched
            content[call.name] = {"is_same": not differs, "op_items": _items(call, compared)}
    return _write(directory, f"{stem}_{stamp}", content, indent=4)


def write_searches(outcome: Outcome, directories: Mapping[int | None, Path]) -> list[Path]:
    """Writes one `diff_analyze_{time_ns}.json` for each step in which a difference beyond rounding starts; returns their paths.

    Args:
        directories: step -> where its results lie.

    Raises:
        OSError: one cannot be written.
    """
    written: list[Path] = []
    for step in dict.fromkeys(report.pair.step for report in outcome.reports):
        content = {_rank_key(report): [_start(report)] for report in _starts(outcome, step)}
        if content:
            written.append(_write(directories[step], f"diff_analyze_{time.time_ns()}", content, indent=2))
    return written


def _starts(outcome: Outcome, step: int | None) -> list[PairReport]:
    """The reports at which the difference of a step starts: of those that received it from no other rank, the earliest."""
    found = [r for r in outcome.reports if r.pair.step == step and (unmatched_first(r) or beyond_rounding(r) is not None)]
    search = search_step(outcome, step)
    own = [report for report in by_blame(found, search) if report.trail.rank not in search.received]
    earliest = min((search.layer.get(report.trail.rank or 0, 0) for report in own), default=0)
    return [report for report in own if search.layer.get(report.trail.rank or 0, 0) == earliest]


def _rank_key(report: PairReport) -> str:
    label = report.pair.label
    return f"{label[:4]}_{label[4:]}" if label else "rank_0"


def _start(report: PairReport) -> dict[str, Any]:
    found = beyond_rounding(report)
    call = report.findings.unmatched if found is None or unmatched_first(report) else found[0].call
    assert call is not None
    data: dict[str, dict[str, Any]] = {"input": {}, "output": {}}
    for row in call.rows:
        known = row.pair.target or row.pair.golden
        if known is not None:
            data["output" if known.role in ("output", "parameters_grad") else "input"][known.name] = _values(row, report.mode, call)
    return {"op_name": call.name, "data_info": data, "stack_info": list(frames_of(call.name, _stacks(report, call)))}


def _values(row: Measured, mode: str, call: MeasuredCall) -> dict[str, Any]:
    ours = row.pair.target
    values: dict[str, Any] = {}
    if mode == "md5":
        values["NPU MD5"] = checksum(ours) if ours is not None else _NO_PARTNER
    else:
        values = _side("NPU", ours)
    return values | {"NPU P2POp peer": _beside(ours, call, "peer")}


def _stacks(report: PairReport, call: MeasuredCall) -> Mapping[str, Sequence[str]]:
    dump = report.pair.target if call.pair.target is not None else report.pair.golden
    try:
        return reader.read_stack(dump.parent / layout.STACK)
    except (DumpFormatError, OSError):  # that it is missing or damaged stands among the notes
        return {}


def _items(call: MeasuredCall, compared: Compared) -> list[dict[str, Any]]:
    checksums = compared.mode == "md5"
    frames = list(frames_of(call.name, compared.stacks)) if compared.stacks and call.pair.target is not None else []
    items: list[dict[str, Any]] = []
    for row in call.rows:
        (ours, theirs), measure = row
        item: dict[str, Any] = {"NPU Name": ours.name if ours else _NO_PARTNER, "Bench Name": theirs.name if theirs else _NO_PARTNER}
        for title, attribute in (("Dtype", "dtype"), ("Tensor Shape", "shape"), ("Requires_grad", "requires_grad")):
            for side, one in (("NPU", ours), ("Bench", theirs)):
                item[f"{side} {title}"] = getattr(one, attribute) if one is not None else _NO_PARTNER
        if checksums:
            sums = [checksum(one) if one is not None else _NO_PARTNER for one in (ours, theirs)]
            item |= dict(zip(MD5_COLUMNS, sums, strict=True))
        else:
            item |= zip(COLUMNS, _differences(row, compared), strict=True)
            item |= _side("NPU", ours) | _side("Bench", theirs)
        known = ours or theirs
        item["Requires_grad Consistent"] = ours is not None and theirs is not None and ours.requires_grad == theirs.requires_grad
        item["Result"] = _result(measure) if checksums else ""
        item["Err_message"] = ""
        if compared.stacks is not None:
            item["NPU_Stack_Info"] = frames if frames and not items else _NO_PARTNER
        item["state"] = known.role if known is not None else ""
        item["api_origin_name"] = call.name
        for what in ("op", "peer"):
            for side, one in (("NPU", ours), ("Bench", theirs)):
                item[f"{side} P2POp {what}"] = _beside(one, call, what)
        items.append(item)
    return items


def _differences(row: Measured, compared: Compared) -> Sequence[Any]:
    (ours, theirs), measure = row
    if ours is None or theirs is None or measure is None:
        return (_NO_PARTNER,) * len(COLUMNS)
    if compared.mode == "tensor":
        measure = StatisticsMeasurer()(ours, theirs)
    return measure.cells


def _result(measure: Measure | None) -> str:
    return "pass" if measure is not None and measure.agreement is Agreement.SAME else "Different"


def _side(side: str, row: Row | None) -> dict[str, Any]:
    values: Sequence[Any] = row.statistics if row is not None else (_NO_PARTNER,) * 4
    return {f"{side} {name}": value for name, value in zip(_STATISTICS, values, strict=True)}


def _beside(row: Row | None, call: MeasuredCall, what: str) -> str:
    """`op` or `peer` of the element of batch_isend_irecv to which a tensor belongs; `None` for every other value."""
    if row is None or not row.key.endswith(".tensor"):
        return "None"
    wanted = f"{row.key.removesuffix('tensor')}{what}"
    for pair in call.pair.rows:
        for one in pair:
            if one is not None and one.key == wanted:
                return str(one.value)
    return "None"


def _write(directory: Path, stem: str, content: Mapping[str, Any], indent: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    counter = 0
    while True:
        path = directory / (f"{stem}_{counter}.json" if counter else f"{stem}.json")
        try:
            with open(path, "x", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
        except FileExistsError:
            counter += 1
            continue
        return path
