"""The relative error that rounding leaves in the output of a forward call.

Two parts, both relative to the L2 norm of the output. What the operation itself adds: one rounding to the output's dtype, and the error of
sums of K terms, which grows like sqrt(K) * u and not like K * u when roundings are independent (Higham and Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). What the inputs bring: their own relative errors,
to first order, each by the factor by which the operation amplifies it. The factor comes from the recorded norms: an output that is
smaller than its terms has the error of the terms. Elements near zero have no weight of their own in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.comparison.judging.operations import Kind
from msprobe.comparison.judging.values import Value, accumulator, combined, quotient


def expected_output(kind: Kind | None, inputs: Sequence[Value], parameters: Sequence[Value], output: Value) -> float:
    """Expected relative error of one output.

    Args:
        kind: of the operation; None gives the errors of the inputs alone.
        inputs, parameters: the floating-point tensors that went in.
        output: the output.
    """
    came = [*inputs, *parameters]
    unit = max([value.unit for value in came], default=output.unit)
    unit = max(unit, output.unit)
    step = accumulator(unit)
    error = combined([value.error for value in came])
    if kind is None or not came:
        return error  # what the operation adds is not known; thresholds.ROUNDING stands for it
    if kind is Kind.BILINEAR:
        return combined([unit, _bilinear(came, output, step)])
    if kind is Kind.ADDITIVE:
        return combined([unit, additive(came, output)])
    if kind is Kind.SOFTMAX:
        terms = output.shape[-1] if output.shape else 1
        return combined([unit, math.sqrt(terms) * step, logits(came[0]) * error])
    if kind is Kind.ATTENTION:
        return combined([unit, _attention(came, output, step)])
    if kind in (Kind.NORMALISE, Kind.CENTRE):
        terms = came[0].shape[-1] if came[0].shape else 1
        amplified = centred(came[0]) if kind is Kind.CENTRE else 1.0
        return combined([unit, amplified * (math.sqrt(terms) * step + came[0].error), combined([value.error for value in came[1:]])])
    return combined([unit, *_elementwise(kind, came, output, step, error)])


def _elementwise(kind: Kind, came: Sequence[Value], output: Value, step: float, error: float) -> list[float]:
    first = came[0]
    if kind is Kind.EXPONENTIAL:
        return [max(1.0, first.largest if first.largest == first.largest else 1.0) * error]
    if kind is Kind.LOGARITHM:
        return [quotient(math.sqrt(output.numel), output.norm) * error]
    if kind is Kind.SELECT:
        return [max(value.error * quotient(value.norm * _spread(value, output), output.norm) for value in came)]
    if kind in (Kind.SUM, Kind.MEAN):
        terms = max(1.0, first.numel / output.numel)
        norm = first.norm / terms if kind is Kind.MEAN else first.norm
        return [quotient(norm, output.norm) * (math.sqrt(terms) * step + error)]
    if kind is Kind.CLASSIFICATION:
        amplified = quotient(logits(first), output.largest)
        return [math.sqrt(first.numel) * step * amplified, amplified * error]
    if kind is Kind.SQUARED:  # (a - b)^2: the difference of two like values has their absolute errors
        distance = math.sqrt(first.numel * output.largest) if output.largest == output.largest else math.nan
        return [math.sqrt(first.numel) * step, 2 * quotient(first.norm, distance) * error]
    return [2 * error if kind is Kind.POWER else error]


def _bilinear(came: Sequence[Value], output: Value, step: float) -> float:
    if len(came) < 2:
        return came[0].error
    # addmm and baddbmm have what is added in front
    first = 1 if len(came) > 2 and came[0].shape == output.shape else 0
    left, right = came[first], came[first + 1]
    rest = [value for value in came if value is not left and value is not right]
    return combined([product_of_sums(left, right, output, step), additive(rest, output)])


def product_of_sums(a: Value, b: Value, output: Value, step: float) -> float:
    """Error of sums of K products. Of unrelated values the sum has about sqrt(K) times the size of a product; where the output is smaller
    than that, its terms cancelled."""
    terms = max(1.0, math.sqrt(a.numel * b.numel / output.numel))
    amplified = quotient(a.norm * b.norm / math.sqrt(terms), output.norm)
    return amplified * (math.sqrt(terms) * step + combined([a.error, b.error]))


def additive(came: Sequence[Value], output: Value) -> float:
    """Error of a sum of whole tensors: absolute errors add up."""
    return combined([value.error * quotient(value.norm * _spread(value, output), output.norm) for value in came]) if came else 0.0


def _spread(value: Value, output: Value) -> float:
    """By what the norm changes when elements are repeated or left out."""
    return math.sqrt(output.numel / value.numel)


def logits(value: Value) -> float:
    """By what an error relative to logits grows in their exponential: their largest magnitude."""
    return max(1.0, value.largest) if value.largest == value.largest else 1.0


def centred(value: Value) -> float:
    """By what a relative error grows when the mean is subtracted."""
    rest = value.norm**2 - value.numel * value.mean**2
    return quotient(value.norm, math.sqrt(rest)) if rest > 0 else 1.0


def _attention(came: Sequence[Value], output: Value, step: float) -> float:
    if len(came) < 3 or not all(value.shape for value in came[:3]):
        return combined([value.error for value in came])
    query, key, value = came[:3]
    width, length = query.shape[-1], max(1, key.numel // (key.shape[-1] or 1))
    logit = max(1.0, math.sqrt(width) * _rms(query) * _rms(key))
    if logit != logit:
        logit = 1.0
    amplified = quotient(_rms(value), _rms(output))
    sums = (math.sqrt(width) + math.sqrt(length)) * step
    return amplified * combined([sums * logit, value.error, logit * combined([query.error, key.error])])


def _rms(value: Value) -> float:
    return value.norm / math.sqrt(value.numel)
