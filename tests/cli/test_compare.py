from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from comparison.dumps import api, malicious, read_csv, tensor, tensor_call, truncated, write_dump
from comparison.net import Net
from msprobe.cli import compare as command
from msprobe.cli.main import main

Captured = pytest.CaptureFixture[str]


def run(target: Path, golden: Path, tmp_path: Path, *options: str) -> int:
    return main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path / "out"), *options])


def test_nothing_differs(tmp_path: Path, capsys: Captured) -> None:
    assert run(Net().write(tmp_path / "a"), Net().write(tmp_path / "b"), tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    first, result, blind, last = captured.out.splitlines()
    assert blind.startswith("  Max, Min, Mean and Norm do not show everything")
    assert first == "41 rows matched, 0 unmatched: 41 pass, 0 warning, 0 error, 0 not compared"
    assert result.startswith("result: ") and Path(result.removeprefix("result: ")).is_file()
    assert last == "No difference in what both sides recorded."


def test_a_dump_beside_itself_is_told(tmp_path: Path, capsys: Captured) -> None:
    path = Net().write(tmp_path / "a" / "step0" / "rank0").parents[2]
    (tmp_path / "link").symlink_to(path)
    for other in (path, tmp_path / "link"):
        assert run(path, other, tmp_path) == 0
        assert "warning: -tp and -gp lead to one dump, which was compared with itself" in capsys.readouterr().out.splitlines()


def test_what_was_not_compared_is_said_last(tmp_path: Path, capsys: Captured) -> None:
    for side in "ab":
        for step in (0, 1):
            Net().write(tmp_path / side / f"step{step}" / "rank0")
    broken = tmp_path / "a" / "step0" / "rank0" / "dump.json"
    broken.write_bytes(broken.read_bytes()[:1500])
    assert run(tmp_path / "a", tmp_path / "b", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-2:] == [
        "No difference in what could be compared.",
        "Not compared: step0 rank0 (standard error says why)",
    ]
    assert "dump.json is cut off: nothing follows what begins at line " in captured.err
    assert run(tmp_path / "a" / "step0", tmp_path / "b" / "step0", tmp_path) == 2
    assert capsys.readouterr().out.splitlines()[-1] == "Not compared: rank0 (standard error says why)"


def test_something_differs(tmp_path: Path, capsys: Captured) -> None:
    target, golden = Net(fc_gain=2.0).write(tmp_path / "a"), Net().write(tmp_path / "b")
    assert run(target, golden, tmp_path) == 1
    out = capsys.readouterr().out
    assert (
        "First difference: Functional.linear.0.forward in Module.blocks.0.fc.Linear.forward.0 (inputs equal, parameters equal, output"
        in out
    )
    assert "  at /home/me/model.py:100 in forward: y = self.part0(x)" in out
    assert run(target, golden, tmp_path, "--exit-zero") == 0


def test_reports_that_are_asked_for(tmp_path: Path, capsys: Captured) -> None:
    target, golden = Net(relu_gain=2.0).write(tmp_path / "a"), Net().write(tmp_path / "b")
    assert run(target, golden, tmp_path, "--xlsx", "--jsonl", "--html") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Inputs equal, `relu` in `blocks.0` differs (forward): model.py:102"
    written = [Path(line.partition(": ")[2]) for line in out if line.startswith(("result: ", "report: "))]
    assert [path.suffix for path in written] == [".csv", ".xlsx", ".jsonl", ".html"]
    assert sorted(written) == sorted((tmp_path / "out").iterdir())


def test_an_unmatched_row_is_something(tmp_path: Path) -> None:
    assert run(Net(dropped=("Functional.mse_loss",)).write(tmp_path / "a"), Net().write(tmp_path / "b"), tmp_path) == 1


def test_exit_zero_does_not_hide_that_it_could_not_be_done(tmp_path: Path, capsys: Captured) -> None:
    assert run(tmp_path / "none", tmp_path / "none", tmp_path, "--exit-zero") == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ["-tensor_log"],
        ["--consistent_check", "--backend", "fsdp"],
        ["--config", "x.yaml"],
        ["-m", "offline_data"],
    ],
)
def test_options_that_are_not_built_yet_say_so_in_one_line(options: list[str], tmp_path: Path, capsys: Captured) -> None:
    path = Net().write(tmp_path / "a")
    assert run(path, path, tmp_path, *options) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("msprobe compare: error: not available yet: ") and captured.err.count("\n") == 1
    assert options[0].strip("-")[:2] in captured.err
    assert not (tmp_path / "out").exists()


def test_unreadable_tensor_files_are_something(tmp_path: Path, capsys: Captured) -> None:
    """F1: code 0 and "ends successfully" for a tensor that was never read."""
    marker = tmp_path / "run"
    golden = tensor_call(tmp_path / "g", [1.0])
    for number, damage in enumerate((Path.unlink, truncated, lambda path: malicious(path, marker))):
        target = tensor_call(tmp_path / f"t{number}", [1.0])
        damage(next((target.parent / "dump_tensor_data").glob("*output*")))
        assert run(target, golden, tmp_path) == 1
        assert "1 not compared although recorded; the first: Torch.op.0.forward.output.0: " in capsys.readouterr().out
    assert not marker.exists()


def test_a_broken_rank_is_named_on_stderr_and_the_rest_compared(tmp_path: Path, capsys: Captured) -> None:
    for side in "ab":
        for rank in (0, 1):
            Net().write(tmp_path / side / f"rank{rank}")
    (tmp_path / "a" / "rank0" / "dump.json").write_text("{")
    assert run(tmp_path / "a", tmp_path / "b", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("rank1: 41 rows matched")
    assert captured.err.startswith("msprobe compare: error: rank0: ") and captured.err.count("\n") == 1


def test_nothing_could_be_measured(tmp_path: Path, capsys: Captured) -> None:
    empty = tensor(Max=None, Min=None, Mean=None, Norm=None)
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([], [empty])})
    assert run(path, path, tmp_path) == 2
    captured = capsys.readouterr()
    assert "none of the 1 pairs of values could be compared" in captured.err
    assert "No difference" not in captured.out


def test_ranks_that_differ_are_listed_and_the_one_that_computes_otherwise_is_shown(tmp_path: Path, capsys: Captured) -> None:
    def data(sent: float, received: float) -> dict[str, object]:
        return {
            "Torch.mul.0.forward": api([tensor()], [tensor(sent)]),
            "Distributed.all_reduce.0.forward": api([tensor(sent)], [tensor(received)]),
        }

    for rank, target in ((0, data(1.0, 9.0)), (1, data(5.0, 9.0))):
        write_dump(tmp_path / "a" / f"rank{rank}", target)
        write_dump(tmp_path / "b" / f"rank{rank}", data(1.0, 2.0))
    assert run(tmp_path / "a", tmp_path / "b", tmp_path) == 1
    out = capsys.readouterr().out
    assert "First difference of rank1: Torch.mul.0.forward" in out
    assert "  First difference of rank0: Distributed.all_reduce.0.forward" in out


def test_many_ranks_do_not_flood_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    data = {"Torch.a.0.forward": api([tensor()], [tensor()])}
    for step in range(40):
        write_dump(tmp_path / "a" / f"step{step}" / "rank0", data, stack={})
    assert run(tmp_path / "a", tmp_path / "a", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "40 more pairs: all 80 rows pass" and len(lines) < 10


def test_data_mapping(tmp_path: Path, capsys: Captured) -> None:
    target = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([], [tensor()])})
    golden = write_dump(tmp_path / "b", {"Torch.b.0.forward": api([], [tensor()])})
    mapping = tmp_path / "map.yaml"
    mapping.write_text("Torch.a.0.forward.output.0: Torch.b.0.forward.output.0\nTorch.nobody.0.forward.output.0: x\n")
    assert run(target, golden, tmp_path) == 2
    capsys.readouterr()
    assert run(target, golden, tmp_path, "-dm", str(mapping)) == 0
    assert "names 2 rows that do not exist, the first: Torch.nobody.0.forward.output.0" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: 3\n", "a: [", "\x00"])
def test_a_wrong_mapping_file_is_one_line(content: str, tmp_path: Path, capsys: Captured) -> None:
    path = Net().write(tmp_path / "a")
    (tmp_path / "map.yaml").write_text(content)
    assert run(path, path, tmp_path, "-dm", str(tmp_path / "map.yaml")) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(path, path, tmp_path, "-dm", str(tmp_path / "none.yaml")) == 2
    assert "does not exist" in capsys.readouterr().err


def test_an_output_path_that_is_a_file(tmp_path: Path, capsys: Captured) -> None:
    path = Net().write(tmp_path / "a")
    (tmp_path / "out").write_text("")
    assert run(path, path, tmp_path) == 2
    err = capsys.readouterr().err
    assert str(tmp_path / "out") in err and err.count("\n") == 1


def test_control_characters_of_a_hostile_dump_do_not_reach_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    name = "Torch.\x1b[31m\n.0.forward"
    target = write_dump(tmp_path / "a", {name: api([], [tensor(2.0)])})
    golden = write_dump(tmp_path / "b", {name: api([], [tensor(1.0)])})
    assert run(target, golden, tmp_path) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_colours_in_a_terminal_only(tmp_path: Path) -> None:
    path = Net().write(tmp_path / "a")
    leader, follower = pty.openpty()
    arguments = [sys.executable, "-m", "msprobe", "compare", "-tp", str(path), "-gp", str(path), "-o", str(tmp_path / "o")]
    source = str(Path(command.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(arguments, env=environment, stdout=follower)
    os.close(follower)
    text = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(leader)
    assert process.wait() == 0
    assert b"\x1b[" in text and b"41 rows matched" in text


def test_the_file_is_where_the_terminal_says(tmp_path: Path, capsys: Captured) -> None:
    target, golden = Net(relu_gain=2.0).write(tmp_path / "a"), Net().write(tmp_path / "b")
    run(target, golden, tmp_path)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("result: "))
    rows = {row["NPU Name"]: row for row in read_csv(Path(line.removeprefix("result: ")))}
    assert rows["Functional.relu.0.forward.output.0"]["Result"] == "error"


def test_steps_that_hold_nothing_in_common_are_one_line(tmp_path: Path, capsys: Captured) -> None:
    data = {"Torch.a.0.forward": api([tensor()], [tensor()])}
    xor = {"Torch.a.0.forward": api([tensor(Max=None, Min=None, Mean=None, Norm=None, md5="0x0123456789abcdef")], [])}
    for step in range(3):
        write_dump(tmp_path / "a" / f"step{step}" / "rank0", xor, task="tensor")
        write_dump(tmp_path / "b" / f"step{step}" / "rank0", data)
    assert run(tmp_path / "a", tmp_path / "b", tmp_path) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith("msprobe compare: error: step0 rank0: ")
        and "holds checksums (summary_mode xor)" in err
        and err.endswith(" (2 more pairs alike)\n")
    )
    assert err.count("\n") == 1


def test_every_message_names_the_command(tmp_path: Path, capsys: Captured) -> None:
    run(tmp_path / "none", tmp_path / "none", tmp_path)
    assert capsys.readouterr().err.startswith("msprobe compare: error: the target path ")


@pytest.mark.parametrize(("steps", "shown"), [(3, True), (4, False)])
def test_files_of_a_few_steps_are_named(steps: int, shown: bool, tmp_path: Path, capsys: Captured) -> None:
    for step in range(steps):
        write_dump(tmp_path / "a" / f"step{step}" / "rank0", {"Torch.a.0.forward": api([tensor()], [tensor()])}, stack={})
    assert run(tmp_path / "a", tmp_path / "a", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("result: ") for line in lines) == (steps if shown else 0)
    assert sum(line.startswith("summary: ") for line in lines) == 1


def test_many_notes_do_not_flood_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    for step in range(9):
        write_dump(tmp_path / "a" / f"step{step}" / "rank0", {"Torch.a.0.forward": api([tensor()], [tensor()])})
    run(tmp_path / "a", tmp_path / "a", tmp_path)
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 6 and notes[-1] == "note: ... and 4 more notes"


def test_where_the_files_of_many_pairs_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from comparison.dumps import api, tensor, write_dump

    for side in "tg":
        for step in range(2):
            for rank in range(2):
                write_dump(tmp_path / side / f"step{step}" / f"rank{rank}", {"Torch.a.0.forward": api([tensor()], [tensor()])})
    places = {"root": ("", "step*/"), "step": ("step1", "")}
    for name, (inner, star) in places.items():
        assert main(["compare", "-tp", str(tmp_path / "t" / inner), "-gp", str(tmp_path / "g" / inner), "-o", str(tmp_path / name)]) == 0
        told = capsys.readouterr().out
        if name == "root":
            assert f"results: {tmp_path / name}/{star}*compare_result_*.csv (4 files)" in told
        else:
            assert told.count("result: ") == 2
    assert len(list((tmp_path / "root").glob("step*/*compare_result_*.csv"))) == 4
