"""Two processes with DistributedDataParallel over gloo: the same gradients with and without the tool, one directory for each rank."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from capturing import Step, environment

import warm_python

HERE = Path(__file__).parent
LEVELS = ("L0", "L1", "mix")
KINDS = ("plain", "bucket views", "unused")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The directory of the dumps, and what each rank found."""
    directory = tmp_path_factory.mktemp("ddp")
    path = {**environment(), "GLOO_SOCKET_IFNAME": "lo"}
    path["PYTHONPATH"] += f":{HERE}"
    port = str(free_port())
    command = [*warm_python.command(), str(HERE / "ddp_training.py")]
    ranks = [subprocess.Popen([*command, str(r), "2", port, str(directory)], env=path, stderr=subprocess.PIPE, text=True) for r in range(2)]
    try:
        errors = [rank.communicate(timeout=180)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)[-4000:]
    return directory, [json.loads((directory / f"outcome{r}.json").read_text()) for r in range(2)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_each_rank(trained: tuple[Path, list[dict[str, Any]]], kind: str, level: str) -> None:
    for outcome in trained[1]:
        assert outcome[f"{kind} {level}"] == outcome[f"{kind} without"]


def test_ranks_draw_their_own_data(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    """Otherwise equal gradients would show nothing about the reduction."""
    first, second = (outcome["plain without"] for outcome in trained[1])
    assert first != second and first[0] == second[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_has_its_directory(trained: tuple[Path, list[dict[str, Any]]], kind: str, level: str) -> None:
    for number in range(3):
        below = trained[0] / f"{kind} {level}" / f"step{number}"
        assert sorted(p.name for p in below.iterdir()) == ["rank0", "rank1"]
        names = [Step(below / f"rank{rank}").names for rank in range(2)]
        assert names[0] and sorted(names[0]) == sorted(names[1])
        if level != "L1":
            assert "Module.module.0.Linear.backward.1" in names[0]
            assert "Module.module.0.Linear.parameters_grad.1" in names[0]
        if level != "L0":
            assert "Functional.linear.5.backward" in names[0]
