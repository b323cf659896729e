"""Reading the JSON of a dump directory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader

GOLDEN = Path(__file__).parent.parent / "golden"
HEAD = '{"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": null, "data": '


def write(tmp_path: Path, content: str | bytes, name: str = "dump.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_existing_tools_dump() -> None:
    dump = reader.read_dump(GOLDEN / "reference_tensor_dump" / "dump.json")
    assert (dump.task, dump.framework) == ("tensor", "pytorch")
    expected = json.loads((GOLDEN / "reference_tensor_dump" / "dump.json").read_text())["data"]
    assert repr(dump.data) == repr(expected)  # as text, since NaN is not equal to itself
    assert next(iter(dump.data)) == "My.probe.0.forward"
    assert dump.tensor_dir == GOLDEN / "reference_tensor_dump" / layout.TENSORS


def test_a_directory_means_its_dump_json() -> None:
    directory = GOLDEN / "reference_mix_dump"
    assert reader.read_dump(directory).path == directory / "dump.json"
    assert reader.read_dump(directory / "debug.json").level == "debug"
    assert reader.read_stack(directory) == reader.read_stack(directory / "stack.json")


def test_stack_gives_every_name_its_frames() -> None:
    raw = json.loads((GOLDEN / "reference_mix_dump" / "stack.json").read_text())
    stacks = reader.read_stack(GOLDEN / "reference_mix_dump")
    assert len(stacks) == sum(len(names) for names, _ in raw.values())
    for names, frames in raw.values():
        for name in names:
            assert stacks[name] == frames


def test_construct_and_meta(tmp_path: Path) -> None:
    parents = reader.read_construct(GOLDEN / "reference_mix_dump")
    assert None in parents.values()
    assert "Module.blocks.0.Block.forward.0" in parents.values()
    assert reader.read_meta(GOLDEN / "reference_mix_dump") == {}
    write(tmp_path, '{"seed": 3}', "meta.json")
    assert reader.read_meta(tmp_path) == {"seed": 3}
    write(tmp_path, "{", "meta.json")
    with pytest.raises(DumpFormatError, match=r"meta\.json is cut off"):
        reader.read_meta(tmp_path)


def test_numbers_json_has_no_words_for(tmp_path: Path) -> None:
    values = reader.read_dump(
        write(tmp_path, HEAD + '{"x": [NaN, Infinity, -Infinity, 123456789012345678901234567890, 1e400, -0.0]}}')
    ).data["x"]
    assert math.isnan(values[0])
    assert values[1:5] == [math.inf, -math.inf, 123456789012345678901234567890, math.inf]
    assert math.copysign(1, values[5]) == -1


def test_unicode_and_bom(tmp_path: Path) -> None:
    assert reader.read_dump(write(tmp_path, HEAD + '{"h\\u00e9": 1, "模": 2, "\\ud83d\\ude00": 3}}')).data == {"hé": 1, "模": 2, "😀": 3}
    assert reader.read_dump(write(tmp_path, b"\xef\xbb\xbf" + HEAD.encode() + b"{}}")).data == {}


def test_nesting_beyond_the_fast_parser(tmp_path: Path) -> None:
    deep = HEAD + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(DumpFormatError, match="cannot be read as JSON"):
        reader.read_dump(write(tmp_path, deep))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (HEAD + '{"a": {"b": [1, 2', "is cut off"),
        (HEAD + '{"a": "unfinished', "is cut off"),
        (HEAD + '{"a": tr', "is cut off"),
        (HEAD + "{'a': 1}}", "is not valid JSON"),
        (HEAD + '{"a": 1}} trailing', "is not valid JSON"),
        ("[]", "holds a JSON array instead of an object"),
        ("null", "holds a JSON null instead of an object"),
        ("3", "holds a JSON number instead of an object"),
        ('{"task": "statistics"}', 'has no "data"'),
        ('{"task": "statistics", "data": []}', 'has "data" of type array'),
        ('{"task": "statistics", "data": "x"}', 'has "data" of type string'),
        ('{"data": {}}', 'has no "task"'),
        ('{"task": 3, "data": {}}', 'has no "task"'),
        ('{"task": "tensor", "dump_data_dir": 3, "data": {}}', '"dump_data_dir" of type number'),
        (b'{"task": "\xff\xfe"}', "is not UTF-8"),
        (b"\x80\x04\x95", "is not UTF-8"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: str | bytes, reason: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DumpFormatError) as caught:
        reader.read_dump(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_every_cut_of_a_dump_is_noticed(tmp_path: Path) -> None:
    text = json.dumps({"task": "statistics", "data": {"a": [1.5, None, {"b": "c", "d": True}], "e": -3}}, indent=1)
    for length in range(len(text)):
        with pytest.raises(DumpFormatError, match=r"is cut off|is empty"):
            reader.read_dump(write(tmp_path, text[:length]))


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DumpFormatError, match=r"nothing\.json does not exist"):
        reader.read_dump(tmp_path / "nothing.json")
    with pytest.raises(DumpFormatError, match=r"dump\.json does not exist"):
        reader.read_dump(tmp_path)
    with pytest.raises(DumpFormatError, match=r"stack\.json does not exist"):
        reader.read_stack(tmp_path)
    (tmp_path / "dump.json").mkdir()
    with pytest.raises(DumpFormatError, match="cannot be read"):
        reader.read_dump(tmp_path)


@pytest.mark.parametrize("content", ['{"0": 3}', '{"0": [["a"]]}', '{"0": [["a"], [3]]}', '{"0": ["a", ["f"]]}'])
def test_stack_of_another_shape(tmp_path: Path, content: str) -> None:
    with pytest.raises(DumpFormatError, match=r"is it a stack\.json"):
        reader.read_stack(write(tmp_path, content, "stack.json"))


def test_construct_of_another_shape(tmp_path: Path) -> None:
    with pytest.raises(DumpFormatError, match=r"is it a construct\.json"):
        reader.read_construct(write(tmp_path, '{"a": ["b"]}', "construct.json"))


def test_tensor_directory_follows_a_moved_dump(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    text = json.dumps({"task": "tensor", "dump_data_dir": str(elsewhere), "data": {}})
    dump = reader.read_dump(write(tmp_path, text))
    assert dump.tensor_dir == elsewhere
    (tmp_path / layout.TENSORS).mkdir()
    assert dump.tensor_dir == tmp_path / layout.TENSORS


def test_no_framework_is_imported() -> None:
    code = "import sys; from msprobe.format import reader, tensor_file, names, layout; sys.exit('torch' in sys.modules)"
    source = str(Path(reader.__file__).parents[2])
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, check=False).returncode == 0
