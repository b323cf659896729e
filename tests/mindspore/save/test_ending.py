"""How steps of MindSpore end when something goes wrong, or comes too late; see ending.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
SAVED = ["y.0.debug", "y_grad.0.debug"]


class Ended:
    """What the script has left."""

    def __init__(self, directory: Path, answer: dict[str, Any]) -> None:
        self.directory, self.answer = directory, answer
        self.said = {}
        for part in (directory / "output.txt").read_text(encoding="utf-8").split("--- ")[1:]:
            name, _, text = part.partition("\n")
            self.said[name] = text


@pytest.fixture(scope="module")
def ended(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    directory = tmp_path_factory.mktemp("ending")
    return Ended(directory, run_mindspore("save/ending.py", directory))


def test_gradients_of_saved_values_that_come_after_their_step_are_told(ended: Ended) -> None:
    said = ended.said["late"]
    assert said.count("a backward pass came after step() had ended step 0") == 1
    assert "2 calls of earlier steps had their backward pass after their step had ended" in said
    (file,) = (ended.directory / "late" / "step0").glob("*/dump_error_info.log")
    assert [line.split(":")[0] for line in file.read_text(encoding="utf-8").splitlines()] == ["y_grad.0.debug", "both_grad.0.debug"]
    assert ended.answer["late_same"] == [True]


def test_save_on_the_class_from_another_file_and_the_last_selected_step_is_told(ended: Ended) -> None:
    assert ended.answer["last"] == [["elsewhere.0.debug", "elsewhere_grad.0.debug"]]
    assert ended.said["last"].count('step 0 was the last one selected by "step"') == 1


def test_a_run_in_which_nothing_was_saved_says_so(ended: Ended) -> None:
    assert "nothing was recorded: 0 steps were ended by step(); is save() called, in this process?" in ended.said["unsaved"]


@pytest.mark.parametrize("name", ["saved_close", "static", "static_mix", "window", "guard", "gradients", "record"])
def test_an_error_of_ours_at_the_end_of_a_step_is_told_and_ends_nothing_else(ended: Ended, name: str) -> None:
    found = ended.answer[name]
    assert (found["losses"], found["number"], found["open"], found["clean"]) == (1, 3, [True] * 4, True)
    assert sorted(found["data"]) == ["step0", "step1", "step2"]
    assert found["data"]["step0"] == found["data"]["step1"] == found["data"]["step2"]
    assert (SAVED if name in ("saved_close", "static") else ["Cell.fc.Dense.backward.0"])[0] in found["data"]["step0"]
    assert ended.said[name].count(f"planted in {name}") == 1


def test_an_error_while_hooks_are_taken_off_is_counted(ended: Ended) -> None:
    assert "not recorded: 1 (1 × RuntimeError('planted in gradients')" in ended.said["gradients"]


def test_what_an_operation_of_the_users_raises_reaches_the_user(ended: Ended) -> None:
    assert ended.answer["users"] == ["RuntimeError", True]
    assert ended.answer["users_after"] == pytest.approx(7.875)
