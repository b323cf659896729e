"""Which rank made a difference, and which only received it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.order import guilty_first, search_step

from .dumps import Json, api, tensor
from .ranks import compute, group, number, p2p, write_ranks


def text_of(tmp_path: Path, target: dict[int, Json], golden: dict[int, Json]) -> str:
    write_ranks(tmp_path / "t", target)
    write_ranks(tmp_path / "g", golden)
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    return "\n".join(line.text for line in describe(outcome))


def all_reduce(gains: dict[int, float]) -> dict[int, Json]:
    """Each rank multiplies, all add up, each goes on with the sum. Rank -> its dump."""
    total = sum(gains.values())
    return {
        rank: {
            **compute("Torch.mul.0.forward", 1.0, gain),
            "Distributed.all_reduce.0.forward": api([tensor(gain)], [tensor(total)]),
            **compute("Torch.add.0.forward", total, total + 1),
        }
        for rank, gain in gains.items()
    }


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_a_sum_over_the_ranks(guilty: int, tmp_path: Path) -> None:
    good = {0: 1.0, 1: 1.5, 2: 2.0}
    text = text_of(tmp_path, all_reduce({**good, guilty: 7.0}), all_reduce(good))
    assert f"\nFirst difference of rank{guilty}: Torch.mul.0.forward (inputs equal, output differs)" in text
    others = [rank for rank in good if rank != guilty]
    for other in others:
        line = f"  First difference of rank{other}: Distributed.all_reduce.0.forward"
        assert f"; received from rank {guilty} in Distributed.all_reduce.0.forward" in text[text.index(line) :].split("\n")[0]
    assert f"  from here it went to ranks {others[0]}, {others[1]}" in text


def pipeline(gain: float, *, batched: bool = False, kinds: tuple[str, str] = ("send", "recv")) -> dict[int, Json]:
    """Rank 2 computes and sends to 1, which computes and sends to 0: the number of the rank says nothing of the order."""

    def send(value: float, to: int) -> Json:
        if batched:
            operations = [p2p("isend", to, tensor(value))]
            return {"Distributed.batch_isend_irecv.0.forward": api([operations], [operations])}
        return {f"Distributed.{kinds[0]}.0.forward": api([tensor(value), number(to)], [tensor(value), number(to)])}

    def receive(value: float, of: int, count: int = 0) -> Json:
        if batched:
            name = f"Distributed.batch_isend_irecv.{count}.forward"
            return {name: api([[p2p("irecv", of, tensor(0.5))]], [[p2p("irecv", of, tensor(value))]])}
        return {f"Distributed.{kinds[1]}.0.forward": api([None, number(of)], [tensor(value), number(of)])}

    def again(entries: Json) -> Json:
        return {name.replace(".0.forward", ".1.forward") if batched else name: entry for name, entry in entries.items()}

    return {
        2: {**compute("Torch.mul.0.forward", 1.0, gain), **send(gain, 1)},
        1: {**receive(gain, 2), **compute("Torch.mul.0.forward", gain, 2 * gain), **again(send(2 * gain, 0))},
        0: {**receive(2 * gain, 1), **compute("Torch.mul.0.forward", 2 * gain, 3 * gain)},
    }


@pytest.mark.parametrize("how", [{}, {"kinds": ("isend", "irecv")}, {"batched": True}], ids=["send", "isend", "batch"])
def test_a_pipeline_is_followed_to_its_begin(how: dict[str, Any], tmp_path: Path) -> None:
    text = text_of(tmp_path, pipeline(5.0, **how), pipeline(1.0, **how))
    assert "\nFirst difference of rank2: Torch.mul.0.forward (inputs equal, output differs)" in text
    assert "from here it went to ranks 0, 1" in text
    lines = {rank: text[text.index(f"  First difference of rank{rank}:") :].split("\n")[0] for rank in (0, 1)}
    assert "what rank 1 put in" in lines[0] or "received from rank 1" in lines[0]
    assert "what rank 2 put in" in lines[1] or "received from rank 2" in lines[1]


@pytest.mark.parametrize("keyword", ["src", "group_src"])
def test_the_root_of_a_broadcast_in_a_group(keyword: str, tmp_path: Path) -> None:
    def ranks(sent: float) -> dict[int, Json]:
        root = {"src": 3} if keyword == "src" else {"group_src": 1}
        known = {name: number(value) for name, value in root.items()}
        found: dict[int, Json] = {0: compute("Torch.mul.0.forward", 1.0, 1.0)}
        for rank in (1, 3):
            held = sent if rank == 3 else 0.25
            found[rank] = compute("Torch.mul.0.forward", 1.0, held)
            found[rank]["Distributed.broadcast.0.forward"] = api([tensor(held)], [tensor(sent)], group=group(1, 3), **known)
        return found

    text = text_of(tmp_path, ranks(9.0), ranks(1.0))
    assert "\nFirst difference of rank3: Torch.mul.0.forward" in text
    assert "rank1: Distributed.broadcast.0.forward" in text
    assert "; received from rank 3 in Distributed.broadcast.0.forward" in text


def test_only_the_centre_of_a_reduce_receives(tmp_path: Path) -> None:
    def ranks(gain: float) -> dict[int, Json]:
        return {
            rank: {
                **compute("Torch.mul.0.forward", 1.0, gain if rank else 1.0),
                "Distributed.reduce.0.forward": api([tensor(gain if rank else 1.0), number(0)], [tensor(gain + 1.0 if not rank else gain)]),
            }
            for rank in (0, 1)
        }

    text = text_of(tmp_path, ranks(9.0), ranks(1.5))
    assert "\nFirst difference of rank1: Torch.mul.0.forward" in text
    assert "  First difference of rank0: Distributed.reduce.0.forward (inputs equal, output differs); received from rank 1" in text


def test_a_group_that_is_not_the_whole_world_does_not_meet_another(tmp_path: Path) -> None:
    """Ranks 0 and 1 add up, ranks 2 and 3 do; the n-th call of one group is not that of the other."""

    def ranks(gain: float) -> dict[int, Json]:
        found: dict[int, Json] = {}
        for rank in range(4):
            mine = gain if rank == 2 else 1.0
            total = (gain + 1.0) if rank >= 2 else 2.0
            members = (2, 3) if rank >= 2 else (0, 1)
            found[rank] = {
                **compute("Torch.mul.0.forward", 1.0, mine),
                "Distributed.all_reduce.0.forward": api([tensor(mine)], [tensor(total)], group=group(*members)),
            }
        return found

    text = text_of(tmp_path, ranks(9.0), ranks(1.5))
    assert "\nFirst difference of rank2: Torch.mul.0.forward" in text
    assert "rank3: Distributed.all_reduce.0.forward" in text
    assert "rank0: Dist" not in text


def test_the_communication_itself(tmp_path: Path) -> None:
    good, bad = all_reduce({0: 1.0, 1: 1.5}), all_reduce({0: 1.0, 1: 1.5})
    for rank in bad:
        bad[rank]["Distributed.all_reduce.0.forward"]["output"] = [tensor(40.0)]
    text = text_of(tmp_path, bad, good)
    assert "\nFirst difference of rank0: Distributed.all_reduce.0.forward" in text
    assert "every rank put into it what it should" in text


def test_the_rank_that_sent_it_was_not_compared(tmp_path: Path) -> None:
    good, bad = all_reduce({0: 1.0, 1: 1.5, 2: 1.0}), all_reduce({0: 1.0, 1: 1.5, 2: 8.0})
    for ranks in (good, bad):
        for rank in ranks:
            ranks[rank]["Distributed.all_reduce.0.forward"]["input_kwargs"] = {"group": group(0, 1, 2)}
        del ranks[2]
    text = text_of(tmp_path, bad, good)
    assert "It is a communication with rank 2, of which no dump was compared" in text


def test_the_earlier_one_of_two_ranks_that_both_differ_by_themselves(tmp_path: Path) -> None:
    """Rank 0 differs after the second round, rank 1 before it, in something that rank 0 does not receive."""

    def ranks(early: float, late: float) -> dict[int, Json]:
        rounds = {f"Distributed.all_reduce.{n}.forward": api([tensor()], [tensor(2.0)]) for n in (0, 1)}
        first, second = ({name: entry} for name, entry in rounds.items())
        return {
            0: {**first, **second, **compute("Torch.mul.0.forward", 1.0, late)},
            1: {**first, **compute("Torch.mul.0.forward", 1.0, early), **second},
        }

    text = text_of(tmp_path, ranks(5.0, 5.0), ranks(1.0, 1.0))
    assert "\nFirst difference of rank1: Torch.mul.0.forward" in text
    assert "\n  First difference of rank0: Torch.mul.0.forward (inputs equal, output differs)\n" in text


def test_messages_that_cross_each_other(tmp_path: Path) -> None:
    """Both ranks ask for what the other sends before they send: neither waits for the other for ever."""

    def ranks(gain: float) -> dict[int, Json]:
        found: dict[int, Json] = {}
        for rank, other in ((0, 1), (1, 0)):
            mine, theirs = (gain, 1.0) if rank == 0 else (1.0, gain)
            found[rank] = {
                **compute("Torch.mul.0.forward", 1.0, mine),
                "Distributed.irecv.0.forward": api([None, number(other)], [tensor(theirs), number(other)]),
                "Distributed.isend.0.forward": api([tensor(mine), number(other)], [None, number(other)]),
                "Distributed.all_reduce.0.forward": api([tensor()], [tensor(2.0)]),
            }
        return found

    text = text_of(tmp_path, ranks(5.0), ranks(1.5))
    assert "\nFirst difference of rank0: Torch.mul.0.forward" in text
    assert "; received in Distributed.irecv.0.forward what rank 0 put in with Distributed.isend.0.forward" in text


def test_a_rank_that_ended_early(tmp_path: Path) -> None:
    good, bad = all_reduce({0: 1.0, 1: 1.5}), all_reduce({0: 1.0, 1: 9.0})
    extra = {"Distributed.all_reduce.1.forward": api([tensor()], [tensor(2.0)])}
    for rank in good:
        good[rank] |= extra
    bad[0] |= extra
    text = text_of(tmp_path, bad, good)
    assert "rank 1 makes 1 call of all_reduce where rank 0 makes 2: a rank ended early, hangs, or took another way" in text


def test_a_message_that_nobody_sends(tmp_path: Path) -> None:
    good, bad = pipeline(1.0), pipeline(5.0)
    del bad[2]["Distributed.send.0.forward"]
    text = text_of(tmp_path, bad, good)
    assert "rank 2 sends 0 messages to rank 1, which receives 1 from it" in text


def test_numbers_of_calls_that_differ_in_the_golden_run_too_are_no_fault(tmp_path: Path) -> None:
    good, bad = all_reduce({0: 1.0, 1: 1.5}), all_reduce({0: 1.0, 1: 9.0})
    for ranks in (good, bad):
        ranks[0]["Distributed.all_reduce.1.forward"] = api([tensor()], [tensor(2.0)])
    assert "ended early" not in text_of(tmp_path, bad, good)


def test_plain_values_of_a_search(tmp_path: Path) -> None:
    write_ranks(tmp_path / "t", pipeline(5.0))
    write_ranks(tmp_path / "g", pipeline(1.0))
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    search = search_step(outcome, None)
    assert {rank: search.origin(rank) for rank in (0, 1, 2)} == {0: 2, 1: 2, 2: 2}
    assert guilty_first(outcome)[0].trail.rank == 2
