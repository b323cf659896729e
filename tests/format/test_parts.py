"""dump.json read a part at a time: what a reader of the whole file gives, or the word that only that one can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.format import parts
from msprobe.format.parts import NotInParts, Part, parse, read_in_parts
from msprobe.format.reader import read_dump

HEAD = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
ENTRIES: dict[str, Any] = {
    f"Torch.op.{number}.forward": {"input_args": [{"type": "x", "value": 'a ",\n  "b'}, float("nan"), 2**70], "output": {"data": number}}
    for number in range(50)
}


def read(path: Path) -> dict[str, Any]:
    return together(list(read_in_parts(path)[1]))


def together(found: list[Part]) -> dict[str, Any]:
    entries = [(name, entry) for part in found for name, entry in (parse(part.texts) if part.texts else part.entries).items()]
    if len(dict(entries)) != len(entries):
        raise NotInParts  # what every caller has to look at
    return dict(entries)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_AT_ONCE", 300)
    monkeypatch.setattr(parts, "_HEAD_WITHIN", 200)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("indent", [1, 2, 4, "\t"])
def test_the_same_as_the_whole(tmp_path: Path, indent: Any) -> None:
    path = write(tmp_path / "dump.json", json.dumps({**HEAD, "data": ENTRIES}, indent=indent))
    whole = read_dump(path)
    head, found = read_in_parts(path)
    assert (head.task, head.level, head.framework, head.dump_data_dir) == (whole.task, whole.level, whole.framework, whole.dump_data_dir)
    pieces = list(found)
    assert len(pieces) > 5
    assert repr(together(pieces)) == repr(whole.data)


NOT_IN_PARTS = {
    "one line": json.dumps({**HEAD, "data": ENTRIES}),
    "entries beside the brace": json.dumps({**HEAD, "data": ENTRIES}, indent=0),
    "no entries": json.dumps({**HEAD, "data": {}}, indent=1),
    "no task": json.dumps({"data": ENTRIES}, indent=1),
    "task of a wrong type": json.dumps({"task": 3, "data": ENTRIES}, indent=1),
    "something behind the entries": json.dumps({"task": "statistics", "data": ENTRIES, "more": {}}, indent=1),
    "data twice": json.dumps({**HEAD, "data": ENTRIES}, indent=1)[:-1] + ',\n "data": {\n  "a": {}\n }\n}',
    "an entry twice": json.dumps({**HEAD, "data": ENTRIES}, indent=1)[:-4] + ',\n  "Torch.op.0.forward": {}\n }\n}',
    "cut off": json.dumps({**HEAD, "data": ENTRIES}, indent=1)[:-500],
    "cut off between entries": json.dumps({**HEAD, "data": ENTRIES}, indent=1)[:-4],
    "something behind the end": json.dumps({**HEAD, "data": ENTRIES}, indent=1) + "}",
    "lines of another depth": '{"task": "statistics", "data": {\n  "a": {"x": 1' + ',\n  "y": 2' * 100 + '}, "b": {}}}',
    "nothing": "",
}


@pytest.mark.parametrize("text", NOT_IN_PARTS.values(), ids=NOT_IN_PARTS.keys())
def test_everything_else_is_left_to_the_reader_of_whole_files(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "dump.json", text)
    try:
        found = read(path)
    except NotInParts:
        return
    assert repr(found) == repr(read_dump(path).data)
    assert text == NOT_IN_PARTS["entries beside the brace"]  # of the layout all the same


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(NotInParts):
            read_in_parts(path)
