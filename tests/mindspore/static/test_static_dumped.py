"""`save`, `save_grad` and `step` where TensorDump writes the files, as on Ascend: a stand-in for it on a CPU.

See static_dumped_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def dumped(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("static_dumped")
    answer = run_mindspore("static_dumped_cases.py", directory)
    return {**answer, "output": (directory / "output.txt").read_text(encoding="utf-8")}


def test_names_count_for_themselves_where_tensor_dump_counts_all_together(dumped: Any) -> None:
    names = [name.removeprefix("step0/rank0/") for name in dumped["graph"] if name.startswith("step0/")]
    (long,) = [name for name in names if name.startswith("nnn")]
    assert len(long) <= 255 and [name for name in names if name != long] == [
        "a%2Fb_float32_0.7f95e8088f337510.npy", "lst.0_float32_0.npy", "lst.1.k_float32_0.npy", "x_float16_1.npy", "x_float32_0.npy",
        "z_grad_float32_0.npy",
    ]  # fmt: skip
    assert [name.replace("step1", "step0") for name in dumped["graph"] if name.startswith("step1/")] == [f"step0/rank0/{n}" for n in names]
    assert len(dumped["graph"]) == 2 * len(names)


def test_the_values_are_those_of_their_names(dumped: Any) -> None:
    files = dumped["graph"]
    assert files["step1/rank0/x_float32_0.npy"] == [0, 1] and files["step1/rank0/x_float16_1.npy"] == [1, 2]
    assert files["step1/rank0/lst.1.k_float32_0.npy"] == [20, 26] and files["step1/rank0/z_grad_float32_0.npy"][0] == pytest.approx(1)


def test_loss_and_gradients_have_the_same_bits(dumped: Any) -> None:
    assert dumped["same"] is True


def test_files_of_tensor_dump_itself_are_recognised(dumped: Any) -> None:
    assert len(dumped["before"]) == 6 and all(".tensordump_" in name for name in dumped["before"])
    names = ["bf_bfloat16_0", "deep.0_float32_0", "r.npy_float32_0", "r_float32_0", "r_float32_1", "s%2Ft_float32_0.4f050f90bf0caa24"]
    assert dumped["real"] == {f"step0/rank0/{name}.npy": [0, 1] for name in names}


def test_what_comes_late_gets_the_number_of_its_place(dumped: Any) -> None:
    old = {"step0/rank0/a.tensordump_float32_9.npy": [-1, -1], "step0/rank0/foreign_float32_2.npy": [0, 0]}
    waiting = {"step0/rank0/b.tensordump_float32_3.npy": [3, 3], "step0/rank0/a.tensordump_float32_4.npy": [4, 4]}
    first = {"step0/rank0/a_float32_0.npy": [0, 0]}
    assert dumped["first_look"] == {**old, **waiting, **first}
    then = {"step0/rank0/a_float32_1.npy": [1, 1], "step0/rank0/b_float32_0.npy": [3, 3], "step0/rank0/a_float32_2.npy": [4, 4]}
    assert dumped["second_look"] == {**old, **first, **then}  # number 2 was missing twice: it is somebody else's
    assert dumped["last_look"] == {**old, **first, **then, "step0/rank0/b_float32_1.npy": [7, 7]}


def test_a_device_whose_graphs_hand_nothing_out_is_told(dumped: Any) -> None:
    assert dumped["nowhere"] == [True, False]
    assert 'save(name="x"): graphs on GPU hand no values out (only those on a CPU and on Ascend do): nothing is saved' in dumped["output"]
