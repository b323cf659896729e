"""Which value of one dump is compared with which of the other: names, sequence, and what the user says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison import gradient_slots
from msprobe.comparison.alignment.notes import pairing_notes
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.mapping.names import nearest_to, renaming, without_effect, without_effect_there
from msprobe.comparison.mapping.nearest import hint
from msprobe.comparison.match import Around, CallPair, align, unknown_names
from msprobe.comparison.options import Options
from msprobe.comparison.reading import read_calls
from msprobe.comparison.rows import Call


class Paired(NamedTuple):
    """What belongs together.

    Attributes:
        calls: all calls with their values.
        shifted: names of backward calls whose outputs must not be measured against each other.
        composed: some values are made of several recorded ones.
        notes: what the reader should know, one sentence each.
        again: forward calls of each side that the backward pass ran once more.
    """

    calls: list[CallPair]
    shifted: set[str]
    composed: bool
    notes: list[str]
    again: tuple[Collection[str], Collection[str]] = ((), ())


def pair_up(
    pair: DumpPair,
    options: Options,
    calls: tuple[Sequence[Call], Sequence[Call]],
    around: tuple[Around, Around],
    directories: tuple[Path, Path],
) -> Paired:
    """Pairs two dumps.

    Args:
        pair, options: as for every pair.
        calls, around: what both dumps hold.
        directories: where their tensor files lie.

    Raises:
        DumpFormatError: the dump of another rank of the group cannot be read.
    """
    notes: list[str] = []
    rename = renaming(options.names, *calls)
    by_sequence = partial(align, around=around, rename=rename, mapping=options.data_mapping, by_api_alone=options.fuzzy)
    if options.tensors.rules:
        from msprobe.comparison.mapping.applying import align_by_rules

        matching, mapped = align_by_rules(calls, around, options.tensors, directories, by_sequence, notes)
    else:
        matching, mapped = by_sequence(*calls), set()
    notes += _of_names(options, calls)
    told = matching if not mapped else matching._replace(pairs=[one for one in matching.pairs if one.name not in mapped])
    notes += pairing_notes(told, rename)
    pairs, shifted = gradient_slots.realigned(matching.pairs)
    if options.tensors.prepare is not None:
        from msprobe.comparison.mapping.preparing import like_partners

        pairs = like_partners(pairs)
    for side, group in enumerate((pair.target_group, pair.golden_group)):
        if len(group) > 1:
            from msprobe.comparison.mapping.shards import joined_ranks

            pairs = joined_ranks(pairs, [_rank(path) for path in group], side, options.tensors, directories[1], notes)
            names = ", ".join(path.parent.name for path in group)
            notes.append(f"sharded values of {('the target', 'the golden run')[side]} are put together from {names}")
    if options.tensors.group() is not None and len(pair.target_group) <= 1 and len(pair.golden_group) <= 1:
        notes.append(
            "the mapping file's rules with `shard` have nothing to put together: neither side has several ranks for one of the other"
        )
    return Paired(pairs, shifted, bool(options.tensors), notes, matching.partners.again)


def _of_names(options: Options, calls: tuple[Sequence[Call], Sequence[Call]]) -> list[str]:
    """What the user has named and no dump has, with what it may have meant."""
    notes: list[str] = []
    missing = unknown_names(*calls, options.data_mapping) if options.data_mapping else []
    if missing:
        rows = (row.name for side in calls for call in side for row in call.rows)
        notes.append(f"the mapping file names {len(missing)} rows that do not exist, the first: {missing[0]}{hint(missing[0], rows)}")
    for side, find, known in zip(("target", "golden run"), (without_effect, without_effect_there), calls, strict=True):
        unused = find(options.names, known) if options.names else []
        if unused:
            more = f", and {len(unused) - 1} more" if len(unused) > 1 else ""
            notes.append(f"the mapping file names what the {side} does not have, {unused[0]!r}{more}{nearest_to(unused[0], known)}")
    return notes


def _rank(path: Path) -> tuple[Path, Mapping[str, Call]]:
    head, calls = read_calls(path)
    return head.tensor_dir, {call.name: call for call in calls}
