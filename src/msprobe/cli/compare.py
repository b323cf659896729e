"""Compare two dumps, value by value, and name the first call that differs.

The paths are two dump.json, two directories of one process (rank0, proc123), two step directories, or two dump roots. One CSV is
written for each pair; the first difference is printed with the line of code it comes from.

Exit code: 0 nothing differs, 1 something does (a row `error` or `unmatched`), 2 the comparison could not be made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli import pairing
from msprobe.cli.errors import EXIT_FAILED, EXIT_OK, fail
from msprobe.errors import UsageError

# Options of the existing tool that are not built yet: (flags, destination, takes a value)
_NOT_YET: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("-tensor_log", "--is_print_compare_log"), "tensor_log", False),
    (("--consistent_check",), "consistent_check", False),
    (("--backend",), "backend", True),
    (("--config",), "config", True),
)

_NOT_OF_RUNS = (
    ("-tp", "target_path"),
    ("-gp", "golden_path"),
    ("-dm", "data_mapping"),
    ("--mapping", "mapping"),
    ("-fm", "fuzzy_match"),
    ("-cm", "cell_mapping"),
    ("-am", "api_mapping"),
    ("-lm", "layer_mapping"),
    ("-da", "diff_analyze"),
    ("--reference", "reference"),
    ("--accept-dtype", "accept_dtype"),
    ("--html", "html"),
    ("--xlsx", "xlsx"),
    ("--jsonl", "jsonl"),
    ("--jobs", "jobs"),
    ("--cluster", "cluster"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("-tp", "--target_path", type=Path, metavar="PATH", help="dump under test")
    parser.add_argument("-gp", "--golden_path", type=Path, metavar="PATH", help="dump it is measured against")
    parser.add_argument(
        "--runs", nargs="+", type=Path, metavar="PATH", help="instead of the two: recordings of one script that should be identical"
    )
    parser.add_argument(
        "-o", "--output_path", default=Path("./output"), type=Path, metavar="DIR", help="where the results go (default ./output)"
    )
    pairing.add_arguments(parser)
    parser.add_argument("--html", action="store_true", help="one HTML page for all of it, too: tree, values, pictures, code; opens offline")
    parser.add_argument("--xlsx", action="store_true", help="a workbook beside each CSV: the same columns, with colours and a summary")
    parser.add_argument("--jsonl", action="store_true", help="the rows as JSON lines beside each CSV, for programs")
    parser.add_argument("--step", metavar="NUMBERS", help="of dump roots, only these steps, as in 0,2-3")
    parser.add_argument("--rank", metavar="NUMBERS", help="only these ranks, as in 0,2-3")
    parser.add_argument(
        "--accept-dtype",
        action="store_true",
        help="another floating-point dtype on one side (bf16 against fp32) is no error by itself: values are judged by their size",
    )
    parser.add_argument(
        "-da", "--diff_analyze", action="store_true", help="write the search over the ranks as JSON (compare_result_rank*, diff_analyze_*)"
    )
    parser.add_argument(
        "--reference", metavar="PATH", help="dump of a run in higher precision, which stands for the truth: says which side is closer to it"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="compare so many pairs of dumps at a time (default: one per core where there is enough to do)"
    )
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="compare on the workers of this Dask scheduler, as in tcp://host:8786 (msprobe[cluster])"
    )
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 when differences are found, too")
    parser.add_argument("-m", "--mode", default="auto", metavar="MODE", help="auto (the only one so far)")
    later = parser.add_argument_group("not available yet")
    for flags, name, takes_value in _NOT_YET:
        if not takes_value:
            later.add_argument(*flags, dest=name, action="store_true", default=None, help=argparse.SUPPRESS)
        else:
            later.add_argument(*flags, dest=name, nargs="*", default=None, help=argparse.SUPPRESS)
    later.description = ", ".join("/".join(flags) for flags, _, _ in _NOT_YET)


def run(arguments: argparse.Namespace) -> int:
    """Compares, prints, returns the exit code."""
    given = ["/".join(flags) for flags, name, _ in _NOT_YET if getattr(arguments, name) is not None]
    if arguments.mode != "auto":
        given.append(f"-m {arguments.mode}")
    if given:
        fail(f"not available yet: {', '.join(given)}", "msprobe compare")
        return EXIT_FAILED
    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs is {arguments.jobs}; give the number of processes, 1 or more")
    if arguments.output_path.exists() and not arguments.output_path.is_dir():  # told before the work, not after it
        raise UsageError(f"-o {arguments.output_path} is a file; give a directory, which is made if need be")
    if arguments.runs is not None:
        return _compare_runs(arguments)
    needed = (("-tp/--target_path", arguments.target_path), ("-gp/--golden_path", arguments.golden_path))
    missing = [flags for flags, path in needed if path is None]
    if missing:
        raise UsageError(f"required: {', '.join(missing)} (or, in place of both, several recordings of one script behind --runs)")
    from msprobe.cli.console import progress_bar, show
    from msprobe.comparison.compare import compare
    from msprobe.comparison.describe import describe, problems
    from msprobe.comparison.number_lists import parse_numbers
    from msprobe.comparison.options import Options

    reports = frozenset(kind for kind in ("html", "xlsx", "jsonl") if getattr(arguments, kind))
    options = Options(
        **pairing.options_of(arguments),
        steps=parse_numbers(arguments.step, "--step") if arguments.step is not None else None,
        ranks=parse_numbers(arguments.rank, "--rank") if arguments.rank is not None else None,
        reference=arguments.reference,
        accept_dtype=arguments.accept_dtype,
        diff_analyze=arguments.diff_analyze,
        reports=reports,
        jobs=arguments.jobs,
        cluster=arguments.cluster,
    )
    with progress_bar() as progress:
        outcome = compare(
            arguments.target_path, arguments.golden_path, arguments.output_path, options, progress, last=getattr(arguments, "ends", False)
        )
    show(describe(outcome))
    for problem in problems(outcome):
        fail(problem, "msprobe compare")
    code = outcome.exit_code
    return EXIT_OK if arguments.exit_zero and code != EXIT_FAILED else code


def _compare_runs(arguments: argparse.Namespace) -> int:
    from msprobe.cli.console import show
    from msprobe.comparison.number_lists import parse_numbers
    from msprobe.comparison.remote import is_url
    from msprobe.comparison.repeated import words
    from msprobe.comparison.repeated.runs import compare_runs

    given = [flag for flag, name in _NOT_OF_RUNS if getattr(arguments, name) not in (None, False)]
    if given:
        mapped = not {"--mapping", "-dm", "-cm", "-am", "-lm", "-fm"}.isdisjoint(given)
        why = ": runs of one script have one structure; two that are built differently are compared with -tp and -gp" if mapped else ""
        raise UsageError(f"--runs takes all recordings itself and does not go with {', '.join(given)}{why}")
    away = next((path for path in arguments.runs if is_url(path)), None)
    if away is not None:
        raise UsageError(f"--runs reads local paths only, and {away} is a URL: copy the dump to a directory of this machine first")
    steps = parse_numbers(arguments.step, "--step") if arguments.step is not None else None
    ranks = parse_numbers(arguments.rank, "--rank") if arguments.rank is not None else None
    runs = compare_runs(arguments.runs, steps, ranks)
    show(words.describe(runs, words.write(runs, arguments.output_path)))
    for problem in runs.problems:
        fail(problem, "msprobe compare")
    code = runs.exit_code
    return EXIT_OK if arguments.exit_zero and code != EXIT_FAILED else code
