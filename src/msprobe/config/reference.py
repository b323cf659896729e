"""The tables of docs/config.md. `python -m msprobe.config.reference docs/config.md` writes them anew between their marks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from msprobe.config.available import NOT_YET
from msprobe.config.file_model import SECTIONS, ConfigFile, LoadSection
from msprobe.config.values import LARGEST_ID

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(name: str) -> str:
    """The Markdown table `name`: `common`, a section, `load`, or `not_yet`."""
    if name == "not_yet":
        return _rows(("Field", "Not available yet"), ((f"`{row.field.removeprefix('section.')}`", row.feature) for row in NOT_YET))
    models: dict[str, type[BaseModel]] = {"common": ConfigFile, "load": LoadSection, **SECTIONS}
    model = models[name]
    schema = model.model_json_schema()
    fields = ((key, field) for key, field in model.model_fields.items() if model is not ConfigFile or key not in (*SECTIONS, "load"))
    return _rows(
        ("Field", "Value", "Default", "Meaning", "Example"),
        (
            (
                f"`{key}`",
                _value(schema["properties"][key]),
                "required" if field.is_required() or key == "dump_path" else f"`{_json(field.default)}`",
                field.description or "",
                f"`{_json((field.examples or [None])[0])}`",
            )
            for key, field in fields
        ),
    )


def renew(document: str) -> str:
    """The document with every marked table replaced by the present one."""
    return _MARKED.sub(lambda found: f"{found[1]}{table(found[2])}\n{found[3]}", document)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(schema: dict[str, Any]) -> str:
    """What may stand there, in words; null and "" are explained in the text beside the table."""
    if "enum" in schema:
        return ", ".join(f"`{_json(word)}`" for word in schema["enum"] if word)
    if "const" in schema:
        return f"`{_json(schema['const'])}`"
    if "anyOf" in schema:
        return ", or ".join(_value(option) for option in schema["anyOf"] if option != {"type": "null"})
    kind = schema.get("type", "")
    if kind == "array":
        items = schema.get("items", {})
        return f"list of: {_value(items)}"
    if kind == "string" and "[0-9]+\\s*(-" in schema.get("pattern", ""):
        return 'range such as `"4-6"`'
    if kind == "integer":
        return f"whole number {schema.get('minimum')} to {schema['maximum']}" if schema.get("maximum") == LARGEST_ID else "whole number > 0"
    return "`true`, `false`" if kind == "boolean" else str(kind)


def main(arguments: list[str]) -> int:
    """Renews the tables in the files named."""
    for path in arguments:
        with open(path, encoding="utf-8") as file:
            document = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(renew(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
