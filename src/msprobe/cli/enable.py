"""Put the lines that record into a training or inference script, after showing them and a yes.

Looks at the environment and at the script, asks what to record, shows the difference, writes the script and a config.json, and can run the
script until its first step is recorded. `msprobe disable` gives the script back as it was, byte for byte.

Exit code: 0 done, or nothing to do; 1 answers are missing; 2 it could not be done; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from msprobe.cli.errors import EXIT_FAILED, EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK, fail

if TYPE_CHECKING:
    from msprobe.instrument.answer import Answer, Question
    from msprobe.instrument.plan import Options, Planner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("script", metavar="SCRIPT", help="the Python file that holds the training or inference loop")
    fields = parser.add_argument_group("what is recorded (what is not given is asked)")
    fields.add_argument("--task", metavar="T", help="statistics, tensor, nan_check, structure")
    fields.add_argument("--level", metavar="L", help="L1 (API calls), L0 (modules), mix, debug")
    fields.add_argument("--rank", metavar="R", help="all, or such as 0,1 or 4-6")
    fields.add_argument("--step", metavar="S", help="all, or such as 0,1 or 4-6")
    fields.add_argument("--dump-path", metavar="DIR", help="where the recordings go")
    fields.add_argument(
        "--config", default="./config.json", metavar="FILE", help="the configuration that is written (default ./config.json)"
    )
    fields.add_argument("--existing-config", choices=("keep", "overwrite"), help="what becomes of the configuration if it is there already")
    place = parser.add_argument_group("where")
    place.add_argument("--candidate", metavar="LINE", help="which loop, function or trainer, by the line it begins in")
    place.add_argument("--model", action="append", metavar="NAME", help="what start() is given; may be repeated; none for none (level L1)")
    place.add_argument("--no-seed", action="store_true", help="leave out seed_all()")
    place.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter that runs the script")
    place.add_argument("--environment", choices=("ignore", "skip"), help="go on although something is missing there, or do not look")
    how = parser.add_argument_group("how")
    how.add_argument("--yes", action="store_true", help="no questions: take what is recommended")
    how.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, no questions (docs/enable.md in the repository)"
    )
    how.add_argument("--write", action="store_true", help="with --json: write")
    how.add_argument("--trial", action="store_true", help="run the enabled script until its first step is recorded")
    how.add_argument("--trial-timeout", type=_seconds, default=600.0, metavar="SECONDS", help="how long the trial may take (default 600)")
    parser.usage = "%(prog)s SCRIPT [options] [-- COMMAND ...]"
    parser.epilog = "COMMAND: what the trial runs (default: the interpreter and SCRIPT)"


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """The arguments in any order, and behind `--` the command: argparse would give it the options behind SCRIPT too."""
    from msprobe.cli.asking import parse as parsed

    cut = argv.index("--") if "--" in argv else len(argv)
    arguments = parsed(parser, argv[:cut], "enable")
    arguments.command = argv[cut + 1 :]
    return arguments


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Asks, shows, writes, returns the exit code."""
    from msprobe.instrument.plan import Options

    given = {name: value for name in ("task", "level", "rank", "step", "dump_path") if (value := getattr(arguments, name)) is not None}
    options = Options(
        script=arguments.script,
        given=given,
        config=arguments.config,
        existing=arguments.existing_config,
        candidate=arguments.candidate,
        models=arguments.model,
        seed=not arguments.no_seed,
        python=arguments.python,
        environment=arguments.environment,
        yes=arguments.yes,
    )
    if arguments.json:
        return _for_program(arguments, options)
    if arguments.write:
        fail("--write belongs to --json; without it you are asked, or give --yes", "msprobe enable")
        return EXIT_FAILED
    try:
        return _for_person(arguments, options)
    except KeyboardInterrupt:
        fail("interrupted; what had not been written by then was not changed", "msprobe enable")
        return EXIT_INTERRUPTED


def _for_program(arguments: argparse.Namespace, options: Options) -> int:
    from msprobe.cli.asking import print_json
    from msprobe.errors import MsprobeException
    from msprobe.instrument.answer import Answer
    from msprobe.instrument.plan import Planner
    from msprobe.instrument.writing import write

    answer = Answer("enable", os.path.abspath(arguments.script))
    try:
        planner = Planner(arguments.script)
        answer = planner.answer(options)
        if answer.status == "ready" and arguments.write:
            write(planner, answer, arguments.python)
        if arguments.trial and answer.status in ("already", "written"):
            _try(arguments, answer, planner, lambda line: None)
        elif arguments.trial and answer.status == "ready":
            answer.notes.append("the trial runs the enabled script: write it first (--write)")
    except (MsprobeException, OSError) as error:
        answer.status, answer.message = "failed", _sentence(error)
    except KeyboardInterrupt:
        answer.status, answer.message = "failed", f"interrupted; written by then: {', '.join(answer.written) or 'nothing'}"
        print_json(answer)
        return EXIT_INTERRUPTED
    return print_json(answer)


def _for_person(arguments: argparse.Namespace, options: Options) -> int:
    from msprobe.cli.asking import agreed, ask, show_diff, show_notes
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line
    from msprobe.errors import ConfigError, UsageError
    from msprobe.instrument.plan import Planner
    from msprobe.instrument.writing import write

    planner = Planner(arguments.script)
    answer = planner.answer(options)
    _show_environment(answer)
    while answer.status == "ask":
        if options.yes:
            names = "; ".join(f"{question.option}: {question.text} {_choices(question)}" for question in answer.questions)
            fail(f"--yes does not decide this, nothing was changed: {names}", "msprobe enable")
            return EXIT_FOUND
        question = answer.questions[0]
        while True:
            undecided = _with(options, question, ask(question))
            try:
                answer = planner.answer(undecided)
            except (UsageError, ConfigError) as error:
                show([Line(f"  {_sentence(error)}", "bad")])
                continue
            options = undecided
            break
    if answer.status == "already":
        show([Line(answer.message)])
    else:
        show_diff(answer.diff)
        _show_config(answer)
        show_notes(answer.notes)
        if not options.yes and not agreed("Write this?"):
            show([Line("nothing was written"), Line(f"to write it without these questions: {_again(arguments, options)}", "dim")])
            return EXIT_OK
        write(planner, answer, options.python)
        show([*(Line(f"written: {path}", "good") for path in answer.written), *(Line(check.text) for check in answer.checks)])
    code = _offer_trial(arguments, answer, planner, options.yes)
    show([Line(f"to switch it off: {answer.off}")])
    return code


def _offer_trial(arguments: argparse.Namespace, answer: Answer, planner: Planner, yes: bool) -> int:
    from msprobe.cli.asking import agreed
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line

    if not arguments.trial:
        question = f"Run it now ({shlex.join(_command(arguments))}) until its first step is recorded, as a trial?"
        if yes or answer.status == "already" or not agreed(question, required=False):
            show([Line(f"not run; a trial later: msprobe enable {shlex.quote(arguments.script)} --trial", "dim")])
            return EXIT_OK
    _try(arguments, answer, planner, lambda line: show([Line(f"  | {line}", "dim")]))
    check = answer.checks[-1]
    show([Line(f"trial: {check.text}", "good" if check.ok else "bad")])
    return EXIT_OK if check.ok else EXIT_FOUND


def _try(arguments: argparse.Namespace, answer: Answer, planner: Planner, say: object) -> None:
    """Runs the trial; its check joins the answer, whose status becomes `tried`."""
    from msprobe.errors import ConfigError
    from msprobe.instrument import configuring, trial
    from msprobe.instrument.plan import config_of

    assert callable(say)
    path = config_of(planner.text or planner.source.text)
    try:
        dump_path = configuring.read(path)[0].dump_path if path is not None else "dump_path"
    except ConfigError:
        dump_path = "dump_path"  # what is wrong with it, the script will say
    answer.checks.append(trial.run(_command(arguments), dump_path, arguments.trial_timeout, say))
    answer.status, answer.message = "tried", answer.checks[-1].text


def _command(arguments: argparse.Namespace) -> list[str]:
    given: list[str] = arguments.command
    return given or [arguments.python, arguments.script]


def _again(arguments: argparse.Namespace, options: Options) -> str:
    """The command that gives all answers that were given so far."""
    words = ["msprobe", "enable", arguments.script]
    for name, text in options.given.items():
        words += [f"--{name.replace('_', '-')}", text]
    if options.config != "./config.json":
        words += ["--config", options.config]
    for option, value in (
        ("--existing-config", options.existing),
        ("--candidate", options.candidate),
        ("--environment", options.environment),
        *(("--model", name) for name in options.models or ()),
    ):
        words += [option, value] if value is not None else []
    words += ["--no-seed"] if not options.seed else []
    words += ["--python", options.python] if options.python != sys.executable else []
    command = ["--", *arguments.command] if arguments.command else []
    return shlex.join([*words, "--yes", *(["--trial"] if arguments.trial else []), *command])


def _with(options: Options, question: Question, text: str) -> Options:
    from dataclasses import replace

    if question.id in ("task", "level", "rank", "step", "dump_path"):
        return replace(options, given={**options.given, question.id: text})
    if question.id == "models":
        return replace(options, models=[text])
    if question.id == "candidate":
        return replace(options, candidate=text)
    if question.id == "environment":
        return replace(options, environment=text)
    return replace(options, existing=text)


def _show_environment(answer: Answer) -> None:
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line

    found = answer.environment
    if found is not None:
        parts = [f"Python {found['python_version']}", f"torch {found['torch']}", f"msprobe {found['msprobe']}"]
        show([Line(f"{found['python']}: {', '.join(parts)}", "dim")])
    if answer.candidate is not None:
        one = next(one for one in answer.candidates if one["id"] == answer.candidate)
        show([Line(f"to be recorded: line {one['line']}, {one['purpose']}, one step is one {one['step']}: {one['code']}")])


def _show_config(answer: Answer) -> None:
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line
    from msprobe.instrument.configuring import text_of

    if answer.config["action"] != "keep":
        show([Line(""), Line(str(answer.config["path"]), "head"), *(Line(line) for line in text_of(answer.config["content"]).splitlines())])


def _choices(question: Question) -> str:
    return f"({'; '.join(f'{choice.value}: {choice.text}' for choice in question.choices)})" if question.choices else ""


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return " ".join(str(error).split())
