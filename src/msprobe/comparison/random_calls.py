"""Calls that draw random numbers: their results differ though nothing is wrong with them.

Source: https://docs.pytorch.org/docs/stable/torch.html#random-sampling, and the signatures of torch.nn.functional.
"""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.names import EntryName
from msprobe.comparison.rows import Row

_SAMPLING = "rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial poisson binomial"
_IN_PLACE = "uniform random exponential geometric log_normal cauchy"
_DROPOUT = "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout native_dropout rrelu gumbel_softmax"
RANDOM = frozenset(f"{_SAMPLING} {_IN_PLACE} {_DROPOUT}".split())
"""APIs that draw random numbers; an underscore at the end is left out."""
RANDOM_CLASSES = frozenset(["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"])
"""Classes of modules that do nothing else."""
_PROBABILITY, _TRAINING = "dropout_p", "training"
"""Arguments: attention functions draw where the first is above 0, and nothing that has the second draws where that is False."""


def draws_random_numbers(parts: EntryName, arguments: Iterable[Row] = ()) -> bool:
    """Whether the call is known to draw random numbers.

    Args:
        parts: its name.
        arguments: its rows, of either side; without them a call that could draw is taken to do so.
    """
    if parts.direction != "forward":
        return False
    if parts.is_module:
        return parts.base.rpartition(".")[2] in RANDOM_CLASSES
    known = {_name(parts, row): row.value for row in arguments if row.role == "input"}
    if known.get(_TRAINING) is False:
        return False
    probability = known.get(_PROBABILITY)
    return parts.api.rstrip("_") in RANDOM or (type(probability) is float and probability > 0.0)


def _name(parts: EntryName, row: Row) -> str:
    return argument_name(parts.base, row.key) or row.key.rpartition(".")[2]
