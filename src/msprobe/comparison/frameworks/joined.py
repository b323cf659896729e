"""What MindSpore's layers are built of, as PyTorch calls it: MatMul and BiasAdd are one `linear`, Conv2D and BiasAdd one `conv2d`, and
BatchNorm takes its arguments in another order.

A joined call has the name of the last of the two, and the rows of both but what goes from one to the other; each row keeps its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msprobe.comparison.alignment.meaning import meaning
from msprobe.comparison.alignment.places import argument_names
from msprobe.comparison.frameworks.equivalents import equivalents, primitive_class
from msprobe.comparison.mapping.composed import shape
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call, Row
from msprobe.format import tensor_file
from msprobe.numerics import to_float64

_PRODUCTS = {
    "MatMul": "linear",
    "Conv2D": "conv2d",
    "Conv3D": "conv3d",
    "Conv2DTranspose": "conv_transpose2d",
    "Conv2DBackpropInput": "conv_transpose2d",
    "Conv3DTranspose": "conv_transpose3d",
}
_LINEAR = "Functional.linear"
_BARE = frozenset(("+matmul", "+mm", "+addmm", "+bmm", "+baddbmm"))
_ELEMENTS_OF_A_ROW = 1 << 16


class _Signature(NamedTuple):
    """What tells such calls apart: the function, the shapes of weight and bias ("" where there is none), and the input's dimensions."""

    base: str
    weight: str
    bias: str
    dims: int


class _Group(NamedTuple):
    """Calls that are joined, in their order; `before` and `after` make two dimensions of more, and more of two."""

    base: str
    before: Call | None
    product: Call
    bias: Call | None
    after: Call | None

    @property
    def last(self) -> Call:
        """Gives the joined call its name."""
        return self.bias or self.product

    @property
    def members(self) -> list[Call]:
        return [call for call in (self.before, self.product, self.bias, self.after) if call is not None]


def in_pytorch_order(ours: Sequence[Call]) -> list[Call]:
    """The calls of MindSpore's side, arguments that stand elsewhere under the keys that they have in calls of PyTorch's function."""
    table = equivalents().signatures
    made: list[Call] = []
    for call in ours:
        names = table.get(_class(call) or call.parts.own) if call.parts.direction == "forward" else None
        if names is not None:
            usual = {name: f"input.{place}" for place, name in enumerate(argument_names(call))}
            keys = {f"input.{place}": usual.get(name, f"input.{name}") for place, name in enumerate(names)}
            call = call._replace(rows=tuple(row._replace(key=keys.get(row.key, row.key)) for row in call.rows))
        made.append(call)
    return made


def joined(ours: Sequence[Call], theirs: Sequence[Call], directory: Path, notes: list[str]) -> list[Call]:
    """The calls of MindSpore's side, with those joined that PyTorch's side makes one of.

    Nothing is joined where it could be wrong: where the second call did not take in what the first gave out, where the other side has no
    such call with weights of these shapes, or a bare product with them, too, and where a square weight may be multiplied as it is (`linear`
    transposes it), which neither its checksum nor the values say.

    Args:
        ours, theirs: of MindSpore and PyTorch, in the order of their dumps.
        directory: where MindSpore's side keeps its tensor files.
        notes: gets a sentence about it.
    """
    groups = list(_groups(ours, theirs, directory))
    if not groups:
        return list(ours)
    backwards = {(forward_of(call.name), call.parts.suffix): call for call in ours if call.parts.direction == "backward"}
    suffixes = sorted({suffix for _, suffix in backwards})
    made: dict[str, Call] = {}
    """The last call of a group -> what stands in its place."""
    gone: set[str] = set()
    for group in groups:
        made[group.members[-1].name] = _forward(group)
        gone.update(call.name for call in group.members)
        for suffix in suffixes:
            found = {call.name: backwards.get((call.name, suffix)) for call in group.members}
            if group.before is not None and found[group.before.name] is None:  # nothing asks for the gradient of x
                del found[group.before.name]
            known = {name: call for name, call in found.items() if call is not None}
            if len(known) == len(found):
                made[next(iter(known.values())).name] = _backward(group, known)
                gone.update(call.name for call in known.values())
    count = sum(group.bias is not None for group in groups)
    if count:
        example = next(group for group in groups if group.bias is not None)
        notes.append(
            f"pairs of calls such as {example.product.name} and {example.last.name} are compared with the one call that PyTorch makes of "
            f"both: {count}"
        )
    return [made.get(call.name, call) for call in ours if call.name in made or call.name not in gone]


def _groups(ours: Sequence[Call], theirs: Sequence[Call], directory: Path) -> Iterator[_Group]:
    wanted, bare = _there(theirs)
    calls = [call for call in ours if call.parts.direction == "forward" and not call.parts.is_module]
    used = 0
    for i, call in enumerate(calls):
        function = _PRODUCTS.get(_class(call))
        inputs, outputs = _tensors(call, "input"), _tensors(call, "output")
        if function is None or len(inputs) < 2 or len(outputs) != 1:
            continue
        base = f"Functional.{function}"
        following = calls[i + 1] if i + 1 < len(calls) else None
        bias = following if following is not None and _class(following) == "BiasAdd" and _goes_on(call, following) else None
        biases = _tensors(bias, "input") if bias is not None else []
        if (bias is None and base != _LINEAR) or (bias is not None and len(biases) != 2):
            continue
        weight, held = inputs[1], biases[1].shape if biases else ""
        around = _around(calls, i, i + 1 if bias is not None else i) if base == _LINEAR and i > used else (None, None)
        without: tuple[Call | None, Call | None] = (None, None)
        for before, after in (around, without) if around != without else (without,):
            taken = _tensors(before, "input")[0] if before is not None else inputs[0]
            signature = _Signature(base, weight.shape, held, len(shape(taken) or ()))
            if signature not in wanted or (base == _LINEAR and not _is_transposed(call, wanted[signature], bare, directory)):
                continue
            group = _Group(base, before, call, bias, after)
            used = i + len(group.members) - 1
            yield group
            break


def _there(theirs: Sequence[Call]) -> tuple[dict[_Signature, set[object]], set[str]]:
    """What PyTorch's side calls: signature -> checksums of the weights; and the shapes that bare products take in."""
    wanted: dict[_Signature, set[object]] = {}
    bare: set[str] = set()
    functions = {f"Functional.{name}" for name in _PRODUCTS.values()} | {f"Torch.{name}" for name in _PRODUCTS.values()}
    for call in theirs:
        if call.parts.direction != "forward" or call.parts.is_module:
            continue
        inputs = _tensors(call, "input")
        if call.parts.base in functions and len(inputs) in (2, 3):
            base = f"Functional.{call.parts.api}"
            held = inputs[2].shape if len(inputs) == 3 else ""
            wanted.setdefault(_Signature(base, inputs[1].shape, held, len(shape(inputs[0]) or ())), set()).add(inputs[1].md5)
        elif meaning(call.parts.base) in _BARE:
            sizes = [size for row in inputs if (size := shape(row)) is not None]
            bare.update(str(list(either)) for size in sizes for either in (size, size[::-1]))
    return wanted, bare


def _class(call: Call) -> str:
    return primitive_class(call.parts.own)


def _tensors(call: Call, role: str) -> list[Row]:
    return [row for row in call.rows if row.role == role and row.kind == "tensor"]


def _goes_on(call: Call, following: Call) -> bool:
    """Whether a call has taken in what the one before it gave out: a tensor of the same shape and values."""
    given, taken = _tensors(call, "output"), _tensors(following, "input")
    if not given or not taken:
        return False
    values = [(row.shape, *map(str, row.statistics), row.md5) for row in (given[0], taken[0])]  # as text NaN is NaN
    return None not in given[0].statistics and values[0] == values[1]


def _around(calls: Sequence[Call], first: int, last: int) -> tuple[Call | None, Call | None]:
    """The calls that make two dimensions of more, and more of two; both or none."""
    if first == 0 or last + 1 >= len(calls):
        return None, None
    before, after = calls[first - 1], calls[last + 1]
    for call in (before, after):
        sizes = [shape(rows[0]) for role in ("input", "output") if (rows := _tensors(call, role))]
        if _class(call) != "Reshape" or len(sizes) != 2 or not sizes[0] or not sizes[1] or sizes[0][-1] != sizes[1][-1]:
            return None, None
    return (before, after) if _goes_on(before, calls[first]) and _goes_on(calls[last], after) else (None, None)


def _is_transposed(product: Call, weights: set[object], bare: set[str], directory: Path) -> bool:
    """Whether a MatMul multiplies by the weight as `linear` does, transposed."""
    taken, weight = _tensors(product, "input")[:2]
    size, width = shape(weight), (shape(taken) or [0])[-1]
    if weight.shape in bare or size is None or len(size) != 2 or width != size[1]:
        return False
    if size[0] != size[1]:
        return True
    if weight.data_name is not None:
        return _is_transposed_in(taken, weight, _tensors(product, "output")[0], directory)
    return weight.md5 is None or weight.md5 in weights  # statistics are the same either way


def _is_transposed_in(taken: Row, weight: Row, given: Row, directory: Path) -> bool:
    """The same, by the values of one row of the product."""
    arrays: list[Any] = []
    try:
        for row in (taken, weight, given):
            tensor = tensor_file.read(directory / str(row.data_name))
            arrays.append(to_float64(tensor.data, tensor.dtype).reshape(tensor.shape))
        x, square, y = arrays
        if x.ndim != 2 or not x.size or x.shape[1] > _ELEMENTS_OF_A_ROW:
            return False
        row_of = int(np.abs(x).sum(axis=1).argmax())
        as_linear, as_it_is = (float(np.abs(x[row_of] @ matrix - y[row_of]).max()) for matrix in (square.T, square))
    except Exception:  # a file that is missing or damaged: what it says of itself is told where it is compared
        return False
    return as_linear < as_it_is or bool(np.array_equal(square, square.T))


def _forward(group: _Group) -> Call:
    inputs = _tensors(group.product, "input")[:2]
    if group.before is not None:
        inputs[0] = _tensors(group.before, "input")[0]
    if group.bias is not None:
        inputs.append(_tensors(group.bias, "input")[1])
    return _made(group, group.last, inputs, _tensors(group.after or group.last, "output"))


def _backward(group: _Group, backwards: dict[str, Call]) -> Call:
    """Of the gradients: what arrives at the last call, and what the first calls send on."""

    def sent(call: Call, place: int) -> list[Row]:
        return [row for row in backwards[call.name].rows if row.key == f"output.{place}"]

    first = group.before if group.before is not None and group.before.name in backwards else group.product
    outputs = [*sent(first, 0), *sent(group.product, 1)]
    if group.bias is not None:
        outputs += sent(group.bias, 1)
    arrived = [row for row in backwards[(group.after or group.last).name].rows if row.role == "input"]
    return _made(group, backwards[group.last.name], arrived[:1], outputs)


def _made(group: _Group, named: Call, inputs: Sequence[Row], outputs: Sequence[Row]) -> Call:
    rows = [row._replace(key=f"input.{place}") for place, row in enumerate(inputs)]
    rows += [row._replace(key=f"output.{place}") for place, row in enumerate(outputs)]
    return Call(named.name, named.parts._replace(base=group.base, api=group.base.partition(".")[2]), tuple(rows))
