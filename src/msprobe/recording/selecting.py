"""From the configuration to the selection of one step."""

from __future__ import annotations

from msprobe.config import Config
from msprobe.recording.selection import Selection
from msprobe.recording.unmatched import NamesSeen


def make_selection(config: Config, seen: NamesSeen | None = None) -> Selection:
    """What the fields `list`, `scope`, `tensor_list`, `risk_level` and `data_mode` select.

    Args:
        config: the configuration.
        seen: what came by in earlier steps; a name that matched once is not reported later, and none is reported twice.
    """
    section = config.section
    return Selection(
        names=tuple(section.list),
        scope=tuple(section.scope),
        tensor_names=tuple(section.tensor_list),
        risk_level=config.risk_level,
        sides=section.data_mode,
        expand_modules=config.level == "mix",
        ignore_case=config.task == "nan_check",
        level=config.level,
        seen=seen,
    )
