"""The names of arguments are those of torch's own signatures."""

from __future__ import annotations

import inspect
import re

import pytest

from msprobe.comparison.arguments import NAMES, argument_name


@pytest.mark.parametrize("base", sorted(NAMES))
def test_names_are_those_of_the_signature(base: str) -> None:
    torch = pytest.importorskip("torch")
    function = getattr(torch.nn.functional, base.removeprefix("Functional."))
    names = NAMES[base].split()
    try:
        known = list(inspect.signature(function).parameters)
    except ValueError:  # written in C++: the first line of the documentation is the signature
        found = re.search(r"\((.*?)\) ->", function.__doc__.split("\n\n")[0], re.DOTALL)
        assert found is not None
        known = [part.split("=")[0].strip() for part in found.group(1).split(",") if part.strip() != "*"]
    assert names == known[: len(names)]
    assert len(names) > 1


@pytest.mark.parametrize(
    ("base", "key", "name"),
    [
        ("Functional.batch_norm", "input.7", "eps"),
        ("Functional.layer_norm", "input.1.0", "normalized_shape.0"),
        ("Functional.dropout", "input.p", ""),
        ("Functional.dropout", "input.0", ""),
        ("Functional.dropout", "input.99", ""),
        ("Functional.dropout", "output.1", ""),
        ("Torch.unknown", "input.1", ""),
    ],
)
def test_argument_name(base: str, key: str, name: str) -> None:
    assert argument_name(base, key) == name
