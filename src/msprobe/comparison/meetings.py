"""Links the parts of one communication over the ranks.

The n-th call of an operation in a group on one rank belongs to the n-th on the others; the n-th message from a to b to the n-th that b
receives from a. Only the target's calls are linked: the difference spreads in the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msprobe.comparison.communication import Channel, Link

_SHOWN = 5
Meeting = tuple[Channel, int]


class Meetings:
    """The communication of all ranks of a step.

    Args:
        links: rank -> its communication, in execution order.
    """

    def __init__(self, links: Mapping[int, Sequence[Link]]) -> None:
        self._everybody = tuple(sorted(links))
        self._links = links
        self._of: dict[tuple[int, int], Meeting] = {}
        self._parts: dict[Meeting, dict[int, Link]] = {}
        for rank, own in links.items():
            counts: Counter[Channel] = Counter()
            for place, link in enumerate(own):
                if not link.target:
                    continue
                channel = _shared(link, self._everybody)
                meeting = channel, counts[channel]
                counts[channel] += 1
                self._of[rank, place] = meeting
                self._parts.setdefault(meeting, {})[rank] = link

    def parts_of(self, rank: int, place: int) -> Mapping[int, Link]:
        """Rank -> its part in the communication of which `rank` has the part at `place` of its links."""
        return self._parts.get(self._of.get((rank, place), ((), -1)), {})

    def sources(self, rank: int, link: Link) -> list[int]:
        """The other ranks whose values `link` brought to `rank`, whether they were compared or not."""
        members = link.sources if link.sources is not None else link.members if link.members is not None else self._everybody
        return [one for one in members if one != rank]

    def layers(self, before: Mapping[int, int]) -> dict[int, int]:
        """For each rank the number of rounds of communication before a place in its execution order.

        Every communication is taken as a point that its members reach together. Where that cannot be (calls that run in the background and
        cross each other), the rank that is least far goes on alone.
        """
        clocks = dict.fromkeys(self._everybody, 0)
        result = dict.fromkeys(before, 0)
        ways = {rank: [place for place in range(len(own)) if (rank, place) in self._of] for rank, own in self._links.items()}
        at = dict.fromkeys(self._everybody, 0)
        waiting: dict[Meeting, list[int]] = {}
        done: dict[Meeting, int] = {}
        ready = list(self._everybody)
        while True:
            while ready:
                rank = ready.pop()
                if at[rank] == len(ways[rank]):
                    continue
                meeting = self._of[rank, ways[rank][at[rank]]]
                waiting.setdefault(meeting, []).append(rank)
                if meeting in done or len(waiting[meeting]) == len(self._parts[meeting]):
                    ready.extend(self._pass(meeting, waiting, done, clocks, at, ways, before, result))
            stuck = [members for members in waiting.values() if members]
            if not stuck:
                return result
            rank = min((rank for members in stuck for rank in members), key=lambda one: (clocks[one], one))
            meeting = self._of[rank, ways[rank][at[rank]]]
            ready.extend(self._pass(meeting, waiting, done, clocks, at, ways, before, result))

    def _pass(
        self,
        meeting: Meeting,
        waiting: dict[Meeting, list[int]],
        done: dict[Meeting, int],
        clocks: dict[int, int],
        at: dict[int, int],
        ways: Mapping[int, Sequence[int]],
        before: Mapping[int, int],
        result: dict[int, int],
    ) -> list[int]:
        """The ranks that wait at a meeting go on."""
        members = waiting.pop(meeting)
        done[meeting] = max(done.get(meeting, 0), 1 + max(clocks[rank] for rank in members))
        for rank in members:
            clocks[rank] = done[meeting]
            if rank in before and self._links[rank][ways[rank][at[rank]]].at < before[rank]:
                result[rank] = clocks[rank]
            at[rank] += 1
        return members


def _shared(link: Link, everybody: tuple[int, ...]) -> Channel:
    """The channel; a group of all ranks is spelled as the default group is."""
    if link.channel[0] == "group" and link.members is not None and tuple(sorted(link.members)) == everybody:
        return ("group", None, *link.channel[2:])
    return link.channel


def mismatches(links: Mapping[int, Sequence[Link]]) -> Iterator[str]:
    """Communication in which the ranks do not agree how often it happens, and in the golden run do: one sentence each, the first few.

    A rank that ended early, hung, or took another way through the code.
    """
    everybody = tuple(sorted(links))
    counts: dict[str, dict[Channel, dict[tuple[int, str], int]]] = {"target": {}, "golden": {}}
    for rank, own in links.items():
        for link in own:
            channel = _shared(link, everybody)
            side = "gives" if link.channel[0] == "pair" and link.role == "gives" else "gets" if link.channel[0] == "pair" else "all"
            for name, there in (("target", link.target), ("golden", link.golden)):
                if there:
                    each = counts[name].setdefault(channel, {})
                    each[rank, side] = each.get((rank, side), 0) + 1
    found = [sentence for channel in counts["target"] if (sentence := _mismatch(channel, counts, everybody))]
    yield from found[:_SHOWN]
    if len(found) > _SHOWN:
        yield f"{len(found) - _SHOWN} more kinds of communication do not fit together over the ranks"


def _mismatch(channel: Channel, counts: Mapping[str, Mapping[Channel, Mapping[tuple[int, str], int]]], everybody: Sequence[int]) -> str:
    target, golden = (_per_rank(channel, counts[side].get(channel, {}), everybody) for side in ("target", "golden"))
    if len(set(target.values())) <= 1 or len(set(golden.values())) > 1:
        return ""
    if channel[0] == "pair":
        source, receiver, tag = channel[1:]
        sent, got = target.get("sent", 0), target.get("received", 0)
        of = f" with tag {tag}" if tag else ""
        messages = "message" if sent == 1 else "messages"
        return (
            f"rank {source} sends {sent} {messages}{of} to rank {receiver}, which receives {got} from it: one of them ended early, or hangs"
        )
    least, most = min(target.values()), max(target.values())
    few = [name for name, count in target.items() if count == least]
    many = [name for name, count in target.items() if count == most]
    calls = f"{'makes' if len(few) == 1 else 'make'} {least} {'call' if least == 1 else 'calls'} of {channel[2]}"
    return (
        f"{', '.join(few[:_SHOWN])} {calls} where"
        f" {', '.join(many[:_SHOWN])} {'makes' if len(many) == 1 else 'make'} {most}: a rank ended early, hangs, or took another way"
    )


def _per_rank(channel: Channel, counts: Mapping[tuple[int, str], int], everybody: Sequence[int]) -> dict[str, int]:
    """`rank 0` -> how often; of messages between two ranks that were both compared, `sent` and `received`."""
    if channel[0] == "pair":
        source, receiver = channel[1], channel[2]
        if source not in everybody or receiver not in everybody:
            return {}
        sent = sum(count for (rank, side), count in counts.items() if side == "gives" and rank == source)
        received = sum(count for (rank, side), count in counts.items() if side == "gets" and rank == receiver)
        return {"sent": sent, "received": received}
    group = channel[1]
    members = group if isinstance(group, tuple) else everybody
    return {f"rank {rank}": counts.get((rank, "all"), 0) for rank in members if rank in everybody}
