"""The JSON Schema of config.json, for editors. `python -m msprobe.config.schema docs/config.schema.json` writes it anew."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from msprobe.config.file_model import ConfigFile
from msprobe.config.known_names import NO_EFFECT, SCHEMA_KEY


def json_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) of the whole file; relations between fields are not in it, `load_config` checks them."""
    schema: JsonSchemaValue = ConfigFile.model_json_schema()
    _drop_titles(schema)
    properties = {SCHEMA_KEY: {"type": "string", "description": "This schema, for editors."}, **schema["properties"]}
    for name in sorted(NO_EFFECT):
        properties[name] = {"description": "Has no effect.", "deprecated": True}
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "msprobe config.json", **schema, "properties": properties}


def text() -> str:
    """The schema as the documentation holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _drop_titles(node: Any) -> None:
    """Removes the titles that pydantic derives from names: they say nothing and clutter an editor's help."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for child in node.values():
            _drop_titles(child)
    elif isinstance(node, list):
        for child in node:
            _drop_titles(child)


def main(arguments: list[str]) -> int:
    """Writes the schema to the file named by the first argument, or prints it."""
    if arguments:
        with open(arguments[0], "w", encoding="utf-8") as file:
            file.write(text())
    else:
        sys.stdout.write(text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
