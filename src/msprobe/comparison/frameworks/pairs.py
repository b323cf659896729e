"""What one framework records and the other does not, left out of a comparison of the two, and told in a note.

A layer of a library is built of other functions in each framework: Dense multiplies and adds a bias where Linear calls `linear`. The
layer is compared, what is inside of it has no partner. Running statistics are parameters in MindSpore and buffers in PyTorch. Arguments
that are no tensors follow other signatures.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from msprobe.comparison.alignment.meaning import meaning
from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.frameworks.equivalents import equivalents, primitive_class
from msprobe.comparison.judging.operations import Kind, kind_of
from msprobe.comparison.match import CallPair
from msprobe.comparison.names import forward_of, parse
from msprobe.comparison.rows import Call, Row
from msprobe.recording.risk import risk_of

Parents = Mapping[str, str | None]
_WHOLE = frozenset(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention"))
_DEEPEST = 100  # names that lead in a circle end somewhere


def comparable_calls(
    calls: tuple[Sequence[Call], Sequence[Call]], parents: tuple[Parents, Parents], notes: list[str]
) -> tuple[list[Call], list[Call]]:
    """Both sides without the calls inside of layers that both have and each builds in its own way.

    Args:
        calls: of target and golden side.
        parents: their construct.json; where one is missing nothing is left out.
        notes: gets a sentence about what is left out.
    """
    layers = [{path_of(call.parts.base) for call in side if call.parts.is_module and _is_layer(call)} for side in calls]
    both = layers[0] & layers[1]
    if not any(call.parts.is_module for side in calls for call in side):
        notes.append(
            "no layers were recorded: the frameworks build them of other functions, not all of which have partners; record at level L0 or "
            "mix to compare the layers"
        )
    if not both or not all(parents):
        return list(calls[0]), list(calls[1])
    whole = [{path_of(call.parts.base) for call in side if call.parts.is_module and _is_whole(call)} for side in calls]
    left: list[list[Call]] = []
    for side, known in zip(calls, parents, strict=True):
        left.append([call for call in side if not _is_inside(call, known, whole[0] & whole[1] if call.parts.is_module else both)])
    count = sum(map(len, calls)) - sum(map(len, left))
    if count:
        what = f"{count} calls inside of {len(both)} layers are left out, the layers are compared"
        notes.append(f"the frameworks build a layer of other functions: {what}")
    return left[0], left[1]


def _is_layer(call: Call) -> bool:
    return kind_of(call.parts) is not None or _is_whole(call)


def _is_whole(call: Call) -> bool:
    """Whether it is a layer of a library that has layers of its own inside, which the other library has not."""
    return call.parts.base.rpartition(".")[2] in _WHOLE


def _is_inside(call: Call, parents: Parents, layers: set[str]) -> bool:
    around = parents.get(call.name)
    if around is None:
        around = parents.get(forward_of(call.name) or "")
    for _ in range(_DEEPEST):
        if not isinstance(around, str):
            return False
        parts = parse(around)
        if parts.is_module and path_of(parts.base) in layers:
            return True
        around = parents.get(around)
    return False


def comparable_values(pairs: Sequence[CallPair], notes: list[str]) -> list[CallPair]:
    """The pairs without values that one framework alone can have.

    Args:
        pairs: of two frameworks.
        notes: gets a sentence about what is left out.
    """
    tables = equivalents()
    what = (
        "running statistics, which PyTorch keeps in buffers that no dump holds",
        "arguments that are no tensors",
        "gradients that are not there",
        "values of calls that only move, make or convert elements, such as {}, "
        "none of which the other side recorded (PyTorch: risk_level ALL)",
        "what primitives give behind their result",
        "how many batches a normalisation has seen, which PyTorch counts",
    )
    counts = [0] * len(what)
    moving = _only_moving(pairs)

    def is_kept(call: CallPair, row: RowPair) -> bool:
        alone = row.golden if row.target is None else row.target
        if alone is None or None not in row:
            return True
        if alone.kind == "null" and alone.role != "parameters":
            counts[2] += 1
            return False
        if call.target is None or call.golden is None:
            if _counts_batches(call):
                counts[5] += 1
                return False
            counts[3] += call.name in moving
            return call.name not in moving
        if alone.role == "parameters" and alone.key.rpartition(".")[2] in tables.buffers:
            counts[0] += 1
            return False
        if alone.role == "output" and alone.key != "output.0" and _is_primitive(call, alone, tables.signatures):
            counts[4] += 1
            return False
        if alone.role == "input" and alone.kind != "tensor" and not call.target.parts.is_module:
            counts[1] += 1
            return False
        return True

    kept = [call._replace(rows=tuple(row for row in call.rows if is_kept(call, row))) for call in pairs]
    first = next(iter(moving), "")
    left_out = [f"{text.format(first)}: {count}" for count, text in zip(counts, what, strict=True) if count]
    notes += [f"left out, since one side alone has them: {text}" for text in left_out]
    return [call for call in kept if call.rows or not (call.name in moving or _counts_batches(call))]


def _is_primitive(call: CallPair, row: Row, known: Container[str]) -> bool:
    """Whether a value is of a primitive of these classes, and not of PyTorch's function."""
    ours = next((side for side in (call.target, call.golden) if side is not None and row in side.rows), None)
    return ours is not None and ours.parts.direction == "forward" and primitive_class(ours.parts.own) in known


def _counts_batches(pair: CallPair) -> bool:
    """Whether it is `num_batches_tracked.add_(1)`, in PyTorch's layers of normalisation."""
    call = pair.target or pair.golden
    if call is None or call.parts.base != "Tensor.add_" or call.parts.direction != "forward" or len(call.rows) != 3:
        return False
    count, one, _ = call.rows
    return count.kind == "tensor" and (count.dtype, count.shape) == ("torch.int64", "[]") and type(one.value) is int and one.value == 1


def _only_moving(pairs: Sequence[CallPair]) -> dict[str, None]:
    """The calls on one side alone that compute nothing and of whose kind the other side has none: it does not record them."""
    known: tuple[set[str], set[str]] = (set(), set())
    for pair in pairs:
        for side, call in enumerate((pair.target, pair.golden)):
            if call is not None:
                known[side].add(meaning(call.parts.base))
    found: dict[str, None] = {}
    for pair in pairs:
        call = pair.target or pair.golden
        if call is None or (pair.target is not None and pair.golden is not None) or call.parts.is_module:
            continue
        prefix, _, api = call.parts.base.partition(".")
        moves = kind_of(call.parts) is Kind.SELECT or risk_of(prefix, api) == "LOW"
        if moves and meaning(call.parts.base) not in known[1 if pair.target is not None else 0]:
            found[call.name] = None
    return found
