"""Values that one run gives in another container than the other: a tuple for a ModelOutput, an argument by place for one by name.

Their keys differ, so the comparison has no partner for them; what they hold is what counts here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.match import RowPair
from msprobe.comparison.measure import Agreement
from msprobe.comparison.measure_tensors import TensorMeasurer
from msprobe.comparison.rows import Role, Row
from msprobe.format import names


def realigned(compared: Compared) -> Compared:
    """The comparison with such values paired and measured.

    Tensors without partner of one call and role are paired in their order: all of them where both runs have as many, else those of one
    shape. Inputs of a forward call only where their values agree: whether another one is meant cannot be told.
    """
    if compared.tensor_dirs is None:
        return compared
    measurer = TensorMeasurer(*compared.tensor_dirs)
    return replace(compared, calls=[_realigned(call, measurer) for call in compared.calls])


def _realigned(call: MeasuredCall, measurer: TensorMeasurer) -> MeasuredCall:
    if not call.matched or all(None not in row.pair for row in call.rows):
        return call
    rows = list(call.rows)
    for role in ("input", "output"):
        for ours, theirs in _partners(rows, role):
            measured = Measured(RowPair(ours, theirs), measurer(ours, theirs))
            given = role == "input" and call.parts.direction == names.FORWARD
            if given and (measured.measure is None or measured.measure.agreement in (Agreement.DIFFERENT, Agreement.UNKNOWN)):
                continue
            place = next(index for index, row in enumerate(rows) if row.pair.target is ours)
            rows[place] = measured
            rows = [row for row in rows if row.pair.golden is not theirs or row is measured]
    return call._replace(rows=tuple(rows))


def _partners(rows: list[Measured], role: Role) -> Iterator[tuple[Row, Row]]:
    alone = [row.pair for row in rows if None in row.pair]
    ours = [pair.target for pair in alone if pair.target is not None and (pair.target.role, pair.target.kind) == (role, "tensor")]
    theirs = [pair.golden for pair in alone if pair.golden is not None and (pair.golden.role, pair.golden.kind) == (role, "tensor")]
    if len(ours) == len(theirs):
        yield from zip(ours, theirs, strict=True)
        return
    for golden in theirs:
        fitting = next((target for target in ours if target.shape == golden.shape), None)
        if fitting is not None:
            ours.remove(fitting)
            yield fitting, golden
