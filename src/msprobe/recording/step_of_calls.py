"""One step of calls of modules and APIs: what is selected, which numbers their names have, what its end says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe.config import Config
from msprobe.recording import meta
from msprobe.recording.counters import Counters
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.recording.step import Step
from msprobe.writer import TensorPool


class StepOfCalls(Step):
    """See `Step`.

    Args:
        config, step, place, pool: see `Step`.
        selection: what is recorded.
    """

    MODULE = "module"
    """What the framework calls a module."""

    def __init__(self, config: Config, step: int, place: Place, selection: Selection, pool: TensorPool | None) -> None:
        super().__init__(config, step, place, pool)
        self.selection = selection
        self.counters = Counters()
        self.keeps_construct = config.level != "L1"
        self.settings["extra_info"] = config.extra_info

    def conclude_calls(self, began: float, late: int, facts: Callable[[], dict[str, Any]] = dict, more: Callable[[], str] = str) -> None:
        """End the step; see `Step.conclude`.

        Args:
            began, more: see there.
            late: calls of earlier steps whose backward pass came too late, not yet told.
            facts: gives what meta.json says besides the counts.
        """
        tally, level = self.tally, self.config.level
        called, apis = self.counters.totals(f"{self.MODULE.title()}.")
        self.conclude(
            began,
            lambda: meta.counts(tally, self.unrecorded.lines, called, apis),
            facts,
            modules=(len(tally.modules), tally.modules_hooked) if tally.modules_hooked else None,
            apis=(tally.apis, apis) if level != "L0" else None,
            late=late,
            more=lambda: f"{self._no_modules()}{more()}",
            warning="" if tally.calls else f": nothing was recorded between start() and step(){self._why_nothing()}",
        )

    def _no_modules(self) -> str:
        """Where APIs are all that was recorded, and modules were asked for."""
        if self.config.level != "mix" or self.tally.modules_hooked or self.tally.modules or not self.tally.calls:
            return ""
        return f"; no {self.MODULE} was recorded: {self._none_inside()}"

    def _none_inside(self) -> str:
        if self.tally.modules_skipped:
            return f"no {self.MODULE} inside of the model can be watched"
        return f"the model holds no {self.MODULE}s (a model itself is not recorded, only what is inside it)"

    def _why_nothing(self) -> str:
        if not self.selection.everything:
            return ': "list" or "scope" matched no call'
        if self.config.level == "L0" and not self.tally.modules_hooked:
            return f": {self._none_inside()}"
        if self.config.level != "L1" and self.tally.modules_hooked:
            return f": no {self.MODULE} of the model given to start() was called"
        return ""
