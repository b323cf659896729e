"""Collectives, sends and receives over gloo: recorded with their values when they are done, while the user's code sees nothing of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from against_golden import sample_differences
from capturing import GOLDEN, Step
from ranks import run_ranks, step_of

RANKS = (0, 1)


@pytest.fixture(scope="module")
def communicated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The dump (step 0: the sample's calls, step 1: the others), and what each rank saw."""
    directory = tmp_path_factory.mktemp("communicating")
    return directory / "dump", run_ranks("communicating.py", 2, directory)


def calls(step: Step) -> dict[str, Any]:
    """The communications of a step, without the names of tensor files."""
    return {name: _without_files(entry) for name, entry in step.data.items() if name.startswith("Distributed.")}


def _without_files(record: Any) -> Any:
    if isinstance(record, dict):
        return {key: _without_files(value) for key, value in record.items() if key != "data_name"}
    return [_without_files(value) for value in record] if isinstance(record, list) else record


def maxima(record: Any) -> Any:
    """A record with each tensor replaced by its Max: the tensors here hold one value each."""
    if isinstance(record, dict):
        return record["Max"] if "Max" in record else {k: maxima(v) for k, v in record.items()} if "value" not in record else record["value"]
    return [maxima(value) for value in record] if isinstance(record, list) else record


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("program", ["sample", "further"])
def test_user_sees_the_same(communicated: tuple[Path, list[dict[str, Any]]], program: str, rank: int) -> None:
    """Results, return values, classes of handles, errors and their messages, identities of functions, grad mode."""
    outcome = communicated[1][rank]
    assert outcome[program] == outcome[f"{program} without"]


@pytest.mark.parametrize("rank", RANKS)
def test_torch_is_as_before(communicated: tuple[Path, list[dict[str, Any]]], rank: int) -> None:
    assert communicated[1][rank]["restored"] == ["True"]


# What differs from the sample, and why.
DIFFERENT = {
    "Distributed.isend.0.forward": "there the next batch has overwritten the record",
    "Distributed.irecv.0.forward": "there the next batch has overwritten the record",
    "Distributed.batch_isend_irecv.0.forward": "there a received tensor is read before it has come; a receiving buffer is no input",
    "Distributed.all_reduce.2.forward": "torch.distributed.nn was imported there before there was a group, which is its default argument",
    "Distributed.all_reduce.3.forward": "as all_reduce.2",
}


@pytest.mark.parametrize("rank", RANKS)
def test_like_the_sample(communicated: tuple[Path, list[dict[str, Any]]], rank: int) -> None:
    theirs = json.loads((GOLDEN / "distributed.json").read_text(encoding="utf-8"))[str(rank)]
    ours = calls(step_of(communicated[0], 0, rank))
    assert list(ours) == list(theirs)
    found = sample_differences(theirs, ours)
    assert [text for text in found if text.split(" ")[0] not in DIFFERENT] == []


@pytest.mark.parametrize("rank", RANKS)
def test_point_to_point(communicated: tuple[Path, list[dict[str, Any]]], rank: int) -> None:
    recorded = {name: (maxima(e["input_args"]), maxima(e["output"])) for name, e in calls(step_of(communicated[0], 0, rank)).items()}
    if rank == 0:
        assert recorded["Distributed.isend.0.forward"] == ([3.0, 1], [None, 1])
    else:
        assert recorded["Distributed.irecv.0.forward"] == ([None, 0], [3.0, 0])


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("step", "sent", "received"), [(0, (0.0, 1.0), (1.0, 0.0)), (1, (1.0, 2.0), (2.0, 1.0))])
def test_batch(communicated: tuple[Path, list[dict[str, Any]]], step: int, sent: Any, received: Any, rank: int) -> None:
    """Values are those after the last of the handles was waited for; an operation has the keys of the format."""
    entry = calls(step_of(communicated[0], step, rank))["Distributed.batch_isend_irecv.0.forward"]
    (before,), (after,) = entry["input_args"], entry["output"]
    assert list(before[0]) == ["class_type", "tensor", "op", "peer", "tag", "group_id"]
    assert [(op["class_type"], op["op"], op["peer"], op["tag"], op["group_id"]) for op in before] == [
        ("torch.distributed.P2POp", kind, 1 - rank, 0, "77849d8c") for kind in ("isend", "irecv")
    ]
    assert maxima([op["tensor"] for op in before]) == [sent[rank], None]
    assert maxima([op["tensor"] for op in after]) == [sent[rank], received[rank]]


def test_output_of_asynchronous_calls(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    """Polled, by future and by a chained future: the value when it was done, though each was multiplied by 100 right afterwards."""
    recorded = calls(step_of(communicated[0], 1, 0))
    for number in (1, 2, 3):
        entry = recorded[f"Distributed.all_reduce.{number}.forward"]
        assert (maxima(entry["input_args"]), maxima(entry["output"])) == ([1.0], [3.0, True])


def test_function_bound_before(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    """`from torch.distributed import all_reduce`, before the tool was there."""
    entry = calls(step_of(communicated[0], 1, 1))["Distributed.all_reduce.0.forward"]
    assert (maxima(entry["input_args"]), maxima(entry["output"])) == ([2.0], [3.0])


def test_buffer_by_keyword(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    entry = calls(step_of(communicated[0], 1, 1))["Distributed.recv.0.forward"]
    assert maxima(entry["input_kwargs"]) == {"tensor": None, "src": 0} and maxima(entry["output"]) == [3.0, 0]


def test_no_backward(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    """A buffer that requires grad is no output with a gradient."""
    for step in (0, 1):
        assert not [name for name in step_of(communicated[0], step, 0).data if name.startswith("Distributed.") and "backward" in name]
    assert calls(step_of(communicated[0], 1, 0))["Distributed.broadcast.0.forward"]["input_args"][0]["requires_grad"] is True


def test_what_is_not_known_is_said(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    step = step_of(communicated[0], 1, 0)
    recorded = calls(step)
    for number, reason in ((6, "nobody waited"), (8, "coalesced"), (9, "coalesced")):
        name = f"Distributed.all_reduce.{number}.forward"
        assert list(recorded[name]) == ["input_args", "input_kwargs"]
        assert f"{name}: {reason}" in step.errors
    assert len(step.errors.splitlines()) == 3
    assert maxima(recorded["Distributed.all_reduce.7.forward"]["output"]) == [12.0]


@pytest.mark.parametrize("rank", RANKS)
def test_tensor_files(communicated: tuple[Path, list[dict[str, Any]]], rank: int) -> None:
    """Every file that is named is there; a received tensor's holds what came."""
    step = step_of(communicated[0], 0, rank)
    directory = step.directory / "dump_tensor_data"
    named = {n for e in step.data.values() for n in _files(e)}
    assert named == {path.name for path in directory.iterdir()}
    entry = step.data["Distributed.batch_isend_irecv.0.forward"]
    name = entry["output"][0][1]["tensor"]["data_name"]
    assert name == "Distributed.batch_isend_irecv.0.forward.output.0.1.tensor.pt"
    assert torch.load(directory / name, weights_only=True).tolist() == [1.0 - rank] * 2


def _files(record: Any) -> list[str]:
    if isinstance(record, dict):
        return [record["data_name"]] if "data_name" in record else [n for value in record.values() for n in _files(value)]
    return [n for value in record for n in _files(value)] if isinstance(record, list) else []


def test_stack_begins_at_the_caller(communicated: tuple[Path, list[dict[str, Any]]]) -> None:
    frames = step_of(communicated[0], 0, 0).frames("Distributed.all_reduce.0.forward")
    assert "communicating.py" in frames[0] and "in sample" in frames[0]
