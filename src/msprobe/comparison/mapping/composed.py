"""A value made of several recorded ones, and how such values are measured."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.comparison.judge import Mode
from msprobe.comparison.mapping.rules import AS_IT_IS, How
from msprobe.comparison.mapping.statistics import NOTHING, Bounds, contradiction, derived
from msprobe.comparison.measure import Agreement, Measure, Measurer, rounding_of
from msprobe.comparison.rows import Row, Statistics
from msprobe.errors import DumpFormatError

if TYPE_CHECKING:
    from msprobe.format.tensor_file import TensorData

_NUMBERS = 1e-9  # what is derived from four float64 numbers is no better than this; any real difference is far larger


@dataclass(frozen=True)
class Part:
    """A recorded value and the directory with its tensor file."""

    directory: Path
    row: Row


@dataclass(frozen=True)
class Composition:
    """How a value is made.

    Attributes:
        parts: what it is made of.
        how: see How.
        dims: number of dimensions of what it is compared with.
        mask: the mask, where `how` names one and the side has it.
        missing: why its statistics are not known, "" where they are.
        bounds: between what its statistics lie where they do not follow from those of the parts; () otherwise.
        nothing: it stands for nothing that was recorded, and `missing` says why; that this is not compared is no finding.
        refused: a rule speaks of it and cannot be applied, and `missing` says why.
    """

    parts: tuple[Part, ...]
    how: How
    dims: int
    mask: Part | None = None
    missing: str = ""
    bounds: tuple[Bounds | None, ...] = ()
    nothing: bool = False
    refused: bool = False


class ComposedRow(Row):
    """A row that stands for several. It has no tensor file of its own."""

    composition: Composition

    def _replace(self, **changes: Any) -> ComposedRow:
        row = ComposedRow(*Row(*self)._replace(**changes))
        row.composition = self.composition
        return row


def composed_row(parts: Sequence[Part], how: How, like: Row, mask: Part | None = None) -> ComposedRow:
    """The row that stands for the parts. `like`: what it will be compared with. Raises arrays.CannotCompose."""
    from msprobe.comparison.mapping.arrays import shape_of

    dims = len(shape(like) or ())
    shapes = [shape(part.row) or () for part in parts]
    whole = list(shape_of(shapes, how, dims))
    known = derived([part.row for part in parts], how)
    first = parts[0].row
    names = list(dict.fromkeys(part.row.name for part in parts))
    flags = {part.row.requires_grad for part in parts}
    row = ComposedRow(
        ";  ".join(names),
        first.key,
        first.role,
        "tensor",
        first.dtype,
        str(whole),
        flags.pop() if len(flags) == 1 else "N/A",
        known.statistics,
        math.prod(whole),
        first.md5 if len(parts) == 1 and how == AS_IT_IS else None,
        None,
    )
    row.composition = Composition(tuple(parts), how, dims, mask, known.missing, known.bounds)
    return row


def absent_row(like: Row, why: str) -> ComposedRow:
    """What stands where the other side can have no such value, so that the row says `not compared` and why."""
    row = ComposedRow("N/A", like.key, like.role, like.kind, like.dtype, like.shape, like.requires_grad, NOTHING, like.value, None, None)
    row.composition = Composition((), AS_IT_IS, 0, None, why, nothing=True)
    return row


def refused_row(part: Part, why: str) -> ComposedRow:
    """A value as it was recorded, but with nothing to be measured against: `not compared`, and why."""
    row = ComposedRow(*part.row._replace(data_name=None))
    row.composition = Composition((part,), AS_IT_IS, len(shape(part.row) or ()), None, why, refused=True)
    return row


def composed_pair(row: Row, parts: Sequence[Part], how: How, masks: tuple[Part, Part] | None, directory: Path) -> tuple[Row, ComposedRow]:
    """A value of the target and what the golden parts make; of both what the mask leaves, and the target flattened where it has more
    dimensions.

    Args:
        masks: of target and golden side, where `how` names one.
        directory: that of the target's tensor files.

    Raises:
        arrays.CannotCompose: the shapes do not allow it.
    """
    theirs = composed_row(parts, how, row, masks[1] if masks is not None else None)
    flatter = how.flatten is not None and len(shape(theirs) or ()) < len(shape(row) or ())
    if masks is None and not flatter:
        return row, theirs
    own = replace(AS_IT_IS, flatten=how.flatten if flatter else None, mask=how.mask)
    ours = composed_row([Part(directory, row)], own, theirs, masks[0] if masks is not None else None)
    if masks is not None:  # how many elements are left of each is seen when the masks are read
        ours = ours._replace(shape=theirs.shape, value=theirs.value)
    return ours, theirs


def shape(row: Row) -> tuple[int, ...] | None:
    """The shape as numbers; None for what is no tensor, or of unknown shape."""
    if row.kind != "tensor":
        return None
    try:
        found = json.loads(row.shape)
    except ValueError:
        return None
    return tuple(found) if isinstance(found, list) and all(type(size) is int for size in found) else None


class ComposingMeasurer:
    """Measures composed rows by putting their parts together; hands all others on.

    Args:
        inner: the measurer of the mode.
        mode: what it measures by.
        directories: where the target and the golden dump keep their tensor files.
    """

    def __init__(self, inner: Measurer, mode: Mode, directories: tuple[Path, Path]) -> None:
        self.columns = inner.columns
        self._inner = inner
        self._mode = mode
        self._directories = directories

    def __call__(self, target: Row, golden: Row) -> Measure:
        rows = [row for row in (target, golden) if isinstance(row, ComposedRow)]
        if not rows:
            return self._inner(target, golden)
        made = [row.composition for row in rows]
        left_out = next((one for one in made if one.nothing), None) or next((one for one in made if one.refused), None)
        if left_out is not None:
            cells = ("unsupported" if self._mode == "tensor" else "N/A",) * len(self.columns)
            return Measure(cells, Agreement.UNKNOWN, reason=left_out.missing, lost=left_out.refused)
        if self._mode == "md5":
            return _unknown(("N/A", "N/A"), "checksums of parts say nothing of the whole")
        if self._mode == "tensor":
            return self._tensors(target, golden)
        measure = self._inner(target, golden)
        partly = next((row for row in rows if row.composition.missing), None)
        if partly is not None and target.shape == golden.shape and target.value != 0:
            return self._within_bounds(measure, partly, golden if partly is target else target)
        if measure.agreement is Agreement.ROUNDING and measure.size < _NUMBERS:
            return measure._replace(agreement=Agreement.SAME)
        return measure

    @staticmethod
    def _within_bounds(measure: Measure, composed: ComposedRow, other: Row) -> Measure:
        """Statistics that do not follow, or not all: a contradiction is a difference, anything else leaves open whether there is one."""
        made = composed.composition
        size, said = 0.0, ""
        if made.bounds and not isinstance(other, ComposedRow):
            size, said = contradiction(other, made.bounds, rounding_of(other.dtype, composed.dtype))
        if said:
            said += ", by what its parts are"
            return measure._replace(agreement=Agreement.DIFFERENT, size=size, reason=said, lost=False, max_abs=None)
        return measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=made.missing, lost=True)

    def _tensors(self, target: Row, golden: Row) -> Measure:
        from msprobe.comparison.mapping.arrays import CannotCompose
        from msprobe.comparison.measure_tensors import UNSUPPORTED, measure_tensors

        try:
            ours, theirs = (_load(row, path) for row, path in zip((target, golden), self._directories, strict=True))
            return measure_tensors(ours, theirs)
        except (CannotCompose, DumpFormatError) as error:
            return _unknown(UNSUPPORTED, str(error))
        except OSError as error:
            return _unknown(UNSUPPORTED, f"{error.filename}: {error.strerror}")


def _load(row: Row, directory: Path) -> TensorData:
    if not isinstance(row, ComposedRow):
        return _read(Part(directory, row))
    from msprobe.comparison.mapping.arrays import composed

    made = row.composition
    mask = _read(made.mask) if made.mask is not None else None
    return composed([_read(part) for part in made.parts], made.how, made.dims, mask)


def _read(part: Part) -> TensorData:
    from msprobe.format import tensor_file

    if isinstance(part.row, ComposedRow):
        return _load(part.row, part.directory)
    name = part.row.data_name
    if name is None:
        raise DumpFormatError(f"{part.row.name} has no tensor file")
    if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
        raise DumpFormatError(f"the file name {name!r} leaves its directory; it was not read")
    return tensor_file.read(os.path.join(part.directory, name))


def _unknown(cells: tuple[Any, ...], reason: str) -> Measure:
    return Measure(cells, Agreement.UNKNOWN, reason=reason, lost=True)


def statistics_of(row: Row) -> tuple[Statistics, str]:
    """Statistics to show of a value: those of the whole, computed from the files where they do not follow; else why they are not known."""
    if not isinstance(row, ComposedRow) or None not in row.statistics:
        return row.statistics, ""
    from msprobe.comparison.mapping.arrays import CannotCompose
    from msprobe.numerics import summarize_array, to_float64

    try:
        whole = _load(row, Path())
        return summarize_array(to_float64(whole.data, whole.dtype)), ""
    except (CannotCompose, DumpFormatError, OSError, ValueError):
        return row.statistics, row.composition.missing
