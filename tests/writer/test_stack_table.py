"""Grouping names by stack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.writer import stack_table
from msprobe.writer.stack_table import StackTable


def none(reason: str) -> None:
    pytest.fail(reason)


def parsed(*members: bytes) -> Any:
    text = (b"{" + b",".join(filter(None, members)) + b"\n}").decode("ascii")
    document = json.loads(text)
    assert text == json.dumps(document, indent=1) or not document
    return document


def test_equal_keys_share_an_id_in_order_of_first_use() -> None:
    table = StackTable()
    text = table.add([("a", 1, ["f1", "g"]), ("b", (2,), ["f2"]), ("c", 1, ["not used"])], none)
    assert parsed(text) == {"0": [["a", "c"], ["f1", "g"]], "1": [["b"], ["f2"]]}
    assert not table.scattered


def test_names_after_a_flush_come_under_a_new_id_until_regrouped() -> None:
    table = StackTable()
    first = table.add([("a", 1, ["f"])], none)
    second = table.add([("b", 2, ["g"]), ("c", 1, ["f"])], none)
    assert parsed(first, second) == {"0": [["a"], ["f"]], "1": [["b"], ["g"]], "2": [["c"], ["f"]]}
    assert table.scattered
    assert parsed(table.regrouped()) == {"0": [["a", "c"], ["f"]], "1": [["b"], ["g"]]}
    assert parsed(table.regrouped(), table.add([("d", 3, ["h"])], none))["2"] == [["d"], ["h"]]


def test_frames_are_asked_for_once() -> None:
    asked = []

    def frames() -> list[str]:
        asked.append(1)
        return ["frame é\n line"]

    table = StackTable()
    text = table.add([("a", "k", frames), ("b", "k", frames)], none) + b"," + table.add([("c", "k", frames)], none)
    assert parsed(text) == {"0": [["a", "b"], ["frame é\n line"]], "1": [["c"], ["frame é\n line"]]}
    assert asked == [1]


@pytest.mark.parametrize("frames", [lambda: 1 / 0, lambda: None, [3], [["x"]], 7])
def test_frames_that_fail(frames: Any) -> None:
    problems: list[str] = []
    table = StackTable()
    assert parsed(table.add([("a", 1, frames), ("b", 2, ["fine"])], problems.append)) == {"0": [["a"], []], "1": [["b"], ["fine"]]}
    assert len(problems) == 1
    assert problems[0].startswith("a: the call stack")


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_table, "_CACHE_LIMIT", 10)
    monkeypatch.setattr(stack_table, "_texts", {})
    table = StackTable()
    text = table.add([(f"n{i}", i, [f"frame {i}"]) for i in range(100)], none)
    assert parsed(text) == {str(i): [[f"n{i}"], [f"frame {i}"]] for i in range(100)}
    assert len(stack_table._texts) <= 10


def test_empty() -> None:
    assert StackTable().add([], none) == b""
    assert StackTable().regrouped() == b""


@given(st.lists(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 4)), max_size=6), max_size=6))
def test_any_sequence(flushes: list[list[tuple[int, int]]]) -> None:
    """Each name comes with its frames once, whatever the flushes; regrouped, each stack comes once."""
    table, texts, expected = StackTable(), [], {}
    number = 0
    for flush in flushes:
        batch = []
        for _, key in flush:
            batch.append((f"n{number}", key, [f"frame {key}"]))
            expected[f"n{number}"] = [f"frame {key}"]
            number += 1
        texts.append(table.add(batch, none))
    for document in (parsed(*texts), parsed(table.regrouped())):
        assert {name: frames for names, frames in document.values() for name in names} == expected
        assert sum(len(names) for names, _ in document.values()) == len(expected)
        assert list(document) == [str(i) for i in range(len(document))]
    assert len(document) == len({tuple(frames) for frames in expected.values()})
