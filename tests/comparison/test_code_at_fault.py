"""The line that the sentence names lies in the code at fault, also where modules alone were recorded (level L0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.api import compare as compare_in_python
from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, headline
from msprobe.comparison.outcome import Outcome
from msprobe.comparison.sentence import lead

from .dumps import Json, api, backward, frame, module, read_csv, tensor, write_dump

ROOT, BLOCK, NORM = "Module.Net.forward.0", "Module.blocks.1.Block.forward.0", "Module.blocks.1.norm.LayerNorm.forward.0"
MLP, FIRST, HEAD = "Module.blocks.1.mlp.Mlp.forward.0", "Module.blocks.1.mlp.a.Linear.forward.0", "Module.head.Linear.forward.0"
HEAD_BACK, MLP_BACK, BLOCK_BACK = (name.replace("forward", "backward") for name in (HEAD, MLP, BLOCK))
PARENTS = {NORM: BLOCK, FIRST: MLP, MLP: BLOCK, BLOCK: ROOT, HEAD: ROOT, ROOT: None, MLP_BACK: BLOCK_BACK, BLOCK_BACK: None}
LINES = {ROOT: 40, BLOCK: 30, NORM: 14, MLP: 16, FIRST: 9, HEAD: 31}
"""The line that makes each call: Block.forward is lines 13 to 18."""


def l0(between: float = 1.0, after: float = 1.0, loss: float = 1.0, mix_backward: float = 1.0) -> Json:
    """Net(Block(norm, x `between`, mlp(a), x `after`), head); entries of inner modules stand before those of the outer."""
    h = 2.0 * between
    out = 3.0 * h * after
    gradient = 0.5 * loss
    return {
        NORM: module([tensor(1.0)], [tensor(2.0)]),
        FIRST: module([tensor(h)], [tensor(h + 0.1)]),
        MLP: module([tensor(h)], [tensor(3.0 * h)]),
        BLOCK: module([tensor(1.0)], [tensor(out)]),
        HEAD: module([tensor(out)], [tensor(out + 0.2)]),
        ROOT: module([tensor(1.0)], [tensor(out + 0.2)]),
        HEAD_BACK: backward([tensor(gradient)], [tensor(gradient * 2.0)]),
        MLP_BACK: backward([tensor(gradient * 2.0 * mix_backward)], [tensor(gradient * 3.0)]),
        BLOCK_BACK: backward([tensor(gradient * 2.0)], [tensor(gradient * 3.0)]),
    }


def stack(name: str) -> list[str]:
    """The line that makes the call, and those that lead there, as hooks on modules see them."""
    torch = frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1811, "_call_impl", "return forward_call(*args)")
    lines = []
    around: str | None = name
    while around is not None:
        lines += [torch, frame("/home/me/train.py", LINES[around], "forward", f"call of {around}")]
        around = PARENTS[around]
    return lines


STACKS = {name: stack(name) for name in LINES}


def sides(target: Json, tmp_path: Path, golden: Json | None = None) -> tuple[Path, Path]:
    return tuple(  # type: ignore[return-value]
        write_dump(tmp_path / side, data, level="L0", construct=PARENTS, stack=STACKS)
        for side, data in (("t", target), ("g", golden or l0()))
    )


def outcome_of(target: Json, tmp_path: Path, golden: Json | None = None) -> Outcome:
    return compare(*sides(target, tmp_path, golden), tmp_path / "o")


def test_the_call_that_the_module_at_fault_makes_itself_is_named(tmp_path: Path) -> None:
    """mlp hands on to a what it was given; a's entry is complete first."""
    outcome = outcome_of(l0(between=1.1), tmp_path)
    assert lead(outcome) == "Inputs equal, the code of `blocks.1` before it calls `blocks.1.mlp` differs (forward): train.py:16"
    first = outcome.reports[0].findings.first
    assert first is not None
    assert (first.kind, first.call.name, first.module, first.shows_at) == ("own code", MLP, BLOCK, FIRST)
    propagation = outcome.reports[0].propagation
    assert propagation is not None and propagation.consumers == ()
    assert [row["Result"] for row in read_csv(outcome.reports[0].csv) if row["NPU Name"] == f"{MLP}.input.0"] == ["error"]


def test_the_fault_in_the_inner_module_is_still_that_of_the_inner_module(tmp_path: Path) -> None:
    changed = l0()
    changed[FIRST] = module([tensor(2.5)], [tensor(2.6)])
    lines = lead(outcome_of(changed, tmp_path))
    assert lines == "Inputs equal, the code of `blocks.1.mlp` before it calls `blocks.1.mlp.a` differs (forward): train.py:9"


def test_where_no_module_around_agrees_the_outermost_that_differs_is_named(tmp_path: Path) -> None:
    def data(h: float) -> Json:
        return {HEAD: module([tensor(1.0)], [tensor(1.5)]), FIRST: module([tensor(h)], [tensor(h)]), MLP: module([tensor(h)], [tensor(h)])}

    first = outcome_of(data(2.2), tmp_path, data(2.0)).reports[0].findings.first
    assert first is not None and (first.kind, first.call.name) == ("input", MLP)


def test_a_call_without_partner_inside_the_module_that_is_named_is_not_earlier(tmp_path: Path) -> None:
    changed = l0(between=1.1)
    extra = {"Torch.extra.0.forward": api([tensor(5.0)], [tensor(6.0)])}
    names = list(changed)
    at = names.index(MLP)
    data = {name: changed[name] for name in names[:at]} | extra | {name: changed[name] for name in names[at:]}
    findings = outcome_of(data, tmp_path).reports[0].findings
    assert findings.unmatched is not None and not findings.unmatched_is_earlier


def test_own_code_is_told_by_a_line_inside_the_module(tmp_path: Path) -> None:
    outcome = outcome_of(l0(after=1.1), tmp_path)
    assert lead(outcome) == "Inputs equal, `blocks.1` differs in its own code (forward): behind train.py:16"
    text = [line.text for line in describe(outcome)]
    assert any(line.startswith("  at /home/me/train.py:30 in forward") for line in text)
    difference = compare_in_python(*sides(l0(after=1.1), tmp_path / "again")).first_difference
    assert difference is not None and difference.line == 16


def test_what_comes_into_the_backward_pass_is_made_behind_the_line(tmp_path: Path) -> None:
    outcome = outcome_of(l0(loss=1.1), tmp_path)
    assert lead(outcome) == (
        "What comes into the backward pass of `head` differs, by code that follows it in the forward, up to the loss (backward): "
        "behind train.py:31"
    )
    first = outcome.reports[0].findings.first
    assert first is not None
    assert headline(first).endswith("what follows it in the forward up to the loss, code outside of modules, changed")
    assert "the code before it" not in headline(first)


def test_a_later_backward_call_is_not_said_to_be_the_first(tmp_path: Path) -> None:
    golden = {name: entry for name, entry in l0().items() if name != BLOCK_BACK}
    changed = {name: entry for name, entry in l0(mix_backward=1.1).items() if name != BLOCK_BACK}
    outcome = outcome_of(changed, tmp_path, golden)
    assert lead(outcome) == (
        "What comes into the backward pass of `blocks.1.mlp` differs, by code that follows it in the forward (backward): behind train.py:16"
    )
    first = outcome.reports[0].findings.first
    assert first is not None and "is made by the code that follows it in the forward, up to the loss" in headline(first)


def test_a_modules_own_code_in_its_backward_pass(tmp_path: Path) -> None:
    """The gradient that comes to the block agrees, what reaches the mlp in it does not."""
    assert lead(outcome_of(l0(mix_backward=1.1), tmp_path)) == (
        "Incoming gradients equal, the code of `blocks.1` that follows `blocks.1.mlp` in the forward differs (backward): behind train.py:16"
    )


@pytest.mark.parametrize(("factor", "shown"), [(1.1, True), (1.0, False)])
def test_what_the_difference_looks_like_stands_under_its_values(factor: float, shown: bool, tmp_path: Path) -> None:
    def data(scale: float, shift: float) -> Json:
        value = {"Max": 3.0 * scale, "Min": -2.0 * scale, "Mean": 0.5 * scale + shift, "Norm": 4.0 * scale + shift}
        return {"Torch.a.0.forward": api([tensor()], [tensor(1.0, **value)])}

    paths = write_dump(tmp_path / "t", data(factor, 0.0 if shown else 0.3)), write_dump(tmp_path / "g", data(1.0, 0.0))
    text = [line.text for line in describe(compare(*paths, tmp_path / "o"))]
    assert ("    hint: The target is 1.1 times the golden value." in text) is shown
