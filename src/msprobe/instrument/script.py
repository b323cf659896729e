"""A script read and understood: what could be recorded in it, and the text with the lines in it."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.errors import UsageError
from msprobe.instrument import marks
from msprobe.instrument.candidates import Candidate, candidates
from msprobe.instrument.edits import apply
from msprobe.instrument.header import header, names_for
from msprobe.instrument.places import Placing
from msprobe.instrument.roles import Roles
from msprobe.instrument.sites import Calls
from msprobe.instrument.source import Source, check_syntax
from msprobe.instrument.trainers import elsewhere, unsupported
from msprobe.instrument.tree import Tree
from msprobe.instrument.undo import undo


class Script:
    """One reading of one file.

    Raises UsageError where the file uses the debugger already, by hand.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tree = Tree(source.text, source.shown)
        self.roles = Roles(self.tree)
        self._calls = Calls(self.tree, self.roles)
        self._names = names_for(self.tree)
        by_hand = [name for name, full in self.roles.imports.items() if full.startswith("msprobe.pytorch")]
        if by_hand:
            line = next((n for n, text in enumerate(self.tree.lines, 1) if "msprobe.pytorch" in text), 1)
            raise UsageError(
                f"{source.shown} uses msprobe already, by hand (line {line}: {self.tree.lines[line - 1].strip()}): nothing was changed; "
                "take those lines out first, or go on with them"
            )
        reason = unsupported(self.roles)
        if reason is not None:
            raise UsageError(f"{source.shown}: {reason}; nothing was changed")
        self.candidates = candidates(self.tree, self.roles, self._calls)

    def compiles(self) -> int | None:
        """The line of the first `torch.compile` in the script."""
        return next((n for n, text in enumerate(self.tree.lines, 1) if "torch.compile" in text.partition("#")[0]), None)

    def nothing_found(self) -> str:
        """Why there is no candidate, and what to do."""
        reason = elsewhere(self.roles)
        if reason is None:
            reason = (
                "no loop, function or statement that calls a model was found: run msprobe enable on the file that holds the training or "
                "inference loop, or put the lines in by hand (debugger.start(model) before the forward pass; debugger.stop() and "
                "debugger.step() after it)"
            )
        return f"{self.source.shown}: {reason}"

    def unbound(self, candidate: Candidate, models: Sequence[str]) -> list[str]:
        """Those of the models that have no value yet where recording would start."""
        return Placing(self.tree, self._calls, candidate, self._names).unbound(models)

    def check_name(self, candidate: Candidate) -> None:
        """Raises UsageError where the candidate is a trainer without a name: no line can be put behind it."""
        if candidate.trainer is not None and candidate.trainer.name is None:
            raise UsageError(f"{self.source.shown}, line {candidate.line}: {candidate.trainer.notes[0]}; nothing was changed")

    def enabled(self, candidate: Candidate, models: Sequence[str], config_path: str, seed: bool = True) -> str:
        """The text with the lines in it, checked: it is Python, and taking the lines out again gives the text as it is.

        Raises UsageError where no lines can be put in.
        """
        self.check_name(candidate)
        integration = None if candidate.trainer is None else candidate.trainer.kind
        edits = Placing(self.tree, self._calls, candidate, self._names).edits(models)
        encoding = self.source.encoding
        head = header(self.tree, self.roles, self._names, config_path, seed=seed, integration=integration, encoding=encoding)
        text = apply(self.source.text, [head, *edits])
        check_syntax(text, f"{self.source.shown} with the lines in it")
        if undo(text).text != self.source.text:
            raise UsageError(f"{self.source.shown}: lines put in here could not be taken out again; put them in by hand")
        return text


def is_enabled(text: str) -> bool:
    """Whether lines of ours are in a script."""
    if marks.ANY not in text:
        return False
    found = undo(text)
    return bool(found.taken or found.edited)
