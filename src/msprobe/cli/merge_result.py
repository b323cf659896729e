"""Put the results of several ranks side by side: one sheet for each measured column, one column for each rank.

Reads compare_result_rank*.csv (or .xlsx) in a directory, or in every step* of it. Writes multi_ranks_compare_merge_{time}.xlsx and one
CSV for each sheet. A configuration may name the calls and the columns; without it all are taken:

    api:
    - Distributed.all_reduce
    compare_index:
    - Max diff

Exit code: 0 written, 2 could not be done.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("-i", "--input_dir", required=True, type=Path, metavar="DIR", help="results of msprobe compare")
    parser.add_argument("-o", "--output_dir", default=Path("./output"), type=Path, metavar="DIR", help="where it goes (default ./output)")
    parser.add_argument(
        "-config", "--config-path", type=Path, metavar="YAML", help="which calls (api) and columns (compare_index); all without it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Merges, prints, returns the exit code."""
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line
    from msprobe.comparison.merge import merge_result
    from msprobe.comparison.merge_config import MergeConfig, read_config

    config = read_config(arguments.config_path) if arguments.config_path is not None else MergeConfig()
    for merged, paths in merge_result(arguments.input_dir, arguments.output_dir, config):
        show([Line(f"ranks {', '.join(map(str, merged.ranks))}: {len(merged.names)} rows, {len(merged.tables)} columns")])
        show(Line(f"note: {note}", "dim") for note in merged.notes)
        show([Line(f"result: {paths[0]}"), Line(f"  and {len(paths) - 1} CSV beside it")])
    return EXIT_OK
