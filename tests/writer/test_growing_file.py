"""Two files one flush apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.writer import exchange, growing_file
from msprobe.writer.growing_file import GrowingFile, hidden_name, write_new
from writer.interruption import interrupted


def make(directory: Path, name: str = "a.json") -> GrowingFile:
    file = GrowingFile(str(directory), name, '{\n "data": {', "}\n}", "\n }\n}")
    write_new(file.path, file.shell)
    file.restart()
    return file


def test_a_file_that_was_never_made(tmp_path: Path) -> None:
    file = GrowingFile(str(tmp_path), "a.json", '{\n "data": {', "}\n}", "\n }\n}")
    file.flush()
    assert content(file) == {} and os.listdir(tmp_path) == ["a.json"]
    file.append(member("k"), entries=1)
    file.flush()
    assert content(file) == {"k": 1}
    other = GrowingFile(str(tmp_path), "b.json", '{\n "data": {', "}\n}", "\n }\n}")
    other.append(member("k"), entries=1)
    other.finish()
    assert content(other) == {"k": 1} and sorted(os.listdir(tmp_path)) == [".a.json.next", "a.json", "b.json"]


def member(key: str, value: Any = 1) -> bytes:
    return f'\n  "{key}": {value}'.encode()


def content(file: GrowingFile) -> dict[str, Any]:
    text = Path(file.path).read_text()
    assert len(text) == file.size
    document = json.loads(text)
    assert text == json.dumps(document, indent=1)
    data: dict[str, Any] = document["data"]
    return data


def test_growth(tmp_path: Path) -> None:
    file = make(tmp_path)
    expected: dict[str, int] = {}
    assert content(file) == {}
    for number in range(7):
        file.append(member(f"k{number}", number), entries=1)
        expected[f"k{number}"] = number
        assert (file.entries, file.waiting_entries) == (number, 1)
        file.flush()
        assert (file.entries, file.waiting_entries, file.waiting) == (number + 1, 0, 0)
        assert content(file) == expected
    file.finish()
    assert content(file) == expected
    assert os.listdir(tmp_path) == ["a.json"]


def test_transient_members_come_last_and_go_again(tmp_path: Path) -> None:
    file = make(tmp_path)
    file.flush((member("t", 1),))
    assert content(file) == {"t": 1}
    file.append(member("a"))
    file.flush((member("long", "9" * 3000),))
    assert list(content(file)) == ["a", "long"]
    file.flush((member("t", 3),))
    assert content(file) == {"a": 1, "t": 3}
    file.append(member("b"))
    file.flush()
    assert list(content(file)) == ["a", "b"]


def test_each_flush_writes_what_is_new_not_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path)
    written = 0
    real = growing_file.write_at

    def counting(descriptor: int, pieces: tuple[bytes, ...], offset: int) -> None:
        nonlocal written
        written += sum(map(len, pieces))
        real(descriptor, pieces, offset)

    monkeypatch.setattr(growing_file, "write_at", counting)
    for number in range(200):
        file.append(member(f"k{number:04}", "1" * 100))
        file.flush()
    assert file.size < written < 2.5 * file.size


@pytest.mark.parametrize("system", ["whole", "short", "without pwritev"])
def test_pieces_however_the_system_takes_them(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one call takes, and a call that takes a part of a piece, a whole piece, or several."""
    calls = []
    if system == "without pwritev":
        monkeypatch.delattr(os, "pwritev")
    else:

        def writing(descriptor: int, pieces: list[bytes], offset: int, real: Any = os.pwritev) -> int:
            calls.append(len(pieces))
            data = b"".join(pieces)
            taken = data if system == "whole" else data[: (1, 4, len(pieces[0]), 5000)[len(calls) % 4]]
            return real(descriptor, pieces if system == "whole" else [taken], offset)

        monkeypatch.setattr(os, "pwritev", writing)
    file = make(tmp_path)
    members = {f"k{number}": number for number in range(3000)}
    file.append(*(member(key, value) for key, value in members.items()), b"", entries=3000)
    file.flush((member("t1"), member("t2")))
    assert content(file) == {**members, "t1": 1, "t2": 1}
    file.finish()
    assert content(file) == members and file.entries == 3000
    assert max(calls, default=0) <= os.sysconf("SC_IOV_MAX")


def test_finish_without_a_flush_before_and_flush_after(tmp_path: Path) -> None:
    file = make(tmp_path)
    file.append(member("a"))
    file.finish((member("t"),))
    assert content(file) == {"a": 1, "t": 1}
    file.append(member("b"))
    file.flush()
    file.append(member("c"))
    file.flush()
    assert list(content(file)) == ["a", "b", "c"]
    file.finish()
    assert os.listdir(tmp_path) == ["a.json"]


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    file = make(tmp_path)
    before = os.stat(file.path)
    file.flush()
    file.finish()
    after = os.stat(file.path)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_shells_that_share_an_inode_are_never_extended(tmp_path: Path) -> None:
    file = make(tmp_path)
    os.link(file.path, tmp_path / "other.json")
    for number in range(4):
        file.append(member(f"k{number}"))
        file.flush()
    file.finish()
    assert (tmp_path / "other.json").read_bytes() == file.shell
    assert len(content(file)) == 4


def test_replace(tmp_path: Path) -> None:
    file = make(tmp_path)
    for number in range(3):
        file.append(member(f"k{number}"), entries=1)
        file.flush()
    file.append(member("lost"))
    file.replace(member("only"), 1)
    assert json.loads(file.text())["data"] == {"only": 1}
    file.append(member("more"), entries=1)
    file.flush()
    assert content(file) == {"only": 1, "more": 1}
    file.replace(b"")
    file.flush()
    assert content(file) == {}


def test_text_is_what_a_flush_would_write(tmp_path: Path) -> None:
    file = make(tmp_path)
    for number in range(3):
        file.append(member(f"k{number}"))
        text = file.text()
        file.flush()
        assert text == Path(file.path).read_text()


@pytest.mark.parametrize("step", ["open", "pwritev", "ftruncate", "exchange"])
def test_a_failed_flush_leaves_the_file_and_can_be_repeated(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for flushes_before in range(4):
        file = make(tmp_path, f"{flushes_before}.json")
        expected = []
        for number in range(flushes_before):
            file.append(member(f"k{number}"))
            file.flush()
            expected.append(f"k{number}")
        file.append(member("new"))
        before = Path(file.path).read_bytes()

        def fail(*args: Any, real: Any = os.pwrite) -> None:
            if step == "pwritev":
                real(args[0], b"".join(args[1])[:7], args[2])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*((growing_file, step) if step == "exchange" else (os, step)), fail)
            failed = False
            for _ in range(2):
                try:
                    file.flush()
                except OSError:
                    failed = True
                    assert Path(file.path).read_bytes() == before
        assert failed or (step == "ftruncate" and flushes_before < 2)
        file.append(member("later"))
        file.flush()
        assert list(content(file)) == [*expected, "new", "later"]


@pytest.mark.parametrize("which", ["hidden", "final", "final changed"])
def test_files_taken_away(which: str, tmp_path: Path) -> None:
    file = make(tmp_path)
    for number in range(3):
        file.append(member(f"k{number}"))
        file.flush()
    assert file.intact()
    file.append(member("new"))
    if which == "hidden":
        os.unlink(file.hidden)
        file.flush()
        assert list(content(file)) == ["k0", "k1", "k2", "new"]
        return
    if which == "final":
        os.unlink(file.path)
    else:
        Path(file.path).write_text("x")
        os.unlink(file.hidden)
    assert not file.intact()
    with pytest.raises(FileNotFoundError):
        file.flush()
    write_new(file.path, file.shell)
    file.restart()
    file.flush()
    assert content(file) == {"new": 1}


def test_a_twin_whose_making_anew_was_cut_off_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path)
    for number in range(4):
        file.append(member(f"k{number}"))
        file.flush()
    os.unlink(file.hidden)
    file.append(member("new"))

    def full(descriptor: int, pieces: list[bytes], offset: int, real: Any = os.pwrite) -> None:
        real(descriptor, b"".join(pieces)[:20], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "pwritev", full)
        file.flush()
    file.flush()
    assert list(content(file)) == ["k0", "k1", "k2", "k3", "new"]


def test_the_text_of_a_file_that_was_never_made(tmp_path: Path) -> None:
    file = GrowingFile(str(tmp_path), "a.json", '{\n "data": {', "}\n}", "\n }\n}")
    assert json.loads(file.text()) == {"data": {}}
    file.append(member("k"))
    assert json.loads(file.text()) == {"data": {"k": 1}}


def test_a_finish_with_nothing_new_sees_that_the_file_is_gone(tmp_path: Path) -> None:
    file = make(tmp_path)
    file.append(member("k"))
    file.flush()
    os.unlink(file.path)
    with pytest.raises(FileNotFoundError):
        file.finish()


def test_nothing_is_kept_in_memory_once_it_is_let_go(tmp_path: Path) -> None:
    file = GrowingFile(str(tmp_path), "a.json", '{\n "data": {', "}\n}", "\n }\n}")
    file.append(member("k"))
    _, advance = file.whole()
    advance()
    file.let_go()
    assert (file._state.carry, file._state.new) == ((), ())


def test_without_exchange_and_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_atomic_exchange", lambda first, second: False)

    def refuse(source: str, target: str) -> None:
        raise OSError(1, "Operation not permitted")

    for name in ("links.json", "nothing.json"):
        file = make(tmp_path, name)
        for number in range(5):
            file.append(member(f"k{number}"))
            file.flush((member("t"),))
            assert list(content(file)) == [*(f"k{n}" for n in range(number + 1)), "t"]
        file.finish()
        monkeypatch.setattr(os, "link", refuse)
    assert sorted(os.listdir(tmp_path)) == ["links.json", "nothing.json"]


def test_a_link_in_place_of_the_hidden_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = make(tmp_path)
    os.symlink(victim, hidden_name(str(tmp_path), "a.json"))
    for number in range(3):
        file.append(member(f"k{number}"))
        file.flush()
    assert victim.read_text() == "precious"
    os.unlink(file.hidden)
    os.symlink(victim, file.hidden)
    file.append(member("more"))
    with pytest.raises(OSError, match="symbolic links"):
        file.flush()
    assert victim.read_text() == "precious"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["append", "flush", "transient", "finish", "replace", "interrupt"]), max_size=25), st.data())
def test_any_sequence_with_interruptions(tmp_path: Path, steps: list[str], data: st.DataObject) -> None:
    """An exception at any line of a flush loses nothing and doubles nothing: the next flush makes the file right."""
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    file = make(tmp_path)
    expected: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step == "append":
            file.append(member(f"k{number}"), entries=1)
            expected[f"k{number}"] = 1
        elif step == "replace":
            file.replace(member(f"r{number}"), 1)
            expected = {f"r{number}": 1}
        elif step == "interrupt":
            interrupted(data.draw(st.sampled_from([file.flush, file.finish])), data.draw(st.integers(1, 70)))
            json.loads(Path(file.path).read_text())
        else:
            transient = {f"t{number}": 1} if step == "transient" else {}
            (file.finish if step == "finish" else file.flush)(tuple(map(member, transient)))
            assert content(file) == {**expected, **transient}
    file.finish()
    assert content(file) == expected
    assert file.entries == len(expected)
    assert os.listdir(tmp_path) == ["a.json"]
