"""What stands under the first difference: lines of code, and the values of both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msprobe.comparison.calls import Measured
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.judge import Mode
from msprobe.comparison.judging import casts
from msprobe.comparison.judging.hints import hint
from msprobe.comparison.judging.words import explained
from msprobe.comparison.mapping.composed import ComposedRow, statistics_of
from msprobe.comparison.measure import Agreement
from msprobe.comparison.outcome import Location
from msprobe.comparison.random_calls import draws_random_numbers
from msprobe.comparison.rows import Row

_SHOWN_ROWS = 3
_REORDERING = (
    "  statistics cannot see a reordering of the same values (a transposed weight, a permuted batch):"
    " if this operation is innocent, record both runs with summary_mode md5 or task tensor"
)
_RANDOM = (
    "  it draws random numbers, and that alone explains the difference if the two runs drew others: by another seed, after more or fewer"
    " draws (random_save lists what draws), or because a device or version of torch draws in another way;"
    " seed_all(rm_dropout=True) takes dropout out of both runs"
)


class Line(NamedTuple):
    """One line of output. `style`: "" or a meaning that the terminal may colour: lead, head, good, bad, dim."""

    text: str
    style: str = ""


def block(difference: FirstDifference, location: Location, mode: Mode) -> Iterator[Line]:
    """The lines under the headline of `difference`."""
    if location.user is not None:
        yield Line(f"  at {location.user}")
    if location.nearer is not None:
        yield Line(f"  through {location.nearer}")
    if location.golden is not None:
        yield Line(f"  in the golden run at {location.golden}")
    if location.cause is not None:
        yield Line(f"  the likely cause at {location.cause}")
    if location.inner is not None:
        yield Line(f"  its last recorded call is made at {location.inner}")
    for ours, theirs in difference.call.pair.rows:
        if theirs is None and ours is not None:
            yield Line(f"  {ours.key or ours.name}: in the target only")
        elif ours is None and theirs is not None:
            yield Line(f"  {theirs.key or theirs.name}: in the golden dump only")
    if not difference.of_values and not difference.by_dtype:  # not the same call, or no value that differs
        return
    for row in difference.rows[:_SHOWN_ROWS]:
        yield from _values(row, mode)
    if len(difference.rows) > _SHOWN_ROWS:
        yield Line(f"  ... and {len(difference.rows) - _SHOWN_ROWS} more values of this call differ")
    unexplained = difference.last_inner is None and difference.cause is None and not difference.by_dtype
    operation = difference.kind == "output" and not difference.within_rounding and unexplained
    if not operation:
        return
    if draws_random_numbers(difference.call.parts, (row for pair in difference.call.pair.rows for row in pair if row is not None)):
        yield Line(_RANDOM)
    elif mode == "statistics" and difference.call.inputs is not Agreement.UNKNOWN:
        yield Line(_REORDERING, "dim")


def _value(row: Row) -> str:
    """What a row holds, in a few words."""
    return f"a tensor ({row.dtype} {row.shape})" if row.kind == "tensor" else _shown(row.value)


def _values(measured: Measured, mode: Mode) -> Iterator[Line]:
    ours, theirs = measured.pair
    measure = measured.measure
    if ours is None or theirs is None or measure is None:
        return
    kind = ours.dtype if (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape) else f"{ours.dtype} {ours.shape}, golden {theirs.dtype}"
    shape = theirs.shape if kind != ours.dtype else ours.shape
    if ours.kind != "tensor" or theirs.kind != "tensor":
        yield Line(f"  {ours.key or ours.name}: {_value(ours)} in the target, {_value(theirs)} in the golden dump")
        return
    yield Line(f"  {ours.key or ours.name} ({kind} {shape})")
    if mode == "md5" and not measure.reason:
        yield Line(f"    target {measure.cells[0]}, golden {measure.cells[1]}")
        return
    table: list[tuple[str, ...]] = [("", "Max", "Min", "Mean", "Norm")]
    made = isinstance(ours, ComposedRow), isinstance(theirs, ComposedRow)
    for side, row, composed in zip(("target", "golden"), (ours, theirs), made, strict=True):
        table.append((side, *("unknown" if composed and value is None else _shown(value) for value in statistics_of(row)[0])))
    yield from map(Line, _table(table))
    if any(made) and measure.reason:
        yield Line(f"    {measure.reason}")
    if measure.max_abs is not None and ours.shape == theirs.shape:
        what = "max abs diff" if mode == "tensor" else "largest difference of these"
        how_much = explained(measure)
        yield Line(f"    {what} {measure.max_abs:.6g}, relative size {measure.size:.3g}{': ' if how_much else ''}{how_much}")
        if measure.agreement is Agreement.DIFFERENT:
            cast = casts.said(ours, theirs) if ours.role in ("input", "parameters") else ""
            yield from (Line(f"    {text}") for text in (cast, hint(ours, theirs, measure)) if text)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _shown(value: Any) -> str:
    if type(value) is float and not math.isfinite(value):
        return "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, str) else str(value)
