"""Which nulls stand for a value: how meta.json lists them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msprobe.format import unread
from msprobe.format.unread import KEY, MORE, Notes, Unread, place_of

NAME = "Module.m.M.forward.0"


@pytest.mark.parametrize(
    ("role", "path", "place"),
    [
        ("input", ("0",), "input.0"),
        ("kwargs", ("cache",), "input.cache"),
        ("output", ("0", "h"), "output.0.h"),
        ("parameters", ("w",), "parameters.w"),
        ("", ("a", "1"), "a.1"),
        ("", (), ""),
    ],
)
def test_a_place_is_the_key_of_its_row(role: str, path: tuple[str, ...], place: str) -> None:
    assert place_of(role, path) == place


def test_grouped_by_what_it_is_and_where() -> None:
    notes, meta = Notes(), {}
    for call in range(3):
        notes.add((f"Module.m.M.forward.{call}", "kwargs", ("cache",), "a Cache"))
    notes.put_into(meta)
    notes.add((NAME, "output", ("0",), "a set"))
    notes.add((NAME, "output", ("0",), "a set"))  # a name that is used again
    notes.put_into(meta)
    assert meta == {KEY: {"a Cache": {"input.cache": [f"Module.m.M.forward.{call}" for call in range(3)]}, "a set": {"output.0": [NAME]}}}
    listed = Unread(json.loads(json.dumps(meta)))
    assert listed and listed.complete and listed.entries == {f"Module.m.M.forward.{call}" for call in range(3)}
    assert listed.what(f"{NAME}.input.cache") == "a Cache" and listed.what(f"{NAME}.output.0") == "a set"
    assert listed.what(f"{NAME}.input.0") is None


def test_nothing_is_said_where_there_is_nothing() -> None:
    notes, meta = Notes(), {}
    notes.put_into(meta)
    notes.keep([], meta)
    assert meta == {} and not Unread(meta)


def test_entries_that_were_not_written_are_forgotten() -> None:
    notes, meta = Notes(), {}
    for name in (NAME, "other"):
        notes.add((name, "input", ("0",), "a set"))
    notes.put_into(meta)
    notes.keep({NAME}, meta)
    assert meta == {KEY: {"a set": {"input.0": [NAME]}}}
    notes.keep(set(), meta)
    assert meta == {}


def test_it_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "MOST", 2)
    notes, meta = Notes(), {}
    for call in range(5):
        notes.add((f"a.{call}", "input", ("0",), "a set"))
    notes.put_into(meta)
    assert meta == {KEY: {"a set": {"input.0": ["a.0", "a.1"]}}, MORE: 3}
    listed = Unread(meta)
    assert listed and not listed.complete
    assert listed.what("a.4.input.0") is not None  # nobody knows


@pytest.mark.parametrize(
    "damaged",
    [1, [], "x", {"a set": 1}, {"a set": {"input.0": {"x": 1}}}, {"a set": {"input.0": [1, None, ["y"]]}}],
)
def test_of_a_damaged_list_nobody_knows_what_it_left_out(damaged: Any) -> None:
    listed = Unread({KEY: damaged})
    assert listed and listed.damaged and not listed.complete
    assert listed.what("a.0.input.0") == Unread(None).what("a.0.input.0") == "what may be a value or None (its meta.json cannot be read)"


def test_what_can_be_read_of_a_damaged_list_holds() -> None:
    listed = Unread({KEY: {"a set": {"input.0": [1, NAME]}, "a Cache": 3}})
    assert listed.damaged and listed.what(f"{NAME}.input.0") == "a set" and listed.entries == {NAME}


def test_a_step_without_a_list_has_none_for_every_null() -> None:
    for meta in ({}, {"step": 0}, {KEY: {}}):
        listed = Unread(meta)
        assert not listed and listed.complete and not listed.damaged and listed.what(f"{NAME}.input.0") is None
