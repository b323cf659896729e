"""The arguments of `msprobe compare` that say which call belongs to which."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    group = parser.add_argument_group("what belongs together")
    group.add_argument(
        "-dm", "--data_mapping", type=Path, metavar="YAML", help="pairs of row names, `target row: golden row`, for rows named differently"
    )
    group.add_argument(
        "--mapping", type=Path, metavar="YAML", help="modules, classes, calls and tensors of two models that are not built alike"
    )
    group.add_argument("-fm", "--fuzzy_match", action="store_true", help="pair calls that are left over by their API and order alone")
    group.add_argument(
        "-cm",
        "--cell_mapping",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="YAML",
        help="modules with other names, `path.Class: path.Class`; without a file, as always: by path, whatever the class",
    )
    group.add_argument("-am", "--api_mapping", type=Path, metavar="YAML", help="APIs with other names, `Tensor.__add__: Torch.add`")
    group.add_argument(
        "-lm", "--layer_mapping", type=Path, metavar="YAML", help="attributes with other names, `Class: {attribute: golden.path}`, TopLayer"
    )


def options_of(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """The fields of Options that they fill. Raises UsageError for a wrong file."""
    given = (arguments.data_mapping, arguments.mapping, arguments.cell_mapping, arguments.api_mapping, arguments.layer_mapping)
    if not any(path is not None for path in given):
        return {"fuzzy": arguments.fuzzy_match}
    from msprobe.comparison.mapping.files import read_layers, read_mapping, read_names
    from msprobe.comparison.mapping.names import NO_NAMES, Names
    from msprobe.comparison.mapping.rules import NO_RULES

    names, tensors = read_mapping(arguments.mapping) if arguments.mapping is not None else (NO_NAMES, NO_RULES)
    rows = arguments.data_mapping
    calls = dict(names.calls)
    if arguments.api_mapping is not None:
        calls |= read_names(arguments.api_mapping, "API mapping", "Tensor.__add__: Torch.add")
    cells = arguments.cell_mapping if arguments.cell_mapping != Path() else None
    return {
        "data_mapping": read_names(rows, "mapping file", "target row: golden row") if rows is not None else None,
        "fuzzy": arguments.fuzzy_match,
        "names": Names(
            names.modules,
            names.classes,
            calls,
            read_names(cells, "cell mapping", "fc1.MyLinear: fc2.Linear") if cells is not None else {},
            read_layers(arguments.layer_mapping) if arguments.layer_mapping is not None else {},
        ),
        "tensors": tensors,
    }
