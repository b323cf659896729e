"""What was put in comes out again, whatever the formatting of the script and whatever was edited in between."""

from __future__ import annotations

import codecs
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from instrument.corpus import SCRIPTS
from msprobe.instrument import marks
from msprobe.instrument.removing import names_of, without_ours
from msprobe.instrument.script import Script
from msprobe.instrument.source import Source, check_syntax, line_end, split_lines
from msprobe.instrument.source import _decoded as decoded
from msprobe.instrument.undo import undo

TEXTS = {one.name: one.path.read_text(encoding="utf-8") for one in SCRIPTS}
PLAIN = TEXTS["plain.py"]
EXITS = TEXTS["exits.py"]


def source_of(data: bytes) -> Source:
    return decoded(SCRIPTS[0].path, "script.py", data)


def enabled(text: str) -> str:
    script = Script(source_of(text.encode()))
    candidate = next(one for one in script.candidates if one.recommended)
    return script.enabled(candidate, candidate.models, "./config.json")


ENABLED = {name: enabled(TEXTS[name]) for name in ("plain.py", "exits.py", "accumulation_one_line.py", "function_returns_forward.py")}


@st.composite
def formatted(draw: st.DrawFn) -> bytes:
    """A script of the corpus, formatted in another way that means the same."""
    text = TEXTS[draw(st.sampled_from(sorted(TEXTS)))].rstrip("\n")
    lines = split_lines(text)
    inside = set() if '"""' not in text and "'''" not in text else set(range(len(lines)))
    out = []
    for number, line in enumerate(lines):
        body = line.rstrip("\n")
        if number not in inside and not body.endswith("\\") and body.strip():
            body += draw(st.sampled_from(["", "", "", " ", "\t", "  # übrig", "#x"])) if "#" not in body else ""
        out.append(body)
        if number not in inside and not body.rstrip().endswith("\\"):
            out += draw(st.sampled_from([[], [], [], [""], ["   "], ["\x0c"], ["# ünder"], ["\t\t# far"]]))
    if draw(st.booleans()) and not inside:
        out = [re.sub(r"^(?:    )+", lambda found: "\t" * (len(found.group()) // 4), line) for line in out]
    text = "\n".join(out) + draw(st.sampled_from(["", "\n", "\n\n\n", "\n   ", "\n# end", "\n\x0c\n"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "latin-1", "cp1252"]))
    if encoding in ("latin-1", "cp1252"):
        text = f"# -*- coding: {encoding} -*-\n{text}"
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"])))
    return text.encode(encoding)


@given(formatted())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_byte_comes_back(data: bytes) -> None:
    try:
        compile(data, "script.py", "exec", dont_inherit=True)
    except SyntaxError:
        assume(False)  # Python itself does not take some of what is drawn
    source = source_of(data)
    check_syntax(source.text, "script.py")
    script = Script(source)
    for candidate in script.candidates[:2]:
        new = source.encoded(script.enabled(candidate, candidate.models, "/some/dir \u00e4/config.json"))
        compile(new, "script.py", "exec", dont_inherit=True)
        again = source_of(new)
        assert (again.encoding, again.data.startswith(codecs.BOM_UTF8)) == (source.encoding, data.startswith(codecs.BOM_UTF8))
        assert again.encoded(undo(again.text).text) == data
        ends = {line_end(line) for line in split_lines(again.text)} - {""}
        assert len(ends) <= 1


@given(st.sampled_from(sorted(ENABLED)), st.lists(st.integers(0, 200), max_size=8), st.booleans())
@settings(max_examples=30, deadline=None)
def test_lines_that_the_user_has_put_in_between_stay(name: str, places: list[int], deeper: bool) -> None:
    lines = split_lines(ENABLED[name])
    for number, place in enumerate(sorted(places, reverse=True)):
        lines.insert(place % (len(lines) + 1), f"# user {number}\n")
    if deeper:
        lines = [line if not line.strip() else "    " + line for line in lines]
    result = undo("".join(lines))
    assert result.edited == []
    left = split_lines(result.text)
    assert sum("# user" in line for line in left) == len(places)
    rest = [line for line in left if "# user" not in line]
    expected = split_lines(TEXTS[name])
    assert rest == ([line if not line.strip() else "    " + line for line in expected] if deeper else expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("debugger.start(model)", "debugger.start(net)"),
        ("    debugger.stop()  #", "    debugger.stop(); print(1)  #"),
        ('print("left"); debugger', 'print("gone"); debugger'),
        ("+msprobe", "+msprobe "),
    ],
)
def test_lines_of_ours_that_were_edited_are_told_and_left(old: str, new: str) -> None:
    text = ENABLED["exits.py"]
    assert old in text
    changed = text.replace(old, new, 1)
    result = undo(changed)
    (edited,) = result.edited
    first = next(n for n, (a, b) in enumerate(zip(split_lines(text), split_lines(changed), strict=True), 1) if a != b)
    assert edited == first or (edited == first - 1 and marks.told(split_lines(changed)[edited - 1]) is not None)
    assert result.taken == undo(text).taken - 1


def test_edited_lines_can_be_taken_out_too() -> None:
    text = ENABLED["exits.py"].replace("debugger.start(model)", "debugger.start(net)")
    assert without_ours(text, names_of(text)) == EXITS
    text = ENABLED["exits.py"].replace('print("left"); debugger', 'print("gone"); debugger')
    assert without_ours(text, names_of(text)) == EXITS.replace("left", "gone")


def test_white_space_at_the_end_of_our_lines_may_be_stripped() -> None:
    text = EXITS.replace('print("left"); continue', 'print("left"); continue   ')
    new = enabled(text)
    stripped = "".join(line.rstrip() + line_end(line) for line in split_lines(new))
    assert undo(stripped).edited == []
    assert undo(stripped).text == EXITS
    assert undo(new).text == text


def test_what_only_looks_like_ours_stays() -> None:
    line = next(line for line in split_lines(ENABLED["plain.py"]) if "debugger.stop()" in line)
    text = f'x = """\n{line}"""\ny = 1  # +msprobe 0000\n# + msprobe\n'
    result = undo(text)
    assert (result.text, result.taken, result.edited) == (text, 0, [4])


def test_a_line_without_end_at_the_end() -> None:
    text = PLAIN.rstrip("\n").rpartition("\n")[0]
    assert undo(enabled(text)).text == text
    more = enabled(text) + "\nprint(1)"
    assert undo(more).text == text + "\nprint(1)"


def test_lines_are_those_of_python() -> None:
    assert split_lines("a\x0cb\u2028c\nd\r\ne\rf\n\n") == ["a\x0cb\u2028c\n", "d\r\n", "e\r", "f\n", "\n"]
    assert split_lines("") == []
