"""Level L0 in graph mode changes no bit, and records what it records in PyNative; see static_identical_cases.py and static_nets.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
EXACT = [
    "Layers", "Residual", "Transformer", "Order", "Tied", "Short", "Branches", "Loop", "Recomputed", "Dropped", "Containers",
    "Keyed", "PassedOn", "RunTime",
]  # fmt: skip
UNHOOKED = "Stopped"
MAY_DIFFER = {
    "Split": "Cell.gate.Gate (takes in what is used elsewhere too)",
    "GoesOn": "Cell.both.Both (goes on using what it gives out)",
    "Siamese": "Cell.same.Dense (runs several times",
}


PARTS = [
    ["Layers", "Residual", "Transformer", "Order+", "PassedOn", "Siamese"],
    ["Tied+", "Short", "Branches", "Loop", "Split", "Stopped"],
    ["Recomputed", "Dropped", "Containers+", "Keyed", "GoesOn", "RunTime", "model"],
]
BOTH = [name.rstrip("+") for part in PARTS for name in part if name.endswith("+")]


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    answers: dict[str, Any] = {}
    for part in PARTS:
        answers |= run_mindspore("static_identical_cases.py", tmp_path_factory.mktemp("static_identical"), *part)
    return answers


def test_every_net_is_tried(answers: Any) -> None:
    assert set(answers) == {*EXACT, *MAY_DIFFER, UNHOOKED, "model", "model_entries"}


@pytest.mark.parametrize("net", [*EXACT, UNHOOKED])
def test_training_is_the_same_to_the_bit_and_nothing_is_told(answers: Any, net: str) -> None:
    assert answers[net]["all"] == {"same": True, "close": True, "warned": []}


@pytest.mark.parametrize("net", BOTH)
def test_forward_alone_is_the_same_to_the_bit(answers: Any, net: str) -> None:
    assert answers[net]["forward"] == {"same": True, "close": True, "warned": []}


@pytest.mark.parametrize("net", MAY_DIFFER)
def test_a_cell_where_bits_may_differ_is_named(answers: Any, net: str) -> None:
    found = answers[net]["all"]
    assert found["close"] is True
    (warning,) = found["warned"]
    assert warning.startswith(f"compiled graphs: at {MAY_DIFFER[net]}") and warning.count("Cell.") == 1


def test_model_train(answers: Any) -> None:
    assert answers["model"] is True
    cells = ["d0", "d1", "d2", "d3"]
    last = ["_backbone.Order", "_loss_fn.MSELoss", "WithLossCell"]
    backward = [f"_backbone.{cell}.Dense.{way}.0" for cell in reversed(cells) for way in ("backward", "parameters_grad")]
    assert [name.removeprefix("Cell.network.") for name in answers["model_entries"]] == [
        *(f"_backbone.{cell}.Dense.forward.0" for cell in cells), *(f"{cell}.forward.0" for cell in last),
        "WithLossCell.backward.0", "_loss_fn.MSELoss.backward.0", "_backbone.Order.backward.0", *backward,
    ]  # fmt: skip


@pytest.mark.parametrize("net", [name for name in EXACT if name != "Recomputed"] + ["Split", "Siamese"])
def test_entries_are_those_of_pynative(answers: Any, net: str) -> None:
    """Names, their order, parents, keys and shapes; values but for rounding. (PyNative shows the second run of what is recomputed.)"""
    (graph, parents, meta), (pynative, wanted, wanted_meta) = answers[net]["graph"], answers[net]["pynative"]
    for key in ("recorded", "seen", "hooked_modules"):
        assert meta[key] == wanted_meta[key]
    assert sorted(graph["data"]) == sorted(pynative["data"])
    if net == "Layers":  # a sequence gives back what its last cell does: one gradient, which PyNative shows of the inner one first
        order = [name for name in pynative["data"] if name != "Cell.rest.SequentialCell.backward.0"]
        assert [name for name in graph["data"] if name != "Cell.rest.SequentialCell.backward.0"] == order
    elif net not in ("Branches", "Loop", "RunTime"):  # how often their cells run is not known before
        assert list(graph["data"]) == list(pynative["data"])
    assert parents == wanted
    random = net == "Dropped"
    for name, entry in pynative["data"].items():
        same(graph["data"][name], entry, name, None if random else 1e-4)


def same(found: Any, wanted: Any, where: str, tolerance: float | None) -> None:
    if isinstance(wanted, dict):
        assert isinstance(found, dict) and set(found) == set(wanted), where
        for key, value in wanted.items():
            same(found[key], value, f"{where} {key}", tolerance)
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), where
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            same(one, other, f"{where} {number}", tolerance)
    elif isinstance(wanted, float):
        assert isinstance(found, float), where
        assert tolerance is None or found == pytest.approx(wanted, rel=tolerance, abs=1e-5), where
    else:
        assert found == wanted, where


def test_the_gradient_of_a_parameter_is_the_whole_one(answers: Any) -> None:
    """MindSpore calls a parameter's hook with parts of its gradient, where it is used in several parts of a graph."""
    for net in ("Recomputed", "Branches", "Loop", "RunTime"):
        (graph, *_), (pynative, *_) = answers[net]["graph"], answers[net]["pynative"]
        gradients = {name: entry for name, entry in graph["data"].items() if "parameters_grad" in name}
        assert set(gradients) == {name for name in pynative["data"] if "parameters_grad" in name}
        for name, entry in gradients.items():
            same(entry, pynative["data"][name], name, 1e-4)


def test_where_hooks_on_parameters_do_not_compile_everything_else_is_recorded(answers: Any) -> None:
    (graph, *_), (pynative, *_) = answers[UNHOOKED]["graph"], answers[UNHOOKED]["pynative"]
    assert set(graph["data"]) == {name for name in pynative["data"] if "parameters_grad" not in name}
    (told,) = answers[UNHOOKED]["told"]
    assert told.startswith("gradients of parameters are not recorded: MindSpore does not compile this model with hooks on them")
    assert not any(answers[net]["told"] for net in EXACT)
