"""Calls of the optimizer where the mapping file makes one parameter of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim import SGD, AdamW, RMSprop  # noqa: E402

from msprobe.comparison.compare import compare  # noqa: E402
from msprobe.comparison.describe import describe  # noqa: E402
from msprobe.comparison.outcome import Outcome  # noqa: E402

from ..dumps import read_csv  # noqa: E402
from .fused_net import Step, build, mapped, recorded, train, train_clipped  # noqa: E402

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": partial(SGD, lr=0.1, momentum=0.9, foreach=False),
    "SGD of lists": partial(SGD, lr=0.1, momentum=0.9, foreach=True),
    "AdamW": partial(AdamW, lr=1e-3, foreach=False),
    "AdamW of lists": partial(AdamW, lr=1e-3, foreach=True),
    "AdamW fused": partial(AdamW, lr=1e-3, fused=True),
    "RMSprop": partial(RMSprop, lr=1e-3, foreach=False, centered=True),
}


def both(tmp_path: Path, make: Callable[[Any], Any], step: Step = train, **options: Any) -> tuple[Outcome, list[dict[str, str]]]:
    target, golden = (recorded(tmp_path / side, build(side == "t"), make, step, **options) for side in "tg")
    return compared(tmp_path, target, golden)


def compared(tmp_path: Path, target: Path, golden: Path) -> tuple[Outcome, list[dict[str, str]]]:
    outcome = compare(target, golden, tmp_path / "o", mapped(tmp_path))
    (report,) = outcome.reports
    assert report.csv is not None
    return outcome, read_csv(report.csv)


STEPS = ("_foreach_", "_fused_", "mul_.", "add_.", "lerp_.", "addcmul_.", "addcdiv_.", "sqrt", "sqrt_.")


def is_of_optimizer(row: dict[str, str]) -> bool:
    name = row["NPU Name"] if row["NPU Name"] != "N/A" else row["Bench Name"]
    return name.partition(".")[2].startswith(STEPS) and ".backward." not in name


@pytest.mark.parametrize(("name", "before"), [*((name, 1) for name in OPTIMIZERS), ("SGD", 0), ("AdamW of lists", 0)])
def test_what_the_optimizer_does_to_a_fused_parameter_is_compared_with_its_parts(tmp_path: Path, name: str, before: int) -> None:
    outcome, rows = both(tmp_path, OPTIMIZERS[name], task="tensor", before=before)
    found = Counter(row["Result"] for row in rows if is_of_optimizer(row))
    assert set(found) <= {"pass", "warning"}, found
    joined = [row for row in rows if is_of_optimizer(row) and row["Bench Name"].count(";") == 2]
    assert len(joined) >= 6 and all(row["NPU Tensor Shape"] == row["Bench Tensor Shape"] for row in joined)
    assert outcome.reports[0].counts["error"] == 0
    assert outcome.exit_code == 0 and outcome.reports[0].counts["unmatched"] == 0


def test_what_four_statistics_tell(tmp_path: Path) -> None:
    """Joined values follow from them, and the sum of the gradients of q, k and v is what the norm before them got. Left open is the sum
    that a residual connection adds to."""
    _, rows = both(tmp_path, OPTIMIZERS["AdamW of lists"])
    left = [row["NPU Name"] for row in rows if row["Result"] != "pass"]
    assert len(left) == 4 and {row["Result"] for row in rows} == {"pass", "not compared"}
    assert {name for name in left if name.startswith("Module.")} == {
        f"Module.blocks.{n}.gate_up.Linear.backward.0.output.0" for n in (0, 1)
    }


@pytest.mark.parametrize("name", ["AdamW", "AdamW of lists", "AdamW fused"])
def test_another_setting_for_a_part_is_found(tmp_path: Path, name: str) -> None:
    """A parameter group with another learning rate in the golden run: that shows in the parameter that the optimizer made."""
    make = OPTIMIZERS[name]

    def grouped(parameters: Any) -> Any:
        parameters = list(parameters)
        odd = [one for one in parameters if one is golden.blocks[1].v.weight]
        rest = [one for one in parameters if one is not golden.blocks[1].v.weight]
        return make([{"params": rest}, {"params": odd, "lr": 0.5}])

    golden = build(False)
    target = recorded(tmp_path / "t", build(True), make, task="tensor")
    outcome, rows = compared(tmp_path, target, recorded(tmp_path / "g", golden, grouped, task="tensor"))
    assert outcome.exit_code == 1
    wrong = [row for row in rows if is_of_optimizer(row) and row["Result"] in ("error", "unmatched")]
    assert wrong


def test_another_gradient_of_a_part_is_found_where_it_is(tmp_path: Path) -> None:
    """A hook on the golden run's k that doubles its gradient: the gradient of the fused weight is named, before the optimizer."""
    golden = build(False)
    golden.blocks[0].k.weight.register_hook(lambda gradient: 2 * gradient)
    make = OPTIMIZERS["SGD of lists"]
    outcome, _ = compared(tmp_path, recorded(tmp_path / "t", build(True), make), recorded(tmp_path / "g", golden, make))
    first = outcome.reports[0].findings.leading
    assert first is not None and first.call.name == "Module.blocks.0.qkv.Linear.parameters_grad.0" and first.kind == "gradient"


def test_clipping_leaves_open_what_has_no_counterpart(tmp_path: Path) -> None:
    """Norms of whole and parts cannot be held against each other; the total norm and the clipped gradients can."""
    outcome, rows = both(tmp_path, OPTIMIZERS["SGD of lists"], train_clipped, task="tensor")
    open_ = {row["NPU Name"]: row["Err_message"] for row in rows if row["Result"] == "not compared"}
    assert "Torch._foreach_norm.0.forward.output.3" in open_ and all("parameter" in text for text in open_.values())
    by_name = {row["NPU Name"]: row for row in rows}
    assert by_name["Torch.linalg.vector_norm.0.forward.output.0"]["Result"] == "pass"
    clipped = [row for name, row in by_name.items() if name.startswith("Torch._foreach_mul_.0.forward.output")]
    assert len(clipped) == 12 and {row["Result"] for row in clipped} == {"pass"}
    report = outcome.reports[0]
    assert report.counts["error"] == 0 and report.lost == 0
    (said,) = (note for note in report.notes if "optimizer's calls" in note)
    assert said.startswith(f"{len(open_)} values of the optimizer's calls are not compared") and "record the next step too" in said
    assert not any(row["Result"] == "unmatched" and is_of_optimizer(row) for row in rows)


def test_no_parameter_counts_as_another(tmp_path: Path) -> None:
    """The target trains one parameter less: its values stand alone, the others are compared with their own."""
    frozen = build(True)
    frozen.blocks[0].gate_up.weight.requires_grad_(False)
    make = OPTIMIZERS["SGD of lists"]
    target = recorded(tmp_path / "t", frozen, lambda parameters: make([one for one in parameters if one.requires_grad]))
    _, rows = compared(tmp_path, target, recorded(tmp_path / "g", build(False), make))
    alone = [row["Bench Name"] for row in rows if row["Result"] == "unmatched" and row["Bench Name"].startswith("Torch._foreach_add_.0")]
    assert len(alone) == 6  # gate and up: parameter, gradient, result
    assert not [row for row in rows if is_of_optimizer(row) and row["Result"] == "error"]


def test_nothing_changes_without_a_rule_about_parameters(tmp_path: Path) -> None:
    """One module, a rule about another: the optimizer's calls are paired by their sequence, as ever."""
    make = OPTIMIZERS["SGD of lists"]
    target, golden = (recorded(tmp_path / side, build(False), make) for side in "tg")
    rule = "tensors: [{target: head.output.0, golden: head.output.0, how: {flatten: [0, 1]}}]"
    outcome = compare(target, golden, tmp_path / "o", mapped(tmp_path, rule))
    assert outcome.reports[0].counts["pass"] == outcome.reports[0].matched


def test_a_transposed_parameter_is_turned_in_the_optimizer_too(tmp_path: Path) -> None:
    class Turned(torch.nn.Module):
        def __init__(self, turned: bool) -> None:
            super().__init__()
            self.turned = turned
            values = torch.arange(12.0).reshape(3, 4) / 7
            self.weight = torch.nn.Parameter(values.T.contiguous() if turned else values)

        def forward(self, x: Any) -> Any:
            return x @ self.weight if self.turned else x @ self.weight.T

    class Model(torch.nn.Module):
        def __init__(self, turned: bool) -> None:
            super().__init__()
            self.inner = Turned(turned)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    def step(net: Any, optimizer: Any) -> None:
        net(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()

    make = OPTIMIZERS["AdamW of lists"]
    target, golden = (recorded(tmp_path / side, Model(side == "t"), make, step, task="tensor") for side in "tg")
    rule = "tensors: [{target: inner.weight, golden: inner.weight, how: transpose}]"
    outcome = compare(target, golden, tmp_path / "o", mapped(tmp_path, rule))
    assert outcome.reports[0].csv is not None
    rows = [row for row in read_csv(outcome.reports[0].csv) if is_of_optimizer(row)]
    assert rows and {row["Result"] for row in rows} == {"pass"}


def test_the_mapped_modules_are_not_called_renamed(tmp_path: Path) -> None:
    outcome, _ = both(tmp_path, OPTIMIZERS["SGD"])
    assert not [note for note in outcome.reports[0].notes if "compared with each other all the same" in note]


@pytest.mark.parametrize("like", ["target", "golden"])
def test_a_reference_is_held_against_both_through_the_mapping(tmp_path: Path, like: str) -> None:
    wrong = build(True)
    with torch.no_grad():
        wrong.blocks[0].qkv.weight *= 1.05
    target = recorded(tmp_path / "t", wrong, None, task="tensor")
    golden = recorded(tmp_path / "g", build(False), None, task="tensor")
    reference = recorded(tmp_path / "r", build(like == "target").double(), None, task="tensor")
    options = mapped(tmp_path)
    outcome = compare(target, golden, tmp_path / "o", options.__class__(**{**options.__dict__, "reference": str(reference)}))
    assert outcome.reports[0].csv is not None
    row = next(row for row in read_csv(outcome.reports[0].csv) if row["NPU Name"] == "Module.blocks.0.qkv.Linear.forward.0.output.0")
    assert row["Reference Verdict"] == "target is farther from the truth than golden", row
    assert float(row["NPU Reference Err"]) > 0.01 and float(row["Bench Reference Err"]) < 1e-6
    assert any("speaks against the target" in line.text for line in describe(outcome))
