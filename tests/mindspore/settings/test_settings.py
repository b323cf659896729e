"""Fields that have no effect with MindSpore change nothing, and those that have one have it at every level; see fields.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
LEVELS = ("L0", "L1", "mix")
ASYNC = '"async_dump" changes nothing with MindSpore: each value is read when it is made, and the device is waited for'


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_mindspore("settings/fields.py", tmp_path_factory.mktemp("fields"))


@pytest.mark.parametrize("level", [*LEVELS, "static"])
def test_precision_changes_no_number(answers: Any, level: str) -> None:
    """Two-byte numbers whose sum of squares two bytes do not hold: the norm is exact with low, too."""
    assert answers[f"{level}_high"]["data"] == answers[f"{level}_low"]["data"] == answers[f"{level}_plain"]["data"]
    name = "Functional.relu.0.forward" if level == "L1" else "Cell.same.Same.forward.0"
    record = answers[f"{level}_low"]["data"][name]["input_args"][0]
    assert (record["dtype"], record["Max"], record["Norm"]) == ("Float16", 300.0, pytest.approx((18 * 300**2) ** 0.5, rel=1e-12))


@pytest.mark.parametrize("level", [*LEVELS, "static"])
def test_without_extra_info_there_is_neither_stack_nor_construct(answers: Any, level: str) -> None:
    plain, bare = answers[f"{level}_plain"], answers[f"{level}_bare"]
    assert "construct.json" in plain["beside"] and ("stack.json" in plain["beside"] or level == "static")
    assert bare["beside"] == [name for name in plain["beside"] if name not in ("construct.json", "stack.json")]
    assert bare["data"] == plain["data"] != {}


@pytest.mark.parametrize("level", [*LEVELS, "static"])
def test_async_dump_changes_nothing_and_says_so_once(answers: Any, level: str) -> None:
    found, plain = answers[f"{level}_async"], answers[f"{level}_plain"]
    assert found["data"] == plain["data"] and found["beside"] == plain["beside"]
    assert found["told"].count(ASYNC) == 1 and ASYNC not in plain["told"]


@pytest.mark.parametrize("level", LEVELS)
def test_async_dump_of_tensors_has_the_same_files(answers: Any, level: str) -> None:
    found, plain = answers[f"{level}_async_list"], answers[f"{level}_list"]
    assert found["data"] == plain["data"] and found["files"] == plain["files"] != []
    file = "Cell.net.Mlp.forward.0.output.0.npy" if level == "L0" else "Functional.relu.0.forward.output.0.npy"
    assert file in found["files"]


@pytest.mark.parametrize("level", LEVELS)
def test_async_dump_has_statistics_of_complex_numbers_too(answers: Any, level: str) -> None:
    """Document B lets them be missing; they are read on the host, as without."""
    name = "Cell.same.Same.forward.1" if level == "L0" else "Functional.abs.0.forward"
    record = answers[f"{level}_async"]["data"][name]["input_args"][0]
    assert (record["dtype"], record["Max"], record["Min"], record["Norm"]) == ("Complex64", 5.0, 1.0, pytest.approx(26**0.5))


@pytest.mark.parametrize(("level", "part"), [("L0", "first"), ("L1", "relu")])
def test_tensor_list_has_values_of_what_it_names_and_statistics_of_all(answers: Any, level: str, part: str) -> None:
    found = answers[f"{level}_tensor_list"]
    assert found["files"] and all(part in file for file in found["files"])
    assert set(found["data"]) == set(answers[f"{level}_plain"]["data"])


@pytest.mark.parametrize("run", ["L1_bin", "debug_bin", "static_bin"])
def test_file_format_is_told_to_be_for_kernels(answers: Any, run: str) -> None:
    found = answers[run]
    assert found["files"] and all(file.endswith(".npy") for file in found["files"])
    assert found["told"].count("""\"tensor"."file_format" 'bin' is for level "L2": here it is "npy\"""") == 1
