"""Which functions are watched, and what their calls are named: support_wrap_ops.yaml against the MindSpore that is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import mindspore
import yaml

from msprobe.contain import let_through
from msprobe.mindspore import msadapter

PREFIXES = {
    "ops": "Functional",
    "mint": "Mint",
    "mint.nn.functional": "MintFunctional",
    "Tensor": "Tensor",
    "mint.distributed": "MintDistributed",
    "communication.comm_func": "Distributed",
}
"""Namespace in the file -> first part of the entries' names."""


@cache
def names() -> dict[str, list[str]]:
    """Namespace -> names of functions, as the file lists them."""
    with open(os.path.join(os.path.dirname(__file__), "support_wrap_ops.yaml"), encoding="utf-8") as file:
        return dict(yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def watched() -> Iterator[tuple[Any, str, str, Any]]:
    """Owner, attribute, `Functional.relu` and function, for everything in the file that this MindSpore has."""
    for namespace, listed in names().items():
        root = _namespace(namespace)
        for name in listed if root is not None else ():
            owner, attribute = root, name
            while "." in attribute and owner is not None:
                first, attribute = attribute.split(".", 1)
                owner = getattr(owner, first, None)
            function = getattr(owner, attribute, None) if owner is not None else None
            if callable(function):
                yield owner, attribute, f"{PREFIXES[namespace]}.{name}", function
    yield from msadapter.watched(names())


def _namespace(name: str) -> Any:
    if name == "Tensor":
        return mindspore.Tensor
    try:
        return import_module(f"mindspore.{name}")
    except Exception as error:  # a release without it
        let_through(error)
        return None
