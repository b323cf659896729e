from __future__ import annotations

import codecs
import json
import os
import sys
from pathlib import Path

import pytest

from msprobe.config.reading import read_object
from msprobe.errors import ConfigError


def read(content: bytes | str, name: str = "config.json") -> tuple[dict[str, object], list[str]]:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    warnings: list[str] = []
    return read_object(name, warnings.append), warnings


def message(content: bytes | str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(content)
    text = str(caught.value)
    assert text.startswith("config.json: ") and "\n" not in text
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return text.removeprefix("config.json: ")


@pytest.mark.parametrize("name", ["config.json", "c.txt", "no suffix", "数据.json", ".hidden"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_good_files(name: str, mark: bytes) -> None:
    content = {"dump_path": "数据", "rank": [1, "4-6"], "x": {"y": None}}
    assert read(mark + json.dumps(content, ensure_ascii=False).encode(), name) == (content, [])


def test_links_and_pipes_are_read(tmp_path: Path) -> None:
    Path("config.json").write_text("{}")
    os.symlink("config.json", "link")
    assert read_object("link", print) == {}
    source, sink = os.pipe()
    os.write(sink, b'{"a": 1}')
    os.close(sink)
    assert read_object(f"/dev/fd/{source}", print) == {"a": 1}
    os.close(source)


@pytest.mark.parametrize(
    ("content", "place", "hint"),
    [
        ("", "line 1, column 1", "the file is empty"),
        (" \n ", "line 2, column 2", "the file is empty"),
        ('{\n "a": 1,\n}', "line ", "remove the comma before the closing bracket"),
        ('{"a": [1, 2,]}', "line 1, column 1", "remove the comma before the closing bracket"),
        ('{\n  // dump\n  "a": 1}', "line 2, column 3", "JSON has no comments"),
        ('{"a": 1 /* x */}', "line 1, column 9", "JSON has no comments"),
        ('# x\n{"a": 1}', "line 1, column 1", "JSON has no comments"),
        ("{'a': 1}", "line 1, column 2", "use double quotes"),
        ("{a: 1}", "line 1, column 2", "put double quotes around a"),
        ('{"a": True}', "line 1, column 7", "write true instead of True"),
        ('{"a": None}', "line 1, column 7", "write null instead of None"),
        ('{"a": 1', "line 1, column 8", "the file ends too early"),
        ('{"a": "b', "line 1, column 7", "the closing double quote of a string is missing"),
        ('{"a": "b\nc"}', "line 1, column 9", "the closing double quote of a string is missing, or there is a line break"),
        (r'{"a": "c:\data"}', "line 1, column ", "a backslash in a string must be written twice"),
        ('{"a": 1}}', "line 1, column 9", "there is something after the end of the object"),
        ('{"a" 1}', "line 1, column 6", "a colon (:) is missing"),
        ('{"a": 1 "b": 2}', "line 1, column 9", "a comma is missing"),
        ('{"a": -}', "line 1, column 7", "Expecting value"),
    ],
)
def test_broken_json_gives_place_and_hint(content: str, place: str, hint: str) -> None:
    text = message(content)
    assert text.startswith(f"not valid JSON at {place}")
    assert f": {hint}" in text


@pytest.mark.parametrize("content", ["[1]", "3", "null", '"x"'])
def test_root_must_be_an_object(content: str) -> None:
    assert message(content) == f'must contain one JSON object, such as {{"task": "statistics"}}, but contains {content}'


def test_other_encodings() -> None:
    assert message('{"a": 1}'.encode("utf-16")) == "is in UTF-16, save it as UTF-8"
    assert message(b'{\n"a": "\xe9"}') == "is not UTF-8 (line 2, byte 0xe9), save it as UTF-8"


def test_monstrous_files() -> None:
    assert message("[" * 100_000) == "the objects and lists in it are nested too deeply"
    if hasattr(sys, "get_int_max_str_digits"):  # not in the first releases of Python 3.10
        assert message('{"a": ' + "1" * 5000 + "}") == "contains a number with too many digits"
    assert message(b" " * ((16 << 20) + 1)) == "larger than 16 MB, this cannot be a configuration file"


def test_names_that_appear_twice() -> None:
    content, warnings = read('{"a": 1, "b": {"c": 1, "c": 2, "c": 3}, "a": 4}')
    assert content == {"a": 4, "b": {"c": 3}}
    assert warnings == [f'config.json: "{name}" appears more than once in one object: the last value counts' for name in ("c", "a")]


def test_no_file_to_read(tmp_path: Path) -> None:
    def text(path: str) -> str:
        with pytest.raises(ConfigError) as caught:
            read_object(path, print)
        return str(caught.value)

    assert text("nope.json").startswith(f"nope.json: no such file (looked in {tmp_path}); check the path")
    assert text("a/b\nc").startswith("a/b\\nc: no such file")
    assert text(".") == ".: is a directory, config_path must name the file in it"
    assert text("").startswith('"": no such file')
    assert text("a\0b").startswith('config_path is "a\\u0000b": not a possible file name')
    assert "cannot be read" in text("x" * 300)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission() -> None:
    Path("config.json").write_text("{}")
    os.chmod("config.json", 0)
    with pytest.raises(ConfigError, match="no permission to read this file"):
        read_object("config.json", print)
