"""Names in the file that mean nothing here: unknown ones, and those of other frameworks and other versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msprobe.config.file_model import SECTIONS, ConfigFile, LoadSection
from msprobe.config.messages import Place, show
from msprobe.config.values import nearest

# Features that other versions of this file format have and this program does not.
NO_EFFECT = frozenset({"slice", "request_id", "diff_check", "custom_op_namespaces"})
# For editors; says nothing to us.
SCHEMA_KEY = "$schema"
OTHER_FRAMEWORK: dict[str, frozenset[tuple[str, ...]]] = {
    "pytorch": frozenset({("statistics", "device"), ("tensor", "file_format")}),
    "mindspore": frozenset({("risk_level",), ("dump_enable",), ("load",), ("ops_dir",), ("tensor", "bench_path"), ("tensor", "diff_nums")}),
}
_TITLE = {"pytorch": "PyTorch", "mindspore": "MindSpore"}


def keep_known(data: dict[str, Any], framework: str, task: str, place: Place, warn: Callable[[str], None]) -> dict[str, Any]:
    """The top level of the file without what has no effect; `warn` gets one line for each name left out."""
    return _keep(data, (), ConfigFile.model_fields, framework, task, place, warn)


def keep_known_in_section(name: str, section: Any, framework: str, task: str, place: Place, warn: Callable[[str], None]) -> Any:
    """The same for one section; what is not an object is handed back as it is."""
    if not isinstance(section, dict):
        return section
    model = LoadSection if name == "load" else SECTIONS[name]
    return _keep(section, (name,), model.model_fields, framework, task, place, warn)


def _keep(
    data: dict[str, Any], above: tuple[str, ...], known: Iterable[str], framework: str, task: str, place: Place, warn: Callable[[str], None]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    known = tuple(known)
    for name, value in data.items():
        loc = (*above, name)
        if loc in OTHER_FRAMEWORK[framework]:
            other = next(title for key, title in _TITLE.items() if key != framework)
            warn(place.remark(loc, f"has no effect: it is for {other}"))
        elif name in known:
            kept[name] = value
        elif name in NO_EFFECT:
            warn(place.remark(loc, "has no effect: msprobe does not have this feature"))
        elif loc != (SCHEMA_KEY,):
            warn(f"{place.file}: {'.'.join(show(part) for part in loc)} {_advice(name, above, known, task)}")
    return kept


def _advice(name: str, above: tuple[str, ...], known: tuple[str, ...], task: str) -> str:
    homes = [section for section, model in SECTIONS.items() if name in model.model_fields]
    if above and name in ConfigFile.model_fields:
        return f"has no effect in section {show(above[0])}: move it to the top level"
    if homes and not above:
        home = task if task in homes else homes[0]
        return f"has no effect at the top level: move it into the section {show(home)}"
    if homes:
        return f"has no effect in section {show(above[0])}: it belongs into {' or '.join(show(home) for home in homes)}"
    close = nearest(name, known)
    if close:
        return f"is not a known field and has no effect; did you mean {show(close)}?"
    return "is not a known field and has no effect" + (f"; known are {', '.join(known)}" if known else "")
