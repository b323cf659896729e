"""The first difference over the ranks: which rank made it, and which only received it.

A rank whose first difference is what it received from a rank that put in something different is explained by that rank; what remains
unexplained, earliest in the order of communication, is where to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msprobe.comparison.communication import Link
from msprobe.comparison.measure import Agreement
from msprobe.comparison.meetings import Meetings, mismatches
from msprobe.comparison.outcome import PairReport


class Received(NamedTuple):
    """A rank's first difference came in call `call` from rank `source`, which put it in with its call `source_call`."""

    source: int
    call: str
    source_call: str


@dataclass(frozen=True)
class RankSearch:
    """What the search over the ranks of one step found.

    Attributes:
        received: rank -> from where its first difference came; ranks that made theirs are not in it.
        layer: rank -> how many rounds of communication lie before its first difference.
        absent: rank -> ranks that took part in the communication of its first difference, and were not compared.
        alike: ranks whose first difference came out of a communication into which every rank put what it should.
        notes: communication that does not fit together over the ranks, one sentence each.
    """

    received: Mapping[int, Received] = field(default_factory=dict)
    layer: Mapping[int, int] = field(default_factory=dict)
    absent: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    alike: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def origin(self, rank: int) -> int:
        """The rank at which the chain of receptions that leads to `rank` begins; itself when it received nothing."""
        seen = {rank}
        while rank in self.received and self.received[rank].source not in seen:
            rank = self.received[rank].source
            seen.add(rank)
        return rank


def search_ranks(reports: Sequence[PairReport]) -> RankSearch:
    """Searches the reports of one step, one for each rank; those of processes without a rank are left out."""
    ranks = {report.trail.rank: report for report in reports if report.trail.rank is not None}
    if not any(report.trail.links for report in ranks.values()):
        return RankSearch()
    links = {rank: report.trail.links for rank, report in ranks.items()}
    meetings = Meetings(links)
    received: dict[int, Received] = {}
    absent: dict[int, tuple[int, ...]] = {}
    alike: set[int] = set()
    for rank, report in ranks.items():
        for place, link in _suspects(report):
            found = _giver(rank, place, link, ranks, meetings)
            if found is not None:
                received[rank] = Received(found[0], link.call, found[1].call)
                break
            missing = tuple(one for one in meetings.sources(rank, link) if one not in ranks)
            if missing:
                absent[rank] = missing
            elif link.at == report.trail.position:
                alike.add(rank)
    before = {rank: report.trail.position for rank, report in ranks.items() if report.trail.position is not None}
    return RankSearch(received, meetings.layers(before), absent, frozenset(alike - received.keys()), tuple(mismatches(links)))


def _suspects(report: PairReport) -> Iterator[tuple[int, Link]]:
    """The communication by which the first difference of a rank may have come in, with its place among the rank's links.

    That call itself, when what it gave agrees; or the last one before, when what that brought was not recorded and no recorded call
    explains the difference.
    """
    trail, first = report.trail, report.findings.first
    if trail.position is None or first is None or report.findings.unmatched_is_earlier:
        return
    here = [(place, link) for place, link in enumerate(trail.links) if link.target and link.role != "gives"]
    at = [(place, link) for place, link in here if link.at == trail.position and link.got >= trail.bound and link.given < trail.bound]
    yield from at
    if not at and first.kind in ("input", "first input", "own code", "gradient"):
        before = [(place, link) for place, link in here if link.at < trail.position]
        if before and before[-1][1].got is Agreement.UNKNOWN:
            yield before[-1]


def _giver(rank: int, place: int, link: Link, ranks: Mapping[int, PairReport], meetings: Meetings) -> tuple[int, Link] | None:
    """The first rank that put something different into the communication of `link`, and its part."""
    parts = meetings.parts_of(rank, place)
    for source in meetings.sources(rank, link):
        part = parts.get(source)
        if part is not None and part.role != "gets" and part.given >= ranks[source].trail.bound:
            return source, part
    return None
