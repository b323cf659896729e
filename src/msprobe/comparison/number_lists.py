"""Lists of numbers as a command line gives them: `0,2-3`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msprobe.errors import UsageError

_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
LARGEST = 1_000_000


def parse_numbers(given: str | int | Iterable[str | int], option: str) -> frozenset[int]:
    """The numbers meant by `0,2-3`, by a number, or by several of these; both ends of a range are included.

    Args:
        option: what the user wrote it behind (`--rank`), for messages.

    Raises:
        UsageError: a part is no number and no range, runs downwards, or is too large; or there is none at all.
    """
    texts = [str(given)] if isinstance(given, (str, int)) else [str(one) for one in given]
    numbers: set[int] = set()
    for part in (part.strip() for text in texts for part in text.split(",")):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{option} {','.join(texts)}: {part!r} is no number and no range; write numbers and ranges, as in 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"{option} {','.join(texts)}: the range {part} runs downwards; write {last}-{first}")
        if last > LARGEST:
            raise UsageError(f"{option} {','.join(texts)}: {last} is larger than {LARGEST}")
        numbers.update(range(first, last + 1))
    if not numbers:
        raise UsageError(f"{option} needs at least one number")
    return frozenset(numbers)
