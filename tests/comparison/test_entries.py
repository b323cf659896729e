"""Entries read straight from their text are what ujson and Python make of them, whatever the text is."""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

import orjson
import pytest
import ujson

from msprobe.comparison import rows
from msprobe.comparison.rows import Builder, Call
from msprobe.errors import DumpFormatError
from msprobe.format.parts import NotInParts

pytestmark = pytest.mark.skipif(rows._calls_of is None, reason="installed without a compiler")

NUMBERS = [0.0, -0.0, 1.5, -2.25e-9, 3.4028234663852886e38, 5e-324, 1e16, 1e22, 123456789012345680.0, math.nan, math.inf, -math.inf]
ODD_NUMBERS = [0, 7, -3, 2**53 + 1, 10**17, 2**63, -(2**63), 10**30, None, True, False, "NaN", "inf", "x", [], {}]
SHAPES = [[4, 128, 256], [], [0], [1], [True], [2.5], "x", None, [[1]], [10**30], [-1]]
OTHERS = [
    {"type": "float", "value": 0.5},
    {"type": "int", "value": 10**20},
    {"type": "str", "value": "a,b}]"},
    {"type": "str", "value": 'a "quoted" word'},
    {"type": "str", "value": "ü"},
    {"type": "slice", "value": [None, 1, None]},
    {"type": "torch.Size", "value": [1, 2]},
    {"type": "torch.device", "value": "cuda:0"},
    {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "g"},
    {"type": "ellipsis", "value": "..."},
    {"type": "float", "dtype": "x", "value": 1},
    {"type": "float", "shape": []},
    {"type": 5, "value": 1},
    {"type": None, "a": {"type": "int", "value": 1}},
    {"value": 1, "type": "int"},
    {"class_type": "P2POp", "op": "isend", "peer": 3},
    None,
    True,
    3,
    2.5,
    "text",
    [],
    {},
    {"": 1},
]


def tensor(rng: random.Random) -> dict[str, Any]:
    """A record of a tensor, mostly an ordinary one."""
    odd = rng.random() < 0.15
    record: dict[str, Any] = {
        "type": rng.choice(["torch.Tensor", "torch.nn.Parameter", "ü"]) if odd else "torch.Tensor",
        "dtype": rng.choice(["torch.float32", 'a"b', "é", 5, None]) if odd else "torch.bfloat16",
        "shape": rng.choice(SHAPES) if odd else [2, 3],
    }
    for key in ("Max", "Min", "Mean", "Norm"):
        record[key] = rng.choice(ODD_NUMBERS) if rng.random() < 0.05 else rng.choice(NUMBERS) if rng.random() < 0.2 else rng.gauss(0, 1)
    record["requires_grad"] = rng.choice([None, 1, "True"]) if odd and rng.random() < 0.3 else rng.random() < 0.5
    if rng.random() < 0.2:
        record["md5"] = rng.choice(["0a1b2c3d", "ä", None, 5, ""])
    if odd and rng.random() < 0.3:
        record["data_name"] = rng.choice(["x.pt", None])
    if odd and rng.random() < 0.3:
        record["more"] = [1, {"a": 2}]
    if odd and rng.random() < 0.3:
        del record[rng.choice(list(record))]
    if odd and rng.random() < 0.3:
        record = dict(rng.sample(list(record.items()), len(record)))
    return record


def value(rng: random.Random, depth: int = 0) -> Any:
    """A recorded value."""
    kind = rng.random()
    if kind < 0.65 or depth > 3:
        return tensor(rng)
    if kind < 0.85:
        return rng.choice(OTHERS)
    if kind < 0.92:
        return [value(rng, depth + 1) for _ in range(rng.randrange(40 if rng.random() < 0.05 else 4))]
    return {rng.choice(["a", "b", "c.d", "src", "class_type", "0"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


NAMES = [
    "Functional.linear.0.forward",
    "Module.fc.Linear.backward.1",
    "Module.fc.Linear.parameters_grad",
    "x.0.debug",
    "odd",
    'q"',
    "ü.0.forward",
]


def entry(rng: random.Random) -> tuple[str, bytes]:
    """An entry's name and text, in one of the layouts that JSON allows."""
    name = rng.choice(NAMES) if rng.random() < 0.3 else NAMES[0]
    content: Any = {
        "input_args": [value(rng) for _ in range(rng.randrange(4))],
        "input_kwargs": {key: value(rng) for key in ("scale", "weight") if rng.random() < 0.5},
        "output": [value(rng) for _ in range(rng.randrange(3))],
    }
    if rng.random() < 0.2:
        content[rng.choice(["parameters", "input", "more", "is_recompute"])] = {"weight": value(rng)}
    if rng.random() < 0.1:
        content[rng.choice(list(content))] = value(rng)
    if rng.random() < 0.02:
        content = value(rng)
    layout: dict[str, Any] = rng.choice([{"indent": 1}, {"indent": 4}, {}, {"separators": (",", ":")}, {"ensure_ascii": False}])
    text = json.dumps({name: content}, **layout).strip().removeprefix("{").removesuffix("}").strip()
    return name, text.encode("utf-8", "surrogatepass")


def damaged(rng: random.Random, text: bytes) -> bytes:
    """The text with a few bytes changed, added, removed or repeated."""
    found = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) + 1)
        kind = rng.random()
        if kind < 0.4:
            found[at : at + 1] = rng.choice(
                [b"", b" ", b",", b"{", b"}", b"[", b"]", b'"', b":", b"-", b".", b"e", b"0", b"9", b"\\", b"\x00", b"\xff"]
            )
        elif kind < 0.6:
            found[at:at] = rng.choice(
                [b'"type": "x", ', b'"Max": 1.0, ', b"null", b"NaN", b"1e999", b"1e5", b"-0", b"00", b"1.", b".5", b"\n", b'"a": 1, ']
            )
        elif kind < 0.8:
            del found[at : at + rng.randrange(1, 30)]
        else:
            found[at:at] = found[at : at + rng.randrange(1, 60)]
    return bytes(found)


def read(texts: list[bytes], like: dict[str, Call], fast: bool, monkeypatch: pytest.MonkeyPatch) -> list[str] | type[Exception]:
    """The calls as text, which tells 1 from 1.0 and from true, and NaN from nothing; or what was raised."""
    with monkeypatch.context() as patch:
        if not fast:
            patch.setattr(rows, "_calls_of", None)
        try:
            return [repr(call) for call in Builder("dump.json", like).calls_of_texts(texts)]
        except (NotInParts, DumpFormatError) as error:
            return type(error)


def calls_of(texts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> dict[str, Call]:
    with monkeypatch.context() as patch:
        patch.setattr(rows, "_calls_of", None)
        try:
            return {call.name: call for call in Builder("other.json").calls_of_texts(texts)}
        except (NotInParts, DumpFormatError):
            return {}


ROUNDS = int(os.environ.get("MSPROBE_FUZZ_ROUNDS", "1500"))
SEED = int(os.environ.get("MSPROBE_FUZZ_SEED", "0"))


def test_as_ujson_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED)
    fast = 0
    for _ in range(ROUNDS):
        _, text = entry(rng)
        like = calls_of([entry(rng)[1] if rng.random() < 0.5 else text], monkeypatch) if rng.random() < 0.5 else {}
        assert read([text], like, True, monkeypatch) == read([text], like, False, monkeypatch), text
        assert rows._calls_of is not None
        fast += rows._calls_of([text], like, Builder("dump.json", like)._text_context)[0] is not None
        text = damaged(rng, text)
        assert read([text], like, True, monkeypatch) == read([text], like, False, monkeypatch), text
    assert fast > ROUNDS / 4  # else it was Python that was held against Python


def test_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED + 1)
    texts = [entry(rng)[1].replace(b".0.forward", b".%d.forward" % number, 1) for number in range(200)]
    assert read(texts, {}, True, monkeypatch) == read(texts, {}, False, monkeypatch)


def ordinary(number: str) -> bytes:
    return b'"Torch.a.0.forward": {"input_args": [{"type": "t", "dtype": "d", "shape": [2, 3], "Norm": %s}]}' % number.encode()


SPELLED = [
    "0",
    "-0",
    "1",
    "-7",
    "10",
    "01",
    "-01",
    "00",
    "0.0",
    "-0.0",
    "1.",
    ".5",
    "-.5",
    "1.5",
    "+1.5",
    "1.50e2",
    "1e5",
    "1E5",
    "1e+5",
    "1e-7",
    "1e05",
    "1e",
    "1e+",
    "1.e5",
    "-1e-5",
    "1e308",
    "1e309",
    "-1e309",
    "1e999",
    "1e-400",
    "1e1000",
    "0e0",
    "123456789012345678",
    "1234567890123456789",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "123456789012345678901234567890.5",
    "0.1000000000000000055511151231257827021181583404541015625",
    "2.2250738585072011e-308",
    "9007199254740993.0",
    "9007199254740992.999999999999999999",
    "NaN",
    "-NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "inf",
    "null",
    "nul",
    "true",
    "false",
    "tru",
    "True",
    '"x"',
    "[]",
    "{}",
    "1.5x",
    "0x10",
    "1_0",
    "1,5",
    "4.9406564584124654e-324",
    "2.4703282292062327e-324",
    "1.7976931348623158e308",
    "1.7976931348623159e308",
    "8.5e-324",
    "1.00000000000000011102230246251565",
]


@pytest.mark.parametrize("number", SPELLED)
def test_numbers(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [ordinary(number)]
    assert read(texts, {}, True, monkeypatch) == read(texts, {}, False, monkeypatch)


def test_orjson_reads_numbers_as_ujson_does() -> None:
    rng = random.Random(SEED + 2)
    spelled = [
        rng.choice(["%.17g", "%.16g", "%.9g", "%r", "%.25e", "%.3f"]) % math.ldexp(rng.uniform(-1, 1), rng.randrange(-1070, 1020))
        for _ in range(5000)
    ]
    text = "[" + ",".join(number if set(number) & set(".e") else f"{number}.0" for number in spelled) + "]"
    assert orjson.loads(text) == ujson.loads(text) == json.loads(text)


def test_hostile_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = b'"Torch.a.0.forward": {"output": ' + b"[" * 30 + b'{"type": "int", "value": 1}' + b"]" * 30 + b"}"
    keys = b", ".join(b'"k%d": null' % number for number in range(100))
    for text in (
        b"",
        b'"',
        b'"a"',
        b'"a":',
        b'"a": {',
        b"\x00",
        b'"a":{}',
        b'"a": {} ',
        b'"a": {}, "b": {}',
        b'"a" : {}',
        deep,
        deep.replace(b"[" * 30, b"[" * 60).replace(b"]" * 30, b"]" * 60),
        deep.replace(b"]" * 30, b""),
        b'"Torch.a.0.forward": {"output": {' + keys + b"}}",
        b'"Torch.a.0.forward": {"output": {"a": null, "a": 5}}',
        b'"Torch.a.0.forward": {"output": null, "output": [5]}',
        b'"Torch.a.0.forward": {"input_args": 5, "input": [5, 6], "input_kwargs": "x"}',
        b'"Torch.a.0.forward": {"output": {"a": 1, "type": "int"}}',
        b'"Torch.a.0.forward": {"output": {"type": "int", "value": 1, "value": 2}}',
        b'"Torch.a.0.forward": {"output": {"type": "a", "dtype": "b", "shape": [], "dtype": "c"}}',
        b'"Torch.a.0.forward": {"output": {"type": "a", "dtype": "b", "shape": [1,,2]}}',
        b'"Torch.a.0.forward": {"output": {"type": "a", "dtype": "b", "shape": [01]}}',
        b'"Torch.a.0.forward": {"output": [1 2]}',
        b'"Torch.a.0.forward": {"output": [1,]}',
        b'"Torch.a.0.forward": {"output": :}',
        b'"Torch.a.0.forward": {"output": {"type": "a"} "parameters": null}',
    ):
        assert read([text], {}, True, monkeypatch) == read([text], {}, False, monkeypatch), text


def test_plain_values_that_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of them is bounded."""
    output = b'[{"type": "int", "value": %d}, {"type": "int", "value": 7}]'
    texts = [b'"Torch.a.%d.forward": {"output": %s}' % (number, output % number) for number in range(21000)]
    builder = Builder("dump.json")
    calls = builder.calls_of_texts(texts)
    assert [call.rows[0].value for call in calls] == list(range(21000))
    assert calls[-1].rows[1].name == "Torch.a.20999.forward.output.1"
    assert len(builder._text_context[5]) <= 20000
