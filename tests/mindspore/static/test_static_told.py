"""Graph mode: what it lacks is told, and what of ours does not compile stays out; see static_told_cases.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_mindspore("static_told_cases.py", tmp_path_factory.mktemp("static_told"))


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
    assert answers[name]["told"] == answers[name]["lines"] and len(answers[name]["lines"]) == 2
    assert all(line.endswith(f": nothing was recorded between start() and step(): {why}") for line in answers[name]["lines"])


def test_a_graph_that_does_not_compile_with_taps_runs_without(answers: Any) -> None:
    broken = answers["broken"]
    assert broken["bits"] == answers["some"]["bits"] and broken["taps"] is False and broken["data"] in ([], [{}, {}])
    (message,) = broken["told"]
    assert message.startswith("nothing is recorded: MindSpore does not compile this model with taps in it, and runs it without: ")
    assert "there_is_no_such_method" in message
