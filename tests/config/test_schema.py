from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config.mini_schema import violations
from config.test_file_model import WRONG_COMMON, WRONG_IN_SECTIONS
from msprobe.config import json_schema, schema
from msprobe.config.loading import PACKAGED

HERE = Path(__file__).parent
DOCUMENTED = HERE.parent.parent / "docs" / "config.schema.json"
SCHEMA = json_schema()
SAMPLES = json.loads((HERE / "documented_configs.json").read_text())

# The file alone does not say for which framework it is, nor does a schema say what may not be combined or is empty in disguise.
BEYOND_A_SCHEMA = {("data_mode", '["all", "forward"]'), ("summary_mode", '["max"]')}


def faults(content: Any) -> list[str]:
    return violations(content, SCHEMA, SCHEMA)


def test_the_documented_schema_is_up_to_date() -> None:
    documented = json.loads(DOCUMENTED.read_text(encoding="utf-8"))  # parsed: versions of pydantic order keys differently
    assert documented == SCHEMA, "run: python -m msprobe.config.schema docs/config.schema.json"
    assert list(documented["properties"]) == list(SCHEMA["properties"])


def test_the_script_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main([str(tmp_path / "s.json")]) == 0
    assert schema.main([]) == 0
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == capsys.readouterr().out == schema.text()


@pytest.mark.parametrize("name", SAMPLES)
def test_documented_configs_fit(name: str) -> None:
    assert faults({"$schema": "./config.schema.json", **SAMPLES[name]}) == []


def test_the_packaged_file_fits() -> None:
    assert faults(json.loads(Path(PACKAGED).read_text())) == []


def test_null_and_empty_fit_where_they_mean_something() -> None:
    nothing = dict.fromkeys(("task", "level", "rank", "step", "dump_path", "dump_enable", "risk_level", "load", "statistics", "tensor"))
    assert faults(nothing) == []
    assert faults({"task": "", "level": "", "risk_level": "", "statistics": {"summary_mode": "", "list": None, "data_mode": None}}) == []


@pytest.mark.parametrize(("field", "value"), [row[:2] for row in WRONG_COMMON])
def test_wrong_common_values_do_not_fit(field: str, value: Any) -> None:
    assert faults({field: value})


@pytest.mark.parametrize(("section", "field", "value"), [row[:3] for row in WRONG_IN_SECTIONS])
def test_wrong_values_in_sections_do_not_fit(section: str, field: str, value: Any) -> None:
    content = {"path": ".", "modules": ["Module.a.B.forward.0"]} if section == "load" else {}
    assert bool(faults({section: {**content, field: value}})) == ((field, json.dumps(value)) not in BEYOND_A_SCHEMA)


@pytest.mark.parametrize(
    "content",
    [
        {"ranks": []},
        {"rank": [-1]},
        {"step": ["a"]},
        {"step": [True]},
        {"step": [1000001]},
        {"statistics": {"level": "L0"}},
        {"load": {"path": "."}},
        {"load": {"path": ".", "modules": ["Module.a.B.backward.0"]}},
        {"structure": {"x": 1}},
        [],
    ],
)
def test_other_wrong_files_do_not_fit(content: Any) -> None:
    assert faults(content)


def test_every_field_has_a_description_and_an_example() -> None:
    for model in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, field in model["properties"].items():
            assert field["description"], name
            assert "examples" in field or field.get("deprecated") or name == "$schema", name


def test_examples_fit_their_own_fields() -> None:
    for model in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, field in model["properties"].items():
            for example in field.get("examples", []):
                assert violations(example, field, SCHEMA) == [], name


def test_with_a_full_validator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for sample in SAMPLES.values():
        validator.validate(sample)
    assert not validator.is_valid({"rank": ["a"]})
