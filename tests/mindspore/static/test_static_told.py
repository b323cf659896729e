"""Graph mode: what it lacks is told, and what of ours does not compile stays out; see static_told_cases.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
GRADIENTS = "Cell.first.Dense.parameters_grad"


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("static_told")
    answers = run_mindspore("static_told_cases.py", directory)
    (unended,) = (directory / "unended").glob("step0/*/dump.json")
    return {
        **answers,
        "output": (directory / "output.txt").read_text(encoding="utf-8"),
        "unended": json.loads(unended.read_text(encoding="utf-8")),
    }


@pytest.mark.parametrize(("name", "what"), [("L1", 'level "L1"'), ("mix", 'level "mix"'), ("structure", 'task "structure"')])
def test_what_follows_the_calls_of_python_is_refused_in_one_message(answers: Any, name: str, what: str) -> None:
    (message,) = [text for text in answers[name]["told"] if text.startswith("graph mode: ")]
    assert message.startswith(f"graph mode: {what} follows the calls that Python makes") and 'level "L0" with task "statistics"' in message
    assert not any("Dense" in entry for data in answers[name]["data"] for entry in data)


def test_a_rank_is_told(answers: Any) -> None:
    told = answers["rank"]["told"]
    assert told[0].startswith('"rank" and level L0: in compiled graphs the taps are on every rank, and only the selected ones write')
    assert told[1].startswith('"rank" is set, but this process has no rank') and answers["rank"]["data"] == []


def test_statistics_of_the_device_are_told(answers: Any) -> None:
    assert '"device": "device": in compiled graphs at level L0 statistics are taken on the host' in answers["device"]["told"]
    assert answers["device"]["data"][0]["Cell.first.Dense.forward.0"]["input_args"][0]["Norm"] == pytest.approx(6**0.5)


def test_statistics_that_there_are_not_are_told(answers: Any) -> None:
    assert any("have no md5: max, min, mean, l2norm are recorded" in text for text in answers["md5"]["told"])


def test_some_statistics(answers: Any) -> None:
    record = answers["some"]["data"][0]["Cell.out.Dense.forward.0"]["output"][0]
    assert set(record) == {"type", "dtype", "shape", "Max", "Norm"}


def test_tensor_list_saves_what_it_names(answers: Any) -> None:
    assert answers["tensor_list"]["files"] == [
        "Cell.first.Dense.forward.0.input.0.npy", "Cell.first.Dense.forward.0.output.0.npy",
        "Cell.first.Dense.forward.0.parameters.bias.npy", "Cell.first.Dense.forward.0.parameters.weight.npy",
    ]  # fmt: skip
    assert set(answers["tensor_list"]["data"][0]) == {"Cell.first.Dense.forward.0", "Cell.out.Dense.forward.0"}


def test_tensor_files_count_and_so_does_what_could_not_be_written(answers: Any) -> None:
    files = answers["files"]
    for line, size in zip(files["lines"], files["sizes"], strict=True):
        assert size > 1e6 and float(re.findall(r" ([0-9.]+) MB", line)[0]) == pytest.approx(size / 1e6, abs=0.06)
    assert "; not recorded: 1 (1 × " in files["lines"][0] and "not recorded" not in files["lines"][1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", '"list", "scope" or "data_mode" selects nothing of what ran'),
        ("compiled", "the graph was compiled before start(), or none of its cells ran"),
    ],
)
def test_a_step_of_nothing_says_why(answers: Any, name: str, why: str) -> None:
    unmatched = [text for text in answers[name]["told"] if text.startswith('"list": "no_such_cell" has matched nothing so far')]
    assert len(unmatched) == (name == "nothing")
    assert [text for text in answers[name]["told"] if text not in unmatched] == answers[name]["lines"] and len(answers[name]["lines"]) == 2
    assert all(line.endswith(f": nothing was recorded between start() and step(): {why}") for line in answers[name]["lines"])


def test_a_graph_that_does_not_compile_with_taps_runs_without(answers: Any) -> None:
    broken = answers["broken"]
    assert broken["bits"] == answers["some"]["bits"] and broken["taps"] is False and broken["data"] in ([], [{}, {}])
    (message,) = broken["told"]
    assert message.startswith("nothing is recorded: MindSpore does not compile this model with taps in it, and runs it without: ")
    assert "there_is_no_such_method" in message


def test_list_selects_cells_by_their_names(answers: Any) -> None:
    (data,) = answers["listed"]["data"]
    assert set(data) == {"Cell.first.Dense.forward.0", "Cell.out.Dense.forward.0"} and answers["listed"]["told"] == []
    assert set(answers["nothing"]["data"][0]) == set()


def test_a_scope_is_told_and_everything_is_recorded(answers: Any) -> None:
    assert set(answers["scope"]["data"][0]) == {"Cell.first.Dense.forward.0", "Cell.out.Dense.forward.0"}
    (told,) = answers["scope"]["told"]
    assert told.startswith('"scope": values of compiled graphs come in no certain order') and told.endswith("all of them are recorded")


def test_the_last_step_that_is_selected_is_told(answers: Any) -> None:
    assert answers["last"] == ['step 0 was the last one selected by "step": nothing more is recorded']


def test_a_step_that_nobody_ended_is_ended_and_told(answers: Any) -> None:
    assert answers["output"].count("step 0 was not ended by step(); it is ended now") == 1
    assert set(answers["unended"]["data"]) == {"Cell.first.Dense.forward.0", "Cell.out.Dense.forward.0"}


def test_a_step_whose_end_fails_is_closed_and_the_next_one_begins(answers: Any) -> None:
    failing = answers["failing"]
    assert failing["number"] == 2 and failing["bits"] == answers["some"]["bits"]
    assert [set(data) for data in failing["data"]] == [{"Cell.first.Dense.forward.0", "Cell.out.Dense.forward.0"}] * 2
    assert len(failing["log"]) == 2 and all("made to fail" in text for text in failing["log"])
    assert sum("recording failed and is off until the next start()" in text for text in failing["told"]) == 2


def test_what_an_operation_of_the_users_raises_reaches_the_user_and_the_step_is_complete(answers: Any) -> None:
    assert answers["users"][:2] == ["theirs", 2]


def test_a_second_start_without_stop_is_told(answers: Any) -> None:
    (message,) = answers["users"][2]
    assert re.match(r"start\(\) at .* changes nothing: recording is on since start\(\) at .*static_told_cases\.py:\d+, ", message)


def test_another_model_than_that_of_the_first_start_is_told(answers: Any) -> None:
    assert [len(data) for data in answers["another"]["data"]] == [2, 0]
    assert answers["another"]["told"][0].startswith("start(model): in graph mode taps are put into what the first start() was given")


def test_values_whose_shape_is_not_known_are_told_and_everything_else_is_recorded(answers: Any) -> None:
    shapeless = answers["shapeless"]
    assert shapeless["bits"] == answers["some"]["bits"]
    assert shapeless["told"] == [
        "values whose shape is known only when the graph runs (set_inputs, None in a shape) are not recorded, nor are their gradients"
    ]
    for data, unread in zip(shapeless["data"], shapeless["unread"], strict=True):
        entry = data["Cell.out.Dense.forward.0"]
        assert entry["input_args"] == [None] and entry["output"] == [None] and set(entry["parameters"]) == {"weight", "bias"}
        assert "known only when the graph runs" in json.dumps(unread)
    assert all("; not recorded: 4 (4 × a tensor whose shape" in line for line in shapeless["lines"])


def test_a_device_whose_graphs_cannot_call_python_is_told_and_nothing_is_put_in(answers: Any) -> None:
    ascend = answers["ascend"]
    assert ascend["bits"] == answers["some"]["bits"] and ascend["taps"] is False and ascend["data"] == []
    (message,) = ascend["told"]
    assert message.startswith(
        'nothing is recorded: level "L0" in graph mode needs graphs that call Python functions, which those on Ascend do not'
    ) and message.endswith('at jit_level "O2" cells cannot be told apart')


def test_a_part_of_a_gradient_that_comes_before_the_last_call_of_its_run_makes_no_entry_of_its_own(answers: Any) -> None:
    assert {name: entry["weight"] for name, entry in answers["late"].items()} == {f"{GRADIENTS}.0": 2, f"{GRADIENTS}.1": 12}


def test_the_zero_of_a_cell_that_a_run_of_the_graph_has_not_called_is_no_gradient(answers: Any) -> None:
    """A sum that is zero is one."""
    assert answers["late"] == {f"{GRADIENTS}.0": {"weight": 2, "bias": 0}, f"{GRADIENTS}.1": {"weight": 12}}


def test_second_derivatives_are_recorded_without_gradients(answers: Any) -> None:
    curved = answers["curved"]
    assert curved["same"] is True
    assert set(curved["data"][0]) == {"Cell.net.first.Dense.forward.0", "Cell.net.out.Dense.forward.0", "Cell.net.Net.forward.0"}
    (told,) = [text for text in curved["told"] if "last bits" not in text]
    assert told.startswith("no gradients are recorded: MindSpore does not compile this model with taps for them (second derivatives?): ")
