"""`from msprobe.mindspore import save, save_grad, step` in graph mode, in jit and in PyNative; see static_save_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
MODES = ("graph", "jit", "pynative")


@pytest.fixture(scope="module")
def saved(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("static_save")
    answer = run_mindspore("static_save_cases.py", directory, *MODES)
    answer["one"] = sorted(str(path.relative_to(directory / "one")) for path in (directory / "one").rglob("*.npy"))
    answer["output"] = (directory / "output.txt").read_text(encoding="utf-8")
    return answer


def of_step(saved: Any, mode: str, number: int) -> dict[str, Any]:
    """The files of the mode's first or second step, without the directory."""
    place = f"step{3 * MODES.index(mode) + number}/rank0/"
    return {name.removeprefix(place): value for name, value in saved[mode].items() if name.startswith(place)}


@pytest.mark.parametrize("mode", MODES)
def test_names_count_for_themselves(saved: Any, mode: str) -> None:
    first = of_step(saved, mode, 0)
    assert sorted(first) == [
        "b_bool_0.npy", "bf0_bfloat16_0.npy", "bf_bfloat16_0.npy", "c_complex64_0.npy", "const_float32_0.npy", "empty_float32_0.npy",
        "h_float16_0.npy", "i_int32_0.npy", "loop_float32_0.npy", "loop_float32_1.npy", "lst.0_float32_0.npy", "lst.1.k_float32_0.npy",
        "lst.2.0_float32_0.npy", "total_grad_float32_0.npy", "x_float32_0.npy", "x_float32_1.npy", "y_grad_float32_0.npy",
        "z_grad_float32_0.npy",
    ]  # fmt: skip
    assert sorted(of_step(saved, mode, 1)) == sorted(first) and len(saved[mode]) == 2 * len(first)


@pytest.mark.parametrize("mode", MODES)
def test_the_values(saved: Any, mode: str) -> None:
    files = of_step(saved, mode, 1)
    assert files["x_float32_0.npy"] == ["float32", [2, 3], ["-2.0", "-1.0"]]
    assert files["x_float32_1.npy"][2] == ["-1.0", "0.0"]
    assert files["lst.1.k_float32_0.npy"][2] == ["-4.0", "-10.0"]
    assert files["h_float16_0.npy"][0] == "float16" and files["i_int32_0.npy"] == ["int32", [2, 2], ["-4", "-10"]]
    assert files["b_bool_0.npy"] == ["bool", [2, 2], ["False", "False"]] and files["c_complex64_0.npy"][0] == "complex64"
    assert files["bf_bfloat16_0.npy"] == ["float32", [2, 2], ["-4.0", "-10.0"]]  # every bfloat16 is a float32, and numpy can read that
    assert files["bf0_bfloat16_0.npy"] == ["float32", [], ["62.0"]] and files["empty_float32_0.npy"] == ["float32", [0, 2], []]
    assert files["const_float32_0.npy"][2] == ["1.0", "2.0"]
    assert files["loop_float32_1.npy"][2] == ["-3.0", "-9.0"]


@pytest.mark.parametrize("mode", MODES)
def test_gradients(saved: Any, mode: str) -> None:
    files = of_step(saved, mode, 1)
    assert files["total_grad_float32_0.npy"] == ["float32", [], ["1.0"]] and files["y_grad_float32_0.npy"][2] == ["1.0", "1.0"]
    # tanh(z) z by z, at z = -4: tanh(-4) - 4 (1 - tanh(-4)^2)
    assert float(files["z_grad_float32_0.npy"][2][0]) == pytest.approx(-1.0046, abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_is_that_of_what_save_grad_returns(saved: Any, mode: str) -> None:
    """Not the sum with other uses of what it was given; that sum is what the training gets."""
    name, part, whole = saved[f"{mode}_part"]
    x = [[-2.0, -1.0, 0.0], [1.0, 2.0, 3.0]]
    assert name == "part_grad_float32_0.npy" and part == [[4 * value for value in row] for row in x]
    assert whole == [[2 * (4 * value + 5) for value in row] for row in x]
    assert saved["returned"] is True


@pytest.mark.parametrize("mode", MODES)
def test_loss_and_gradients_have_the_same_bits(saved: Any, mode: str) -> None:
    assert saved[f"{mode}_same"] is True


@pytest.mark.parametrize("mode", MODES)
def test_what_is_no_tensor_is_told_and_left_out(saved: Any, mode: str) -> None:
    assert [Path(name).name for name in saved[f"{mode}_mixed"]] == ["mixed.0_float32_0.npy"]
    assert 'save(name="mixed.1"): it is no tensor' in saved["output"]


def test_without_step_all_goes_into_one_directory_and_is_there_when_the_interpreter_has_ended(saved: Any) -> None:
    steps = 4 * len(MODES)
    assert saved["one"] == [f"step{steps}/rank0/x_float32_{number}.npy" for number in (0, 1)]


def test_wrong_arguments_are_told(saved: Any) -> None:
    assert saved["wrong"] == [[None, None, 3], False]
    assert "save(name=<int>): it must be text" in saved["output"]
    assert 'save_grad(name="n"): only a tensor has a gradient; nothing is saved' in saved["output"]
