"""Trainings over gloo: every gradient is there, before and after its reduction, and not a bit is changed by looking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Step
from ranks import run_ranks, step_of

KINDS = {
    "ddp": 2,
    "ddp accumulating": 3,
    "ddp views": 2,
    "ddp static": 2,
    "ddp checkpoint": 2,
    "ddp reentrant checkpoint": 2,
    "ddp python hook": 2,
    "ddp late": 2,
    "fsdp": 2,
    "fsdp accumulating": 3,
    "fsdp kept": 2,
    "tensor parallel": 1,
}
OF_FOUR = {"fsdp of tensor parallel": 2, "hybrid": 2}
"""Kind -> gradients of each parameter and step: one for each backward pass, and one more after the reduction."""
STEPS = (0, 1)
Trained = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("two")
    return directory, run_ranks("training_ranks.py", 2, directory)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("four")
    return directory, run_ranks("training_ranks.py", 4, directory)


def _runs_here(kind: str) -> bool:
    """fully_shard of torch 2.6 calls what streams of a CPU do not have there."""
    return hasattr(torch.cpu.Stream, "record_event") or not kind.startswith(("fsdp", "hybrid"))


def _skip_unless(kind: str) -> None:
    if not _runs_here(kind):
        pytest.skip("fully_shard of this torch does not run on a CPU")


@pytest.fixture
def trained(request: pytest.FixtureRequest, kind: str) -> Trained:
    _skip_unless(kind)
    result: Trained = request.getfixturevalue("two" if kind in KINDS else "four")
    return result


def gradients(step: Step) -> dict[str, list[dict[str, Any]]]:
    """Path of a parameter -> the records of its gradients, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, entry in step.data.items():
        module, found_it, number = name.partition(".parameters_grad.")
        if found_it:
            for parameter, (record,) in entry.items():
                path = ".".join([*module.split(".")[1:-1], parameter])
                assert len(found.setdefault(path, [])) == int(number), name
                found[path].append(record)
    return found


@pytest.mark.parametrize("kind", [*KINDS, *OF_FOUR])
def test_the_same_bits(trained: Trained, kind: str) -> None:
    for outcome in trained[1]:
        assert outcome[kind] == outcome[f"{kind} without"]


@pytest.mark.parametrize("kind", [*KINDS, *OF_FOUR])
def test_gradients_are_all_there_and_right(trained: Trained, kind: str) -> None:
    """The last one of a parameter is the gradient that the user finds in `.grad`, reduced (his own shard, where it is sharded)."""
    for rank, outcome in enumerate(trained[1]):
        norms = [item for item in outcome[kind] if isinstance(item, dict)]
        for number in STEPS:
            step = step_of(trained[0] / kind, number, rank)
            recorded = gradients(step)
            assert {path: len(records) for path, records in recorded.items()} == dict.fromkeys(norms[number], (KINDS | OF_FOUR)[kind])
            for path, norm in norms[number].items():
                assert math.isclose(recorded[path][-1]["Norm"], norm, rel_tol=1e-6), (rank, number, path)
            assert step.errors == ""


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_first_gradient_is_this_ranks_own(trained: Trained, kind: str) -> None:
    """Ranks have data of their own: what they compute differs, what they agree on does not."""
    first, second = (gradients(step_of(trained[0] / kind, 0, rank)) for rank in (0, 1))
    path = "module.1.up.weight" if kind == "ddp" else "1.up.weight"
    assert first[path][0]["shape"] == second[path][0]["shape"] == [6, 4]
    assert first[path][0]["Norm"] != second[path][0]["Norm"]
    if kind == "ddp":
        assert first[path][1] == second[path][1]
    else:
        assert first[path][1]["shape"] == [3, 4] and first[path][1]["placements"] == ["S(0)"]


def test_reduced_is_the_mean(two: Trained) -> None:
    """The mean of a mean over the ranks' own gradients is the reduced gradient's mean."""
    own, reduced = zip(*(gradients(step_of(two[0] / "ddp", 0, rank))["module.4.weight"] for rank in (0, 1)), strict=True)
    assert math.isclose(sum(record["Mean"] for record in own) / 2, reduced[0]["Mean"], rel_tol=1e-5)


def test_collectives_of_fully_shard(two: Trained) -> None:
    """Three groups of parameters: gathered before the forward pass, and the two inner ones again before the backward pass."""
    _skip_unless("fsdp")
    names = step_of(two[0] / "fsdp", 0, 0).names
    counts = {
        kind: sum(name.startswith(f"Distributed.{kind}.") for name in names) for kind in ("all_gather_into_tensor", "reduce_scatter_tensor")
    }
    assert counts == {"all_gather_into_tensor": 5, "reduce_scatter_tensor": 3}


def test_collectives_of_a_communication_hook(two: Trained) -> None:
    """Called by the reducer in the middle of a backward pass, and never waited for but by a future."""
    data = step_of(two[0] / "ddp python hook", 1, 0).data
    entries = [entry for name, entry in data.items() if name.startswith("Distributed.all_reduce.")]
    assert len(entries) > 1
    assert all(entry["output"][0]["Norm"] != entry["input_args"][0]["Norm"] for entry in entries)


def test_each_rank_has_its_directory(two: Trained, four: Trained) -> None:
    for (directory, outcomes), kinds in ((two, KINDS), (four, OF_FOUR)):
        for kind in filter(_runs_here, kinds):
            for number in STEPS:
                below = directory / kind / f"step{number}"
                assert sorted(path.name for path in below.iterdir()) == [f"rank{rank}" for rank in range(len(outcomes))]
