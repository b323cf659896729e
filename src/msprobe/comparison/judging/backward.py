"""The relative error that rounding leaves in a gradient; the same two parts as for outputs, see expected.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.comparison.judging.expected import logits, product_of_sums
from msprobe.comparison.judging.operations import Kind
from msprobe.comparison.judging.values import Value, accumulator, combined, quotient


def expected_gradient(
    kind: Kind | None, gradients: Sequence[Value], came: Sequence[Value], results: Sequence[Value], output: Value
) -> float:
    """Expected relative error of the gradient of one input or parameter.

    Args:
        kind: of the operation.
        gradients: what came into the backward call.
        came: inputs and parameters of its forward call, `results`: its outputs. Empty where they were not recorded.
        output: the gradient that went out.
    """
    values = [*gradients, *came, *results]
    unit = max([output.unit, *(value.unit for value in values)])
    step = accumulator(unit)
    error = combined([value.error for value in values])
    if kind is None or not gradients:
        return error
    gradient = gradients[0]
    if kind is Kind.KINKED:
        return combined([unit, error, passed_or_not(came[0].error if came else unit)])
    terms = math.sqrt(max(1.0, gradient.numel / output.numel)) * step
    return combined([unit, _amplified(kind, gradient, came, results, output, step) * (error + terms)])


def passed_or_not(error: float) -> float:
    """Relative error of a gradient behind relu and the like whose argument has that relative error.

    An argument nearer to zero than its error may have the other sign, and the gradient of that element is there in one run only. Of
    normally distributed arguments with standard deviation s, errors of standard deviation e * s change the sign of e/pi of them; each
    contributes its whole square, and half of all elements pass: sqrt(2 e / pi).
    """
    return math.sqrt(2.0 * error / math.pi)


def _amplified(kind: Kind | None, gradient: Value, came: Sequence[Value], results: Sequence[Value], output: Value, step: float) -> float:
    if kind is Kind.BILINEAR:
        return _bilinear(gradient, came, output, step)
    if kind is Kind.SOFTMAX or kind is Kind.CLASSIFICATION:
        # dx = y * (g - sum(g * y)): near a one-hot y, all of it cancels
        gain = results[0].largest if results and kind is Kind.SOFTMAX else math.nan
        return max(quotient(gradient.norm * gain, output.norm), logits(came[0]) if came else 1.0)
    if kind in (Kind.NORMALISE, Kind.CENTRE) and came:
        # the part of the gradient along x, and its mean, are subtracted
        gain = results[0].norm / came[0].norm if results and came[0].norm > 0 else 1.0
        weight = max((value.largest for value in came[1:]), default=1.0)
        if output.numel < gradient.numel:  # of the weight: a sum over all rows
            gain = results[0].largest if results else 1.0
            weight = 1.0
        return quotient(gradient.norm * gain * max(1.0, weight), output.norm)
    if kind is Kind.PRODUCT:
        gain = max((value.largest for value in came), default=1.0)
        return quotient(gradient.norm * gain, output.norm) if output.numel < gradient.numel else 1.0
    if kind in (Kind.ADDITIVE, Kind.SELECT, Kind.SUM):
        return quotient(gradient.norm, output.norm)
    return 1.0


def _bilinear(gradient: Value, came: Sequence[Value], output: Value, step: float) -> float:
    others = [value for value in came if value.shape != output.shape and value.numel > 1] or list(came)
    if len(output.shape) == 1 or not others:  # of a bias: a sum over all rows
        return quotient(gradient.norm, output.norm)
    worst = 1.0
    for other in others[:2]:
        plain = other._replace(error=0.0)
        alone = gradient._replace(error=0.0)
        terms = max(1.0, math.sqrt(gradient.numel * other.numel / output.numel))
        worst = max(worst, product_of_sums(alone, plain, output, step) / (math.sqrt(terms) * step))
    return worst
