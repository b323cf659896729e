"""The optimizer's calls are told from those of the forward pass, by their parent or by their stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe

from .dumps import Json, api, backward, frame, tensor, write_dump

OPTIM = "/venv/lib/python3.11/site-packages/torch/optim"
USER = frame("/home/me/train.py", 73, "<module>", "opt.step()")
WRAPPER = frame(f"{OPTIM}/optimizer.py", 530, "wrapper", "out = func(*args, **kwargs)")
STEP = [frame(f"{OPTIM}/adam.py", 546, "_single_tensor_adam", "param.addcdiv_(exp_avg, denom)"), WRAPPER, USER]
OWN_CODE = frame("/home/me/train.py", 70, "<module>", "p.grad.mul_(scale)")
FORWARD, BACKWARD, LERP, LAST = (
    "Functional.relu.0.forward",
    "Functional.relu.0.backward",
    "Tensor.lerp_.0.forward",
    "Tensor.addcdiv_.0.forward",
)


def told(
    tmp_path: Path, entries: tuple[Json, Json], stack: dict[str, list[str]], *, parents: dict[str, str | None] | None = None
) -> list[str]:
    """What compare says of step 1 of two runs.

    Args:
        entries: of target and golden run.
        stack: of both; `parents`: None at level L1.
    """
    for side, data in zip(("t", "g"), entries, strict=True):
        made = {name: stack.get(name, [USER]) for name in data}
        level = "mix" if parents else "L1"
        write_dump(tmp_path / side / "step1" / "rank0", data, level=level, construct=parents or {}, stack=made)
    return [line.text for line in describe(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o"))]


def step(gradient: float, *, came_in: float = 1.0, clipped: bool = False) -> Json:
    """Forward, backward, two calls on the gradient where it is clipped, two calls of the optimizer."""
    data: Json = {
        FORWARD: api([tensor(came_in)], [tensor(came_in * 2)]),
        BACKWARD: backward([tensor(3.0)], [tensor(3.0)]),
    }
    if clipped:
        data["Tensor.mul.0.forward"] = api([tensor(3.0)], [tensor(gradient)])
        data["Tensor.add.0.forward"] = api([tensor(gradient)], [tensor(1.0 + gradient / 100)])
    data[LERP] = api([tensor(5.0), tensor(gradient)], [tensor(gradient / 2)])
    data[LAST] = api([tensor(6.0), tensor(gradient / 2)], [tensor(6.0 + gradient / 10)])
    return data


@pytest.mark.parametrize("level", ["mix", "L1"])
def test_a_difference_that_begins_in_the_optimizer(level: str, tmp_path: Path) -> None:
    parents: dict[str, str | None] = {FORWARD: None, BACKWARD: None, LERP: "optimizer", LAST: "optimizer", "optimizer": None}
    stack = dict.fromkeys((LERP, LAST), STEP) if level == "L1" else {}
    text = told(tmp_path, (step(4.0), step(2.0)), stack, parents=parents if level == "mix" else None)
    assert text[0].endswith(" (optimizer, step 1): train.py:73")
    (growth,) = [line for line in text if line.startswith("  it ")]
    assert growth.startswith("  it does not grow") and growth.endswith("in Tensor.addcdiv_.0.forward, the last of the optimizer's step")


def test_the_forward_pass_stays_what_it_is(tmp_path: Path) -> None:
    target, golden = ({"Torch.exp.0.forward": api([tensor(1.0)], [tensor(out)]), **step(2.0, came_in=out)} for out in (2.0, 1.0))
    text = told(tmp_path, (target, golden), dict.fromkeys((LERP, LAST), STEP))
    assert text[0] == "Inputs equal, `exp` differs (forward, step 1): train.py:73"
    assert not any("optimizer" in line for line in text[1:])


def test_the_users_own_code_on_gradients_is_no_optimizer(tmp_path: Path) -> None:
    """Nor is it the forward pass: the optimizer's calls follow it."""
    stack = {**dict.fromkeys((LERP, LAST), STEP), "Tensor.mul.0.forward": [OWN_CODE], "Tensor.add.0.forward": [OWN_CODE]}
    text = told(tmp_path, (step(4.0, clipped=True), step(2.0, clipped=True)), stack)
    assert text[0] == "Inputs equal, `mul` differs (forward, step 1): train.py:70"
    (growth,) = [line for line in text if line.startswith("  it ")]
    assert growth.endswith("in Tensor.add.0.forward, the last before the optimizer's step")


@pytest.mark.parametrize(
    ("frames", "word"),
    [
        (STEP, "optimizer"),
        ([frame(f"{OPTIM[:-6]}/_tensor.py", 38, "wrapped", "return f(*args)"), *STEP], "optimizer"),
        (["no frame", *STEP], "optimizer"),
        ([text.replace("/", "\\") for text in STEP], "optimizer"),
        # The closure that a step was given is the forward pass.
        ([frame("/home/me/train.py", 60, "closure", "loss = model(x)"), *STEP], "forward"),
        # Averages of weights stand in torch.optim too, and are no step.
        ([frame(f"{OPTIM}/swa_utils.py", 290, "update_parameters", "x.lerp_(y, 0.1)"), USER], "forward"),
        ([USER], "forward"),
        ([], "forward"),
    ],
)
def test_by_the_stack(frames: list[str], word: str, tmp_path: Path) -> None:
    text = told(tmp_path, (step(4.0), step(2.0)), dict.fromkeys((LERP, LAST), frames))
    assert f"({word}, step 1)" in text[0]


def test_a_call_of_the_optimizer_that_one_side_alone_makes(tmp_path: Path) -> None:
    """Weight decay, say."""
    decay = {"Tensor.mul_.0.forward": api([tensor(6.0)], [tensor(5.0)])}
    data = step(2.0)
    target = {name: data[name] for name in (FORWARD, BACKWARD)} | decay | {name: data[name] for name in (LERP, LAST)}
    target[LAST] = api([tensor(5.0), tensor(1.0)], [tensor(5.2)])
    text = told(tmp_path, (target, data), dict.fromkeys((*decay, LERP, LAST), STEP))
    assert text[0] == "`mul_` is in the target only (optimizer, step 1): train.py:73"


def test_a_circle_in_construct_json_ends(tmp_path: Path) -> None:
    parents: dict[str, str | None] = {LERP: LAST, LAST: LERP}
    assert "(forward, step 1)" in told(tmp_path, (step(4.0), step(2.0)), {}, parents=parents)[0]
