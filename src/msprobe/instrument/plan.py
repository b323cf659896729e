"""From what was given on the command line to an answer: what is still to be asked, or what would be written."""

from __future__ import annotations

import ast
import difflib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.errors import ConfigError, UsageError
from msprobe.instrument import configuring, fields, source
from msprobe.instrument.answer import Answer, Choice, Question
from msprobe.instrument.candidates import Candidate
from msprobe.instrument.environment import Environment, look
from msprobe.instrument.script import Script, is_enabled


@dataclass
class Options:
    """What was given so far; None: not given."""

    script: str
    given: dict[str, str] = field(default_factory=dict)
    """Field -> the text of its option."""
    config: str = os.path.join(".", "config.json")
    existing: str | None = None
    candidate: str | None = None
    models: list[str] | None = None
    seed: bool = True
    python: str = sys.executable
    environment: str | None = None
    yes: bool = False


class Planner:
    """Everything about one script that need not be found out again for each answer. Raises UsageError."""

    def __init__(self, path: str) -> None:
        self.source = source.read(path)
        self.enabled = is_enabled(self.source.text)
        self.script = None if self.enabled else Script(self.source)
        self.text: str | None = None
        """The script's new text, once everything is answered."""
        self._environments: dict[tuple[str, bool, str | None], Environment] = {}

    def answer(self, options: Options) -> Answer:
        """What is missing, or what would be done. Raises UsageError, ConfigError: something that was given cannot be."""
        self.text = None
        answer = Answer("enable", str(self.source.path), off=f"msprobe disable {shlex.quote(self.source.shown)}")
        answer.config["path"] = os.path.abspath(options.config)
        answer.config["exists"] = os.path.lexists(options.config)
        if self.script is None:
            answer.status = "already"
            named = config_of(self.source.text)
            answer.config["path"] = None if named is None else os.path.abspath(named)
            answer.config["exists"] = None if named is None else os.path.lexists(named)
            config = named or "its configuration"
            answer.message = (
                f"{self.source.shown} is enabled already: change {config} for what is recorded; for other lines, {answer.off} first"
            )
            return answer
        if not self.script.candidates:
            raise UsageError(self.script.nothing_found())
        source.check_writable(self.source)
        configuring.check_place(options.config, self.source.path)
        known = {name: fields.read(name, text) for name, text in options.given.items()}
        fields.check_pair(known)
        candidate = self._candidate(options, answer)
        self._look_around(options, answer, known, candidate)
        models = self._models(options, answer, candidate)
        self._configure(options, answer, known)
        level = (answer.config["content"] or {}).get("level") or "L1" if answer.config["action"] else known.get("level")
        if candidate is not None and models is None and not any(question.id == "models" for question in answer.questions):
            models = self._without_models(options, answer, level)
        if models is not None:
            answer.models = models
            self._check_level(candidate, models, level)
        answer.questions.sort(key=lambda question: _ORDER.index(question.id))
        self._tell(answer, candidate)
        if answer.questions:
            answer.status = "ask"
            answer.message = f"{len(answer.questions)} to answer: {', '.join(question.id for question in answer.questions)}"
            return answer
        assert candidate is not None and models is not None  # else there would be a question
        self.text = self.script.enabled(candidate, models, _in_script(options.config), options.seed)
        answer.diff = difference(self.source.text, self.text, self.source.shown)
        answer.status = "ready"
        answer.message = f"{self.source.shown} and {options.config} can be written"
        return answer

    def _candidate(self, options: Options, answer: Answer) -> Candidate | None:
        assert self.script is not None
        found = self.script.candidates
        answer.candidates = [one.as_json() for one in found]
        chosen: Candidate | None = None
        if options.candidate is not None:
            chosen = next((one for one in found if one.id == options.candidate.strip()), None)
            if chosen is None:
                there = "; ".join(f"{one.id}: {one.code}" for one in found)
                raise UsageError(
                    f"--candidate {options.candidate}: nothing to record begins in that line of {self.source.shown}; there is {there}"
                )
        elif len(found) == 1:
            chosen = found[0]
        elif options.yes:
            chosen = next((one for one in found if one.recommended), None)
            if chosen is not None:
                answer.notes.append(f"of {len(found)} places that can be recorded, the one in line {chosen.id} was taken: {chosen.code}")
        if chosen is None:
            default = next((one.id for one in found if one.recommended), None)
            choices = tuple(Choice(one.id, _described(one)) for one in found)
            answer.questions.append(Question("candidate", "--candidate", "Which place is to be recorded?", choices, default))
            return None
        self.script.check_name(chosen)
        answer.candidate = chosen.id
        answer.notes += chosen.notes
        if chosen.kind == "transformers" or chosen.kind == "lightning":
            name = "transformers" if chosen.kind == "transformers" else "Lightning"
            answer.notes.append(f"the trainer gets a callback of msprobe.integrations; one step is one optimizer step of {name}'s Trainer")
        return chosen

    def _look_around(self, options: Options, answer: Answer, known: dict[str, Any], candidate: Candidate | None) -> None:
        if options.environment == "skip":
            return
        integration = candidate.kind if candidate is not None and candidate.trainer is not None else None
        key = (options.python, fields.needs_npu(known), integration)
        found = self._environments.get(key)
        if found is None:
            found = self._environments[key] = look(options.python, npu=key[1], integration=integration)
        answer.environment = found.as_json()
        if found.problems and options.environment != "ignore":
            text = "The script could not record there: " + "; ".join(found.problems) + ". Go on all the same?"
            choices = (Choice("ignore", "go on: it will run elsewhere, or this is put right before"),)
            answer.questions.append(Question("environment", "--environment", text, choices))

    def _models(self, options: Options, answer: Answer, candidate: Candidate | None) -> list[str] | None:
        """What start() is given; None where that is not known yet."""
        assert self.script is not None
        if options.models is not None:
            names = [name.strip() for text in options.models for name in _parts(text) if name.strip()]
            if not names or (len(names) > 1 and "none" in names):
                raise UsageError(f"--model {', '.join(options.models)!r}: an expression such as model or self.net, or none alone")
            names = [] if names == ["none"] else names
            for name in names:
                _check_expression(name)
            if candidate is not None and candidate.trainer is not None and names:
                raise UsageError("--model: the callback of a trainer takes the trainer's own model; leave it out")
            missing = self.script.unbound(candidate, names) if candidate is not None else []
            if missing:
                raise UsageError(f"--model {missing[0]}: it has no value yet where recording would start in line {answer.candidate}")
            return names
        if candidate is None:
            return None
        if candidate.trainer is not None:
            return []
        unbound = self.script.unbound(candidate, candidate.models)
        names = [name for name in candidate.models if name not in unbound]
        answer.notes += [f"{name} has no value where recording starts, so it is not given to start()" for name in unbound]
        if len(names) > 1 and not options.yes:
            text = (
                "Several models are called there. Which are recorded? All may be named, with commas between them or --model once for each."
            )
            choices = tuple(Choice(name, _WHY_MODEL[self.script.roles.models.get(name, "called")]) for name in names)
            answer.questions.append(Question("models", "--model", text, choices, ",".join(names), many=True))
            return None
        if len(names) > 1:
            answer.notes.append(f"several models are called there, all are recorded: {', '.join(names)}")
        return names or None

    def _without_models(self, options: Options, answer: Answer, level: str | None) -> list[str] | None:
        if level in ("L1", "debug") and options.yes:
            answer.notes.append("no model was found in the script, so start() gets none: enough for API calls (level L1)")
            return []
        if level is None:
            return None  # asked once it is known whether one is needed
        text = "Which model is called there? None was found; an expression such as model or self.net. none: no model, level L1 alone."
        answer.questions.append(Question("models", "--model", text, (), "none" if level in ("L1", "debug") else None, many=True))
        return None

    def _check_level(self, candidate: Candidate | None, models: list[str], level: str | None) -> None:
        if level in ("L0", "mix") and not models and candidate is not None and candidate.trainer is None:
            raise UsageError(f"level {level} records modules and needs the model: name it with --model, or use level L1")

    def _configure(self, options: Options, answer: Answer, known: dict[str, Any]) -> None:
        """Fills `config` of the answer, or asks for what it needs."""
        path = options.config
        exists = answer.config["exists"]
        if options.existing == "keep":
            if not exists:
                raise UsageError(f"--existing-config keep: there is no {path}")
            if known:
                raise UsageError(
                    f"--existing-config keep takes {path} as it is: leave {fields.OPTIONS[next(iter(known))]} out, or use overwrite"
                )
            config, told = configuring.read(path)
            answer.config["action"] = "keep"
            answer.config["content"] = configuring.raw(path)
            answer.notes += told
            answer.notes.append(f"{path} stays as it is: task {config.task}, level {config.level}, dump_path {config.dump_path}")
            return
        missing = [name for name in fields.FIELDS if name not in known]
        if options.yes:
            for name in missing:
                known[name] = fields.read(name, fields.question(name, known).recommended or "")
            missing = []
        content = None if missing else fields.content(known)
        if exists and options.existing != "overwrite":
            if content is not None and configuring.raw(path) == content:
                answer.config.update(action="keep", content=content)
                return
            answer.questions.append(_about_existing(path))
            return
        for name in missing:
            if name == "level" and "task" in missing:
                continue  # which levels there are depends on the task
            answer.questions.append(fields.question(name, known))
        if content is not None:
            answer.notes += configuring.check(content, path)
            answer.config.update(action="overwrite" if exists else "write", content=content)

    def _tell(self, answer: Answer, candidate: Candidate | None) -> None:
        assert self.script is not None
        line = self.script.compiles()
        if line is not None:
            answer.notes.append(
                f"torch.compile (line {line}): compiled code runs eagerly between start and stop, and is recorded; elsewhere not"
            )
        if candidate is not None and candidate.step == "optimizer step" and candidate.trainer is None:
            answer.notes.append(
                "gradients are accumulated here: one step of the recording is one step of the optimizer, with all iterations that led to it"
            )


_WHY_MODEL = {
    "assigned": "the script gives this name a model",
    "parameters": "its parameters() go to an optimizer",
    "switched": "the script calls its train() or eval()",
    "argument": "a function of the script takes it as an argument, and calls it as a model",
    "deepspeed": "DeepSpeed's engine",
    "called": "called in what is recorded",
}
"""How the script shows that a name is a model's."""

_ORDER = ("environment", "candidate", "models", "existing_config", *fields.FIELDS)


def _about_existing(path: str) -> Question:
    try:
        config, _ = configuring.read(path)
        what = f"it is a configuration of msprobe: task {config.task}, level {config.level}, dump_path {config.dump_path}"
        choices: tuple[Choice, ...] = (Choice("keep", "use it as it is"), Choice("overwrite", "replace it by a new one"))
    except ConfigError:
        what = "it is no valid configuration of msprobe, perhaps it belongs to something else; another name can be given with --config"
        choices = (Choice("overwrite", "replace it"),)
    return Question("existing_config", "--existing-config", f"{path} is there already ({what}). What becomes of it?", choices)


def difference(old: str, new: str, shown: str) -> str:
    """A unified diff; line ends are left out of it."""
    before, after = ([line.rstrip("\r\n") for line in source.split_lines(text)] for text in (old, new))
    return "\n".join(difflib.unified_diff(before, after, shown, shown, lineterm=""))


def _described(one: Candidate) -> str:
    where = f" in {one.function}()" if one.function else ""
    models = f"; models: {', '.join(one.models)}" if one.models else ""
    return f"{one.purpose}, {one.kind}{where}: {one.code}{models}"


def _in_script(config: str) -> str:
    """The path as the script names it: short where the script is run from here, absolute where the file is elsewhere."""
    path = os.path.abspath(config)
    return f"./{os.path.basename(path)}" if os.path.dirname(path) == os.getcwd() else path


def _parts(text: str) -> Sequence[str]:
    """`netG,netD` as two; commas inside brackets part nothing."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _check_expression(name: str) -> None:
    try:
        ast.parse(name, mode="eval")
    except (SyntaxError, ValueError):
        raise UsageError(f"--model {name!r} is no expression: a name such as model or self.net") from None


def config_of(text: str) -> str | None:
    """The configuration that an enabled script names, as it names it."""
    for line in source.split_lines(text):
        head, found, rest = line.partition("(config_path=")
        if found and "+msprobe" in rest and "=" in head:
            try:
                return str(ast.literal_eval(rest.partition(")  #")[0]))
            except (SyntaxError, ValueError):
                return None
    return None


__all__ = ["Options", "Planner", "config_of", "difference"]
