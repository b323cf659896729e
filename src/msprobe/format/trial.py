"""How a process knows that it is a trial of `msprobe enable`: it records every step, to a place that is thrown away."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

VARIABLE = "MSPROBE_TRIAL"
"""Environment variable: the directory that the dump goes to, absolute."""

ENDED = "the script has come to its end"
"""What a process of a trial logs when its interpreter ends: msprobe enable lets it end by itself."""

_DONE = re.compile(r"\b(?:dump|debug)\.json is at (.+)")


def recorded(line: str) -> str | None:
    """Where a step is, if this is the line of the log that ends it."""
    found = _DONE.search(line)
    return found[1].strip() if found else None


def limited(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The debugger's arguments, in a trial with its directory and all steps in the place of those given."""
    directory = os.environ.get(VARIABLE)
    return dict(arguments) if not directory else {**arguments, "dump_path": directory, "step": []}
