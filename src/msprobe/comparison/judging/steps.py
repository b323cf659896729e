"""What rounding leaves in a parameter that an optimizer has moved: p + value * m / d, element by element (Adam and its kin).

Where a gradient is nothing but rounding, as that of the bias of a key is, which attention does not depend on, d is as small as m, and the
quotient magnifies an error that is invisible beside the rest of m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.comparison.calls import Measured
from msprobe.comparison.judging.values import value_of

APIS = frozenset({"addcdiv", "addcdiv_", "_foreach_addcdiv", "_foreach_addcdiv_"})
_MOST = 1.0  # of |m / d|: Adam's is at most about 1


def expected_step(rows: Sequence[Measured], output: Measured) -> float:
    """Expected relative error of one output, to first order, from the errors of m and d and the smallest d; 0.0 where that is not known.

    Args:
        rows: of the call, inputs weighed.
        output: one of its outputs; of lists, the inputs at its place count.
    """
    by_key = {row.pair.target.key: row for row in rows if row.pair.target is not None and row.pair.target.role == "input"}
    ours = output.pair.target
    at = ours.key.rpartition(".")[2] if ours is not None and "input.1" not in by_key else ""
    end = f".{at}" if at else ""
    numerator, denominator = (by_key.get(f"input.{place}{end}") for place in (1, 2))
    whole = value_of(output)
    if numerator is None or denominator is None or whole is None or denominator.pair.golden is None:
        return 0.0
    above, below = value_of(numerator), value_of(denominator)
    least = denominator.pair.golden.statistics[1]
    if above is None or below is None or type(least) is not float or not 0.0 < least < math.inf or not whole.norm > 0.0:
        return 0.0
    quotient = min(_MOST, above.largest / least)
    error = abs(_factor(by_key, end)) * math.hypot(above.error * above.norm, quotient * below.error * below.norm) / least / whole.norm
    return error if math.isfinite(error) else 0.0


def _factor(by_key: dict[str, Measured], end: str) -> float:
    """`value`, by keyword or the last argument; 1 where it is not given."""
    for key in ("input.value", "input.3", f"input.3{end}"):
        row = by_key.get(key)
        value = row.pair.target.value if row is not None and row.pair.target is not None and row.pair.target.kind == "scalar" else None
        if type(value) is float or type(value) is int:
            return float(value)
    return 1.0


__all__ = ["APIS", "expected_step"]
