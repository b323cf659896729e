"""config.json: read it, check it, say clearly what is wrong in it.

Importing this room imports pydantic and nothing heavier.
"""

from __future__ import annotations

from typing import Any

from msprobe.config.loading import load_config
from msprobe.config.result import Config, DataMode, LoadConfig, Section

__all__ = ["Config", "DataMode", "LoadConfig", "Section", "json_schema", "load_config"]


def json_schema() -> dict[str, Any]:
    """A JSON Schema of config.json."""
    from msprobe.config.schema import json_schema as build  # not above: `python -m msprobe.config.schema` runs that module itself

    return build()
