"""Lines of ours that formatters and people have changed: what is still ours goes, what is not is never broken silently."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from instrument.corpus import HERE
from msprobe.instrument.disabling import Removal
from msprobe.instrument.removing import names_of, uses, without_ours
from msprobe.instrument.script import Script
from msprobe.instrument.source import read
from msprobe.instrument.undo import undo


def of(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def enabled(name: str, config: str = "./config.json") -> str:
    script = Script(read(HERE / name))
    (candidate,) = [one for one in script.candidates if one.recommended]
    return script.enabled(candidate, candidate.models, config)


def formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


LONG = "/a/directory/with/a/long/name/so/that/the/line/is/broken.json"


@pytest.mark.parametrize("name", ["plain.py", "exits.py", "accelerate_loop.py", "one_line_breaks.py", "one_line.py", "match_and_walrus.py"])
def test_a_formatter_makes_no_line_of_ours_an_edited_one(name: str) -> None:
    text = formatted(enabled(name, LONG))
    assert "\n)  # +msprobe" in text
    result = undo(text)
    assert result.edited == []
    assert _without_blanks(formatted(result.text)) == _without_blanks(formatted(of(name)))


def _without_blanks(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


CHANGES = {
    "no mark at the debugger": (r"^(debugger = .*?)  # \+msprobe.*$", r"\1"),
    "no mark at seed_all": (r"^(seed_all\(\))  # \+msprobe.*$", r"\1"),
    "no mark at start": (r"^(\s*debugger.start.*?)  # \+msprobe.*$", r"\1"),
    "another seed": (r"^seed_all\(\)", "seed_all(42)"),
    "another model": (r"debugger\.start\(model\)", "debugger.start([model,\n        model])"),
    "more on the line": (r"^(\s*)debugger\.stop\(\)  #", r"\1x = 1; debugger.stop(); y = 2  #"),
    "alone in a block": (r"^(\s*)debugger\.start\(model\)  #", r"\1if x is not None:\n\1    debugger.start([model])  #"),
    "alone on one line": (r"^(\s*)debugger\.start\(model\)  #", r"\1if x is not None: debugger.start(model)  #"),
    "in another order": (r"^(\s*)debugger\.start\(model\)  #", r"\1debugger.stop(); debugger.step(); debugger.start(model)  #"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_that_needs_what_is_taken_out_is_left_without_a_word(change: str, tmp_path: Path) -> None:
    """The mark is gone, or the line was edited: `keep` leaves all it needs, `remove` nothing that needs it."""
    text = re.sub(*CHANGES[change], enabled("plain.py"), count=1, flags=re.MULTILINE)
    path = tmp_path / "script.py"
    path.write_text(text)
    assert [one.id for one in Removal(str(path)).answer(None).questions] == ["edited"]

    kept = Removal(str(path))
    kept.answer("keep")
    assert kept.text is not None
    compile(kept.text, "script.py", "exec")
    assert "from msprobe.pytorch import" in kept.text
    assert uses(kept.text, names_of(text)) == []

    bare = Removal(str(path))
    assert not any("still use" in note for note in bare.answer("remove").notes)
    assert bare.text is not None
    compile(bare.text, "script.py", "exec")
    assert not re.search(r"debugger|seed_all|msprobe", bare.text)
    if "if x" not in bare.text and "x = 1" not in bare.text:
        assert bare.text == of("plain.py")
    elif "x = 1" in bare.text:
        assert "x = 1; y = 2\n" in bare.text


@pytest.mark.parametrize("line", ["print(debugger)", "d = debugger", "PrecisionDebugger.save(1, 'x')", "    debugger.save(1, 'x')"])
def test_lines_of_the_user_that_need_ours_are_asked_about_and_told(line: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"{enabled('plain.py')}if True:\n{line if line.startswith(' ') else '    ' + line}\n")
    answer = Removal(str(path)).answer(None)
    assert line.strip() in answer.questions[0].text
    removal = Removal(str(path))
    assert any(line.strip() in note for note in removal.answer("remove").notes)
    assert removal.text == f"{of('plain.py')}if True:\n    {line.strip()}\n"


@pytest.mark.parametrize("line", ["x.debugger = 1", "f(debugger=1)", "s = 'debugger'", "# debugger", "debugger = None"])
def test_the_same_word_elsewhere_is_no_use(line: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"{enabled('plain.py')}{line}\n")
    removal = Removal(str(path))
    assert removal.answer(None).status == "ready"
    assert removal.text == f"{of('plain.py')}{line}\n"


@pytest.mark.parametrize("edited", ["keep", "remove"])
def test_an_edited_return_still_gives_its_value_back(edited: str, tmp_path: Path) -> None:
    """Its value is kept in a name until the step is ended; without the last line the function would return None."""
    text = enabled("function_returns_forward.py")
    assert "msprobe_result = " in text and "return msprobe_result" in text
    path = tmp_path / "script.py"
    path.write_text(text.replace("msprobe_result = self.model(request)  #", "msprobe_result = 2 * self.model(request)  #"))
    removal = Removal(str(path))
    removal.answer(edited)
    assert removal.text is not None
    if edited == "keep":
        assert "return msprobe_result" in removal.text
    else:
        assert removal.text == of("function_returns_forward.py").replace(
            "return self.model(request)  #", "return 2 * self.model(request)  #"
        )


@pytest.mark.parametrize("condition", ["if x is not None:\n        ", "if x is not None: "])
def test_a_condition_around_a_line_of_ours_is_left_with_a_pass(condition: str, tmp_path: Path) -> None:
    """Our line was not edited, but without it the block of the user's would be empty and the script no Python."""
    path = tmp_path / "script.py"
    path.write_text(enabled("plain.py").replace("    debugger.start(model)  #", f"    {condition}debugger.start(model)  #"))
    removal = Removal(str(path))
    answer = removal.answer("remove" if condition.endswith(": ") else None)
    assert (answer.status, removal.text) == ("ready", of("plain.py").replace(*_with_pass(condition)))


def _with_pass(condition: str) -> tuple[str, str]:
    body = of("plain.py").partition(":\n    ")[2].partition("\n")[0]
    return f"    {body}\n", f"    {condition}pass\n    {body}\n"


def test_a_script_is_never_left_broken(tmp_path: Path) -> None:
    """What cannot be taken out is told, and the file stays as it is."""
    text = enabled("plain.py").replace("debugger.start(model)", "debugger.start(model")
    assert undo(text).edited
    assert "debugger.start(" not in without_ours(text, names_of(text))
    compile(without_ours(text, names_of(text)), "script.py", "exec")
