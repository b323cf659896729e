"""Sizes of differences in words, the same wherever they are shown."""

from __future__ import annotations

from msprobe.comparison.measure import Agreement, Measure


def explained(measure: Measure) -> str:
    """`within what rounding explains (3.1e-07 of 1.2e-06 expected)`, or how much more it is; "" where no allowance was computed."""
    if measure.expected <= 0.0:
        return ""
    if measure.agreement is Agreement.DIFFERENT:
        return f"more than rounding explains ({measure.size:.2g}, {measure.expected:.2g} expected)"
    return f"within what rounding explains ({measure.size:.2g} of {measure.expected:.2g} expected)"
