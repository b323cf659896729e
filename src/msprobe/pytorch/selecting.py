"""From the configuration to the selection of one step."""

from __future__ import annotations

from msprobe.config import Config
from msprobe.recording.selection import Selection


def make_selection(config: Config) -> Selection:
    """What the fields `list`, `scope`, `tensor_list`, `risk_level` and `data_mode` select."""
    section = config.section
    return Selection(
        names=tuple(section.list),
        scope=tuple(section.scope),
        tensor_names=tuple(section.tensor_list),
        risk_level=config.risk_level,
        sides=section.data_mode,
        expand_modules=config.level == "mix",
    )
