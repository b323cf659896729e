"""Whatever stands in a YAML file of the user's, the answer is plain values or one sentence with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.yaml_file import read_yaml
from msprobe.errors import UsageError


@pytest.mark.parametrize(
    "value, kind, why",
    [
        ("2020-13-45", "timestamp", "month must be in 1..12"),
        ("2020-01-01T25:00:00", "timestamp", "hour must be in 0..23"),
        ("9" * 5000, "int", "the number is too large"),
        ("-0x" + "f" * 70, "int", "the number is too large"),
        (str(2**63), "int", "the number is too large"),
        ("0x_", "int", "invalid literal"),
        ("!!int abc", "int", "invalid literal"),
        ("!!int ''", "int", "out of range"),
        ("!!float x", "float", "could not convert"),
        ("!!bool maybe", "bool", "maybe"),
        ("!!timestamp x", "timestamp", ""),
    ],
)
def test_a_value_that_its_type_does_not_allow(tmp_path: Path, value: str, kind: str, why: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"a: b\nc: [d, {value}]\n")
    with pytest.raises(UsageError) as caught:
        read_yaml(path, "mapping file")
    said = str(caught.value)
    assert said.startswith(f"the mapping file {path} is not valid YAML: line 2: `") and "\n" not in said
    assert f"is taken for a value of type {kind}, and it is none" in said and why in said
    assert len(said) < len(str(path)) + 300


def test_what_is_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"a: [1, -2, {2**63 - 1}, 0x1F, 1.5, true, null, '2020-13-45', text]")
    assert read_yaml(path, "mapping file") == {"a": [1, -2, 2**63 - 1, 31, 1.5, True, None, "2020-13-45", "text"]}


@pytest.mark.parametrize(
    "content, said", [(b"a: b\na: c", "`a` stands twice"), (b"\xff\xfe\x00", "not valid YAML"), (b"a: [", "not valid YAML")]
)
def test_what_is_no_file_of_that_kind(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_yaml(path, "mapping file")
