"""Where a difference came from and where it went, in words."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe.comparison.block import Line
from msprobe.comparison.communication import PREFIX
from msprobe.comparison.order import later_than, search_step
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.previous_step import look_back
from msprobe.comparison.propagation import sentences
from msprobe.comparison.ranks import RankSearch

_SHOWN = 8


def spread(report: PairReport, outcome: Outcome) -> Iterator[Line]:
    """What stands under the values of a report's first difference of a value; that `requires_grad` differs spreads nowhere."""
    first = report.findings.first
    if first is not None and first.kind == "requires_grad":
        first = report.findings.value
    if first is None:
        return
    rank = report.trail.rank
    search = search_step(outcome, report.pair.step)
    if first.call.name.startswith(PREFIX):
        yield Line(f"  {_communication(rank, search)}")
    yield from (Line(f"  {text}") for text in look_back(outcome.reports, report, first))
    if report.propagation is not None:
        differs_later = any(
            other.findings.first is not None for other in later_than(outcome, report) if other.pair.label == report.pair.label
        )
        yield from (Line(f"  {text}") for text in sentences(report.propagation, differs_later))
    went = [str(other) for other in sorted(search.received) if rank is not None and other != rank and search.origin(other) == rank]
    if went:
        more = f" and {len(went) - _SHOWN} more" if len(went) > _SHOWN else ""
        yield Line(f"  from here it went to rank{'s' if len(went) > 1 else ''} {', '.join(went[:_SHOWN])}{more}")


def _communication(rank: int | None, search: RankSearch) -> str:
    """What is known of a communication that is the first difference."""
    if rank is not None and rank in search.absent:
        absent = search.absent[rank]
        names = ", ".join(map(str, absent[:_SHOWN])) + (f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else "")
        return f"It is a communication with rank {names}, of which no dump was compared: the difference may have come from there."
    if rank in search.alike:
        return "It is a communication, and every rank put into it what it should: the communication itself gave something else."
    return "It is a communication: the difference may have come from another rank."


def received(report: PairReport, search: RankSearch) -> str:
    """`; received from rank 0, by its ...` behind the first difference of a rank, or nothing."""
    rank = report.trail.rank
    if rank is None or rank not in search.received:
        return ""
    source, call, source_call = search.received[rank]
    if call == source_call:
        return f"; received from rank {source} in {call}"
    return f"; received in {call} what rank {source} put in with {source_call}"
