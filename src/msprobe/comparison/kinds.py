"""By what two dumps are compared: tensor files, checksums, or the statistics that both hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.judge import Mode
from msprobe.comparison.rows import Call
from msprobe.errors import UsageError

_XOR = re.compile(r"0x[0-9a-fA-F]{16}")
_CRC = re.compile(r"[0-9a-fA-F]{8}")
_UNKNOWN = "unknown"
_WORDS = {"": "no checksums", "xor": "xor", "md5": "md5", _UNKNOWN: "checksums of an unknown kind"}
_STATISTICS = "Max, Min, Mean and Norm"


class KindsDiffer(UsageError):
    """The two dumps hold nothing that can be compared with each other."""


class Held(NamedTuple):
    """What is asked of one side: its file, its task and its calls."""

    path: Path
    task: str
    calls: Sequence[Call]


def choose(target: Held, golden: Held) -> tuple[Mode, str]:
    """The mode, and a sentence about it where the two were not recorded alike ("" where they were).

    Tensor files where both have task tensor; else checksums where both hold those of one kind; else statistics where both hold them.

    Raises:
        KindsDiffer: they have neither in common.
    """
    if target.task == golden.task == "tensor":
        return "tensor", ""
    kinds = checksum_kind(target.calls), checksum_kind(golden.calls)
    unlike = ""
    if target.task != golden.task:
        unlike = f"the target was recorded with task {target.task}, the golden run with task {golden.task}"
    if all(kinds) and (kinds[0] == kinds[1] or _UNKNOWN in kinds):
        return "md5", _told(unlike, f"checksum ({kinds[0]})")
    if not any(kinds):
        if unlike and not (_holds_statistics(target.calls) and _holds_statistics(golden.calls)):
            raise KindsDiffer(f"the tasks differ: {target.path} holds {target.task}, {golden.path} holds {golden.task}; record both alike")
        return "statistics", _told(unlike, _STATISTICS)
    if _holds_statistics(target.calls) and _holds_statistics(golden.calls):
        checksums = f"the target holds {_WORDS[kinds[0]]}, the golden dump {_WORDS[kinds[1]]}"
        return "statistics", _told(f"{unlike}; {checksums}" if unlike else checksums, _STATISTICS)
    raise KindsDiffer(_refusal(target, golden, kinds))


def checksum_kind(calls: Sequence[Call]) -> str:
    """`xor` or `md5` (CRC-32) by the form of the first checksum that has one of the two; "" where there is none at all."""
    kind = ""
    for call in calls:
        for row in call.rows:
            if row.md5 is None:
                continue
            # A number of one element has itself, or its few digits, in its place in dumps of mindstudio-probe: that tells nothing.
            text = row.md5 if isinstance(row.md5, str) else ""
            if _XOR.fullmatch(text):
                return "xor"
            if _CRC.fullmatch(text):
                return "md5"
            kind = _UNKNOWN
    return kind


def _holds_statistics(calls: Sequence[Call]) -> bool:
    return any(row.kind == "tensor" and row.statistics.count(None) < 4 for call in calls for row in call.rows)


def _told(unlike: str, criterion: str) -> str:
    return f"{unlike}: compared by {criterion}, which both hold" if unlike else ""


def _refusal(target: Held, golden: Held, kinds: tuple[str, str]) -> str:
    if all(kinds):
        return f"{target.path} holds {_WORDS[kinds[0]]}, {golden.path} holds {_WORDS[kinds[1]]}: two kinds of checksums; record both alike"
    one, other = (target, golden) if kinds[0] else (golden, target)
    return (
        f"{one.path} holds checksums (summary_mode {kinds[0] or kinds[1]}) and {other.path} does not,"
        " and they have no statistics in common; record both alike"
    )
