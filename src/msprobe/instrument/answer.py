"""What a call of `msprobe enable` or `disable` answers: the same for people and for programs. docs/enable.md is the contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PROTOCOL = 1


@dataclass(frozen=True)
class Choice:
    """One allowed answer, and what it means."""

    value: str
    text: str


@dataclass(frozen=True)
class Question:
    """Something that is not decided yet; `option` is the command line option that takes the answer."""

    id: str
    option: str
    text: str
    choices: tuple[Choice, ...] = ()
    recommended: str | None = None
    many: bool = False

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "choices": [asdict(choice) for choice in self.choices]}


@dataclass(frozen=True)
class Check:
    """Something that was looked at after writing; `name` is `compiles`, `config` or `trial`."""

    name: str
    ok: bool
    text: str


@dataclass
class Answer:
    """The whole answer; see docs/enable.md for each key."""

    command: str
    script: str
    status: str = "failed"
    message: str = ""
    questions: list[Question] = field(default_factory=list)
    environment: dict[str, Any] | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)
    candidate: str | None = None
    models: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=lambda: {"path": None, "exists": None, "action": None, "content": None})
    diff: str = ""
    notes: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    off: str = ""

    @property
    def exit_code(self) -> int:
        """0 done, or nothing to do; 1 something is left to decide, or a trial recorded nothing; 2 it could not be done."""
        if self.status in ("ready", "written", "already", "tried"):
            return 0 if all(check.ok for check in self.checks) else 1
        return 1 if self.status == "ask" else 2

    def as_json(self) -> dict[str, Any]:
        """One JSON object with all keys, in the order of the document."""
        return {
            "protocol": PROTOCOL,
            "command": self.command,
            "status": self.status,
            "message": self.message,
            "script": self.script,
            "questions": [question.as_json() for question in self.questions],
            "environment": self.environment,
            "candidates": self.candidates,
            "candidate": self.candidate,
            "models": self.models,
            "config": self.config,
            "diff": self.diff,
            "notes": self.notes,
            "written": self.written,
            "checks": [asdict(check) for check in self.checks],
            "off": self.off,
        }
