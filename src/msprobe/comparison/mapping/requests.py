"""Which request of an engine's step is compared with a run of one sequence: rows and positions from meta.json, `batch`; and whether this
rank holds whole values (`parallel`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msprobe.comparison.mapping.composed import shape
from msprobe.comparison.mapping.rules import SAME_PROMPT
from msprobe.comparison.rows import Call, Row
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import layout

_INTEGERS = ("torch.int64", "torch.int32")


class Request(NamedTuple):
    """Rows and positions of one request, ends excluded; `tokens` and `requests` of the whole step; `doubt`: what to tell the reader."""

    number: int
    rows: tuple[int, int]
    positions: tuple[int, int]
    tokens: int
    requests: int
    doubt: str = ""


def sequence_length(calls: Sequence[Call]) -> int | None:
    """How long the sequence is that a model took in: the first integer tensor [1, length]."""
    row = _ids(calls)
    return (shape(row) or (0, 0))[1] if row is not None else None


def chosen_request(dump: Path, wanted: int | str | None, others: Sequence[Call], directory: Path, sequence: bool) -> Request:
    """The request that is compared.

    Args:
        dump: dump.json of the engine's step.
        wanted: its number, its id, or SAME_PROMPT.
        others: the calls of the other side.
        directory: where the tensor files of the other side lie.
        sequence: whether the other side holds the whole sequence of the request.

    Raises:
        UsageError: there is no such request, or it cannot be told which one it is, or the other side ends before it.
    """
    batch = _batch(dump)
    requests = batch["requests"]
    row = _ids(others)
    if sequence:
        _refuse_batch(others)
    tokens = _tokens(row, directory) if row is not None else None
    index = _index(requests, wanted, tokens, sequence_length(others), dump)
    if index is None:
        why = "none has the prompt of the other side" if wanted == SAME_PROMPT else f"there is no request {wanted!r}"
        raise UsageError(f"{dump}: {why}; {_name_one(requests)}")
    one = requests[index]
    rows = (int(one["rows"][0]), int(one["rows"][1]))
    first, last = map(int, one.get("positions") or (0, rows[1] - rows[0]))
    length = sequence_length(others)
    if sequence and length is not None and last > length:
        raise UsageError(
            f"{dump}: request {index} is at the positions {first} to {last - 1}, and the other side has {length} tokens: record it with the"
            " prompt and the tokens that were generated"
        )
    doubt = ""
    if tokens is not None and _has_tokens(one, tokens) is False:
        doubt = f"the two sides have other tokens up to position {last - 1}, so their values differ"
    return Request(index, rows, (first, last), int(batch["tokens"]), len(requests), doubt)


def refuse_parts(dump: Path) -> None:
    """Raise UsageError if the step is that of one of several tensor-parallel ranks."""
    try:
        ranks = json.loads(dump.with_name(layout.META).read_bytes())["parallel"]["tensor"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    if isinstance(ranks, int) and ranks > 1:
        parts = f"{dump} is of one of {ranks} tensor-parallel ranks, which holds parts of values, and this mapping file is for whole ones"
        raise UsageError(f"{parts}; --mapping hf_llama_tp compares what each rank has whole")


def _batch(dump: Path) -> dict[str, Any]:
    path = dump.with_name(layout.META)
    try:
        batch = json.loads(path.read_bytes()).get("batch")
        spans = [one["rows"] for one in batch["requests"]] + [one["positions"] for one in batch["requests"] if one.get("positions")]
        if spans and all(map(_is_span, spans)) and type(batch["tokens"]) is int:
            return dict(batch)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise UsageError(f"{path} does not say which rows belong to which request (`batch`), so `request:` of the mapping file has no meaning")


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(bound) is int for bound in value)


def _index(requests: Sequence[Any], wanted: int | str | None, tokens: bytes | None, length: int | None, dump: Path) -> int | None:
    if isinstance(wanted, int):
        return wanted if 0 <= wanted < len(requests) else None
    if wanted != SAME_PROMPT:
        return next((number for number, one in enumerate(requests) if one.get("id") == wanted), None)
    if tokens is not None and any("prompt" in one for one in requests):
        return _with_tokens(requests, tokens, dump)
    if len(requests) == 1:
        return 0
    fitting = [number for number, one in enumerate(requests) if one["rows"][1] - one["rows"][0] == length]
    return fitting[0] if len(fitting) == 1 else None


def _with_tokens(requests: Sequence[Any], tokens: bytes, dump: Path) -> int | None:
    """The request with these tokens: of several prompts that the sequence begins with the longest one; of several requests with one prompt
    (samples of it) that with the tokens that were generated.
    """
    fitting = [number for number, one in enumerate(requests) if _begins(tokens, one.get("prompt_tokens"), one.get("prompt"))]
    exact = [number for number in fitting if _has_tokens(requests[number], tokens)]
    longest = max((int(requests[number]["prompt_tokens"]) for number in exact or fitting), default=0)
    left = [number for number in exact or fitting if requests[number]["prompt_tokens"] == longest]
    ends = [int((requests[number].get("positions") or (0, 0))[1]) for number in left]
    if len(left) > 1 and not exact and longest < max(ends) <= len(tokens) // 4:
        those = ", ".join(map(str, left[:8]))
        why = f"the requests {those} have this prompt, and none is known to have the tokens that follow it on the other side"
        raise UsageError(f"{dump}: {why}; {_name_one(requests)}")
    return left[0] if left else None


def _has_tokens(request: Any, tokens: bytes) -> bool | None:
    """Whether the request has these tokens, up to the last one of the step; None where that is not known."""
    known = request.get("sequence")
    return _begins(tokens, (request.get("positions") or (0, 0))[1], known) if known is not None else None


def _begins(tokens: bytes, length: Any, fingerprint: Any) -> bool:
    """Whether the first `length` tokens have this fingerprint."""
    import xxhash

    fits = isinstance(length, int) and 0 < length <= len(tokens) // 4
    return fits and xxhash.xxh64_hexdigest(tokens[: 4 * length]) == fingerprint


def _name_one(requests: Sequence[Any]) -> str:
    known = "; ".join(f"{number}: {one.get('id')}, {one['rows'][1] - one['rows'][0]} tokens" for number, one in enumerate(requests[:8]))
    return f"name one in the mapping file, under `request:`, by its number or id ({known})"


def _ids(calls: Sequence[Call]) -> Row | None:
    return next((row for row in _id_tensors(calls) if (shape(row) or (0,))[0] == 1), None)


def _id_tensors(calls: Sequence[Call]) -> list[Row]:
    integers = (row for call in calls for row in call.rows if row.role == "input" and row.dtype in _INTEGERS)
    return [row for row in integers if len(shape(row) or ()) == 2]


def _refuse_batch(calls: Sequence[Call]) -> None:
    first = next(iter(_id_tensors(calls)), None)
    if first is not None and (shape(first) or (1,))[0] > 1:
        several = f"{first.name} is {first.shape}, several sequences in one forward"
        raise UsageError(f"{several}: a request is compared with a forward of one sequence, [1, length]; record each in a step of its own")


def _tokens(row: Row, directory: Path) -> bytes | None:
    """The token ids as int32, little-endian; None where no file holds them."""
    from msprobe.format import tensor_file

    name = row.data_name
    if name is None or os.path.basename(name) != name:
        return None
    import numpy as np

    try:
        data = tensor_file.read(os.path.join(directory, name))
    except (OSError, DumpFormatError):
        return None
    return np.frombuffer(data.data, f"<i{8 if data.dtype == 'int64' else 4}").astype("<i4").tobytes()
