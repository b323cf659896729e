"""`rank` counts from 0 on every node, and one setting holds for all of them; directories have the rank among all processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
PYTHON = os.environ.get("MSPROBE_MINDSPORE_PYTHON", "")
HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
LEVELS = ("L0", "L1", "mix", "debug", "static")


@pytest.fixture(scope="module")
def second(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_mindspore("ranks/stand_in.py", tmp_path_factory.mktemp("stand_in"))


@pytest.mark.parametrize("level", LEVELS)
def test_the_place_in_the_node_selects_and_the_rank_among_all_names_the_directory(second: Any, level: str) -> None:
    assert second[f"{level}_known_1"]["places"] == ["step0/rank9"]
    assert second[f"{level}_known_9"]["places"] == []
    assert 'nothing was recorded: "rank" does not select rank 1 of its node' in second[f"{level}_known_9"]["told"]


@pytest.mark.parametrize("level", LEVELS)
def test_where_mindspore_does_not_say_it_is_the_rank_among_all_and_told(second: Any, level: str) -> None:
    assert second[f"{level}_unknown_9"]["places"] == ["step0/rank9"] and second[f"{level}_unknown_1"]["places"] == []
    (line,) = [text for text in second[f"{level}_unknown_9"]["told"] if "does not say which process of its node" in text]
    assert line.endswith("so it is compared with the rank among all")


def test_a_rank_by_hand_names_the_directory_and_selects_nothing(second: Any) -> None:
    assert second["by_hand"]["places"] == ["step0/rank20"]


def test_single_values_of_graphs_go_to_the_rank_among_all(second: Any) -> None:
    assert second["saved"] == ["saved/step0/rank9/x_float32_0.npy"]


def test_kernels_on_a_cpu_which_does_not_look_at_devices(second: Any) -> None:
    """On other devices MindSpore itself compares `support_device` with the number of the device."""
    assert second["L2_1"]["variable"] is not None and second["L2_9"]["variable"] is None
    assert not any("does not look at" in text for text in second["L2_1"]["told"])
    assert any('nothing is recorded: "rank" does not select rank 1 of this node' in text for text in second["L2_9"]["told"])


def test_kernels_without_rank_are_those_of_every_device_of_the_node(second: Any) -> None:
    settings = json.loads(Path(second["L2_0"]["variable"]).read_text(encoding="utf-8"))["common_dump_settings"]
    assert settings["support_device"] == list(range(16))


def _may_name_nodes() -> bool:
    """MindSpore knows nodes by the name of the host; a process gets one of its own where the system lets us."""
    try:
        return subprocess.run(["unshare", "--uts", "true"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def _processes(directory: Path, nodes: tuple[str, ...]) -> list[Any]:
    """What the workers have answered; one for each element of `nodes`, on a host of that name, where it is not empty."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "GLOG_v": "3", "MS_WORKER_NUM": str(len(nodes)),
        "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(port),
    }  # fmt: skip
    started = []
    for number, (role, node) in enumerate([*(("MS_WORKER", node) for node in nodes), ("MS_SCHED", "")]):
        own = {**environment, "MS_ROLE": role, **({"MS_NODE_ID": str(number)} if role == "MS_WORKER" else {})}
        command = [PYTHON, str(HERE / "worker.py"), str(directory / f"answer{number}.json")]
        if node:
            command = ["unshare", "--uts", "sh", "-c", f'hostname {node}; exec "$@"', "sh", *command]
        with (directory / f"output{number}.txt").open("w") as output:
            started.append(subprocess.Popen(command, cwd=directory, env=own, stdout=output, stderr=subprocess.STDOUT))
    try:
        for number, process in enumerate(started[:-1]):
            assert process.wait(timeout=150) == 0, (directory / f"output{number}.txt").read_text(encoding="utf-8")[-3000:]
        started[-1].wait(timeout=60)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
    return [json.loads((directory / f"answer{number}.json").read_text(encoding="utf-8")) for number in range(len(nodes))]


def _recorded(directory: Path, name: str) -> list[str]:
    return sorted(path.parent.name for path in (directory / name).rglob("d*.json") if path.parent.parent.name == "step0")


@pytest.fixture(scope="module")
def of_one_node(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    directory = tmp_path_factory.mktemp("of_one_node")
    return directory, _processes(directory, ("", ""))


def test_two_processes_of_one_node(of_one_node: tuple[Path, list[Any]]) -> None:
    tmp_path, answers = of_one_node
    assert [(answer["rank"], answer["in_node"]) for answer in answers] == [(0, 0), (1, 1)]
    for level in ("L0", "L1", "mix", "debug"):
        assert _recorded(tmp_path, f"{level}_all") == ["rank0", "rank1"]
        assert _recorded(tmp_path, f"{level}_0") == ["rank0"] and _recorded(tmp_path, f"{level}_1") == ["rank1"]
        assert _recorded(tmp_path, f"{level}_5") == []  # no such rank runs
    assert _recorded(tmp_path, "static_0") == ["rank0"]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "saved").rglob("*.npy")) == [
        "saved/step0/rank0/x_float32_0.npy", "saved/step0/rank1/x_float32_0.npy",
    ]  # fmt: skip
    assert {path.relative_to(tmp_path / "L2_1").parts[0] for path in (tmp_path / "L2_1").rglob("*.npy")} == {"rank_1"}


def test_communication_is_recorded_with_what_it_writes_and_changes_nothing(of_one_node: tuple[Path, list[Any]]) -> None:
    directory, answers = of_one_node
    for rank, answer in enumerate(answers):
        bare, recorded = answer["communication"]
        assert bare == recorded and bare == [[3.0] * 3, [7.0] * 3, [3.0] * 3, [14.0] * 3, None, 1]
        place = directory / "communication" / "step0" / f"rank{rank}"
        data = json.loads((place / "dump.json").read_text(encoding="utf-8"))["data"]
        assert not [name for name in data if name.endswith(".backward")]
        summed = data["MintDistributed.all_reduce.0.forward"]
        assert [record["Max"] for record in (summed["input_args"][0], summed["output"][0])] == [rank + 1.0, 3.0]
        passed = data["MintDistributed.recv.0.forward"]
        assert passed["input_args"] == [None] and passed["output"][0]["Max"] == 7.0  # a buffer that holds nothing yet
        later = data["MintDistributed.all_reduce.1.forward"]
        assert later["output"] == [None] and later["input_args"][0]["Max"] == rank + 1.0
        assert "still runs when the call returns" in (place / "dump_error_info.log").read_text(encoding="utf-8")
        assert data["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 14.0


def test_two_nodes_of_one_process_each(tmp_path: Path) -> None:
    if not _may_name_nodes():
        pytest.skip("a process with a host name of its own needs unshare --uts, which this user may not run")
    answers = _processes(tmp_path, ("first-node", "second-node"))
    assert [(answer["rank"], answer["in_node"]) for answer in answers] == [(0, 0), (1, 0)]
    for level in ("L0", "L1", "mix", "debug"):
        assert _recorded(tmp_path, f"{level}_0") == ["rank0", "rank1"] == _recorded(tmp_path, f"{level}_all")
        assert _recorded(tmp_path, f"{level}_1") == []
    assert _recorded(tmp_path, "static_0") == ["rank0", "rank1"]
    assert not list((tmp_path / "L2_1").rglob("*.npy"))
