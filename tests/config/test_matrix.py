"""The reference tool's own tries of configurations: what it takes we take, what it refuses we refuse with a message to act on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import load_config
from msprobe.errors import ConfigError

MATRIX = json.loads((Path(__file__).parent.parent / "golden" / "config_matrix.json").read_text(encoding="utf-8"))
CASES = {case["case"]: case for case in MATRIX["cases"]}
PREFIX = "a prefix of the user's own, as register_custom_api gives it"
DIFFERENT = {
    "L1 scope ['Foo.add.0.forward', 'Foo.add.1.forward']": PREFIX,
    "mix scope ['Foo.add.0.forward', 'Foo.add.1.forward']": PREFIX,
    "data_mode ['forward', 'forward', 'forward', 'forward', 'forward']": "a name that comes twice says nothing new",
    "task nan_check": "looks at values, so it needs no NPU",
    "task section null": "null is as good as absent, here as everywhere",
}
"""Cases that end otherwise than in the reference, and why."""


def outcome(tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """ "" where the configuration is taken, else the message."""
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(json.dumps(MATRIX["base"] | config), encoding="utf-8")
    try:
        load_config("c.json")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", list(CASES))
def test_the_same_verdict(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CASES[case]["accepted"] ^ (case in DIFFERENT)
    message = outcome(tmp_path, CASES[case]["config"], monkeypatch)
    assert (message == "") == expected, message


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if not case["accepted"] and name not in DIFFERENT])
def test_a_wrong_one_names_field_and_value(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CASES[case]["config"]
    message = outcome(tmp_path, config, monkeypatch)
    leaves = _leaves(config)
    # What is wrong with a directory that is not there comes before what is wrong, or right, with the number beside it.
    name, value = next((leaf for leaf in leaves if leaf[0] == "bench_path" and "bench_path" in message), leaves[-1])
    if case != "async tensor nolist" and case != "async md5":
        assert f'"{name}"' in message
        shown = json.dumps(value, ensure_ascii=False)
        inside = [json.dumps(item, ensure_ascii=False) for item in value] if isinstance(value, list) else []
        missing = value is None and "is missing" in message
        assert missing or shown in message or f"{len(inside)}" in message or any(item in message for item in inside)
    assert len(message) > len("c.json: ") + 20


def _leaves(config: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        found += _leaves(value) if isinstance(value, dict) else [(key, value)]
    return found
