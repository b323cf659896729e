"""list, scope, data_mode, risk_level and tensor_list against the reference's samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from against_golden import sample_differences
from capturing import Step, golden, tensors
from sample_runs import RUNS, Net, sample_debugger, small_net
from test_names import mirrored

CASES = ("list_exact", "list_mix", "scope_L0", "scope_L1", "scope_mix", "dm_input", "dm_backward", "tensor_list")
# What only one side has, and why.
EXPANDED = "a module that `list` names is expanded backward too, as its gradients are part of what runs inside it"
NEW: dict[str, dict[str, str]] = {
    "list_mix": dict.fromkeys(
        [
            "Functional.linear.0.backward",
            "Functional.linear.1.backward",
            "Functional.relu.0.backward",
            "Tensor.__mul__.0.backward",
            "Module.a.Mlp.backward.0",
            *(f"Module.a.{path}.backward.0" for path in ("fc1.Linear", "act.ReLU", "fc2.Linear")),
            *(f"Module.a.{path}.parameters_grad.0" for path in ("fc1.Linear", "fc2.Linear")),
        ],
        EXPANDED,
    )
}
# Entries whose keys differ.
OTHER_KEYS = {("scope_mix", "Functional.softmax.0.forward"): "the reference closes the scope before the last call's output has come"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Step] = {}

    def step(case: str) -> Step:
        if case not in made:
            run = RUNS[case](case, tmp_path_factory.mktemp(case))
            assert run.steps == [0]
            made[case] = run.step()
        return made[case]

    return step


@pytest.mark.parametrize("case", CASES)
def test_the_same_names(recorded: Any, case: str) -> None:
    theirs, ours = golden(case)["steps"]["0"]["data"], recorded(case).data
    assert set(theirs) - set(ours) == set()
    assert set(ours) - set(theirs) == set(NEW.get(case, ()))


@pytest.mark.parametrize("case", CASES)
def test_the_same_entries(recorded: Any, case: str) -> None:
    theirs, ours = golden(case)["steps"]["0"]["data"], recorded(case).data
    for (of, name), _ in OTHER_KEYS.items():
        if of == case:
            assert list(ours[name]) == ["input_args", "input_kwargs", "output"] and "output" not in theirs.pop(name)
    if case == "dm_input":
        assert all("output" not in entry and "parameters" not in entry for entry in ours.values())
        for entry in theirs.values():
            entry.pop("output", None)
        assert sample_differences(theirs, ours, backward_output=True) == []
    else:
        assert sample_differences(theirs, ours) == []


@pytest.mark.parametrize("case", [case for case in CASES if golden(case)["config"]["level"] != "L1"])
def test_construct_knows_no_selection(recorded: Any, case: str) -> None:
    """It also holds the forward calls that were left out; a backward entry that is there has its true parent."""
    theirs, ours = golden(case)["steps"]["0"]["construct"], recorded(case).construct
    assert {n for n in theirs if ".forward" in n} <= set(ours)
    assert {n: ours[n] for n in theirs if ".forward" in n} == {n: p for n, p in theirs.items() if ".forward" in n}
    assert {n: p for n, p in ours.items() if ".backward" in n and p != mirrored(n, ours)} == {}


@pytest.mark.parametrize("case", CASES)
def test_stacks_only_of_what_was_selected(recorded: Any, case: str) -> None:
    """A module of which only the end lies in the scope has no stack either."""
    step = recorded(case)
    named = [name for names, _ in step.stack.values() for name in names]
    assert sorted(named) == sorted(name for name, entry in step.data.items() if ".forward" in name and "input_args" in entry)


def test_tensor_list_saves_what_it_names(recorded: Any) -> None:
    step = recorded("tensor_list")
    named = set()
    for name, entry in step.data.items():
        for found in tensors(entry):
            assert ("data_name" in found) == ("relu" in name), name
            named.add(found.get("data_name"))
    assert {p.name for p in (step.directory / "dump_tensor_data").iterdir()} == named - {None}
    assert step.dump["dump_data_dir"].endswith("dump_tensor_data")


# --- without a sample ----------------------------------------------------------------------------------------------------------------
def names(tmp_path: Path, level: str = "L1", **section: Any) -> list[str]:
    fields: dict[str, Any] = {"level": level, "statistics": section}
    return small_net("list_exact", tmp_path, **fields).step().names


ALL_L1 = ["Functional.linear.0.forward", "Functional.relu.0.forward", "Tensor.__mul__.0.forward", "Functional.linear.1.forward"]
ALL_L1 += ["Functional.linear.2.forward", "Functional.softmax.0.forward", "Tensor.pow.0.forward", "Tensor.sum.0.forward"]


def test_parts_of_names(tmp_path: Path) -> None:
    assert names(tmp_path, list=["relu", "sum.0"]) == [n for n in names_of_all(tmp_path) if "relu" in n or "sum.0" in n]


def names_of_all(tmp_path: Path) -> list[str]:
    from capturing import forget_debugger

    forget_debugger()
    (tmp_path / "all").mkdir(exist_ok=True)
    found = names(tmp_path / "all")
    forget_debugger()
    return found


def test_case_counts(tmp_path: Path) -> None:
    assert names(tmp_path, list=["ReLU"]) == []


WORDS = ("forward", "backward", "input", "output")


@pytest.mark.parametrize("mode", [["all"], *([w for i, w in enumerate(WORDS) if chosen >> i & 1] for chosen in range(16))], ids=str)
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_data_modes(tmp_path: Path, mode: list[str], level: str) -> None:
    kept = set(mode) & {"forward", "backward"} or {"forward", "backward"}
    fields: dict[str, Any] = {"level": level, "statistics": {"data_mode": mode}}
    step = small_net("list_exact", tmp_path, **fields).step()
    directions = {word for word in ("forward", "backward") for name in step.data if f".{word}" in name}
    assert directions == kept
    gradients = {name for name in step.data if "parameters_grad" in name}
    assert bool(gradients) == (level != "L1" and "backward" in kept)
    roles = set(mode) & {"input", "output"} or {"input", "output"}
    for name, entry in step.data.items():
        if "parameters_grad" in name:
            continue
        assert ("output" in entry) == ("output" in roles), name
        assert any(key.startswith("input") for key in entry) == ("input" in roles), name
        assert ("parameters" in entry) == ("output" in roles and name.startswith("Module") and ".forward." in name), name


@pytest.mark.parametrize(
    ("risk", "kept"),
    [
        ("ALL", {"Tensor.reshape", "Functional.linear", "Torch.cat", "Functional.relu", "Tensor.clamp", "Torch.matmul"}),
        ("FOCUS", {"Functional.linear", "Functional.relu", "Tensor.clamp", "Torch.matmul"}),
        ("CORE", {"Functional.linear", "Torch.matmul"}),
        (None, {"Tensor.reshape", "Functional.linear", "Torch.cat", "Functional.relu", "Tensor.clamp", "Torch.matmul"}),
    ],
)
def test_risk_levels(tmp_path: Path, risk: str | None, kept: set[str]) -> None:
    debugger = sample_debugger("list_exact", tmp_path, level="L1", risk_level=risk, statistics={})
    x = torch.ones(2, 2)
    debugger.start()
    torch.nn.functional.linear(x, x)
    torch.cat([torch.relu(torch.nn.functional.relu(x).reshape(4)).clamp(0)])
    torch.matmul(x, x)
    debugger.step()
    found = {name.rsplit(".", 2)[0] for name in Step(next((tmp_path / "dump" / "step0").iterdir())).data} - {"Torch.relu", "Torch.ones"}
    assert found == kept


def test_risk_gives_way_to_a_list(tmp_path: Path) -> None:
    debugger = sample_debugger("list_exact", tmp_path, level="L1", risk_level="CORE", statistics={"list": ["cat"]})
    debugger.start()
    torch.cat([torch.ones(1)])
    debugger.step()
    assert Step(next((tmp_path / "dump" / "step0").iterdir())).names == ["Torch.cat.0.forward"]


def test_numbers_count_what_is_left_out(tmp_path: Path) -> None:
    assert names(tmp_path, list=["linear.2.forward"]) == ["Functional.linear.2.forward"]


def test_modules_are_never_filtered_by_risk(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"level": "mix", "risk_level": "CORE", "statistics": {}}
    found = small_net("list_exact", tmp_path, **fields).step().names
    assert {n for n in found if n.startswith("Module") and ".forward." in n} == {
        "Module.a.fc1.Linear.forward.0", "Module.a.act.ReLU.forward.0", "Module.a.fc2.Linear.forward.0",
        "Module.a.Mlp.forward.0", "Module.b.Linear.forward.0",
    }  # fmt: skip
    assert {n.rsplit(".", 2)[0] for n in found if not n.startswith("Module")} == {"Functional.linear", "Functional.softmax"}


def test_a_scope_that_never_closes_does_not_leak(tmp_path: Path) -> None:
    """F42."""
    scope = ["Functional.relu.0.forward", "Functional.nothing.0.forward"]
    debugger = sample_debugger("scope_L1", tmp_path, step=[], statistics={"scope": scope})
    model, x = Net(), torch.randn(3, 4)
    for _ in range(2):
        debugger.start(model)
        model(x)
        debugger.stop()
        debugger.step()
    first, second = (Step(next((tmp_path / "dump" / f"step{i}").iterdir())).names for i in (0, 1))
    assert first == second and first[0] == "Functional.relu.0.forward" and "Functional.linear.0.forward" not in first


def test_list_and_scope_both_hold(tmp_path: Path) -> None:
    found = names(tmp_path, list=["linear"], scope=["Functional.relu.0.forward", "Functional.softmax.0.forward"])
    assert [n for n in found if ".forward" in n] == ["Functional.linear.1.forward", "Functional.linear.2.forward"]


def test_tensor_list_by_direction(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"level": "L1", "statistics": {"tensor_list": ["relu.0.backward"]}}
    step = small_net("list_exact", tmp_path, **fields).step()
    assert {p.name for p in (step.directory / "dump_tensor_data").iterdir()} == {
        "Functional.relu.0.backward.input.0.pt",
        "Functional.relu.0.backward.output.0.pt",
    }
