"""bench_path and diff_nums: where a run parts from an earlier one, told and saved while it runs."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, Step, configured, forget_debugger, golden, tensors

from msprobe.errors import ConfigError
from msprobe.pytorch.dump.checks import held_tensors
from msprobe.pytorch.dump.checks.argument_names import argument_name
from msprobe.pytorch.dump.checks.bench_check import BenchCheck
from msprobe.pytorch.dump.checks.same_records import Verdict, verdict
from msprobe.pytorch.dump.checks.unread import Unread
from msprobe.pytorch.dump.encoder import Side
from msprobe.writer import TensorPool

BENCH = "earlier"


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied by `factor`."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * Scaled.factor


def module(eps: float) -> Any:
    """The reference's sample: f and h add eps inside, g does not."""
    made: Any = types.ModuleType("nd")
    made.f = lambda x, y: x * 2 + eps
    made.g = lambda x: x + 1
    made.h = lambda x: {"a": x + eps}
    made.i = lambda x: x.mul_(2).add_(eps)
    made.p = lambda turned: torch.tensor([2.0, 1.0] if turned else [1.0, 2.0]) + 0
    made.r = lambda made: made()
    made.n = lambda made=(): next(iter(made), None)
    made.s = lambda x: Scaled.apply(x)
    return made


def sample(functions: Any) -> None:
    x = torch.ones(3)
    functions.g(x)
    functions.f(x, x)
    functions.h(x)
    functions.f(x, x * 3)
    functions.g(functions.f(x, x))


def run(
    directory: Path,
    body: Callable[[Any], Any],
    *,
    eps: float = 0.0,
    steps: int = 1,
    model: Any = None,
    level: str = "L1",
    rank_id: Any = None,
    ops_dir: str | None = None,
    **section: Any,
) -> Run:
    """Record `body` with the functions of `module(eps)`; with bench_path in `section` as task tensor, else as statistics."""
    forget_debugger()
    directory.mkdir(exist_ok=True)
    task = "tensor" if "bench_path" in section else "statistics"
    if level == "L1":
        section.setdefault("list", ["Nd"])
    debugger = configured(directory, task=task, level=level, ops_dir=ops_dir, **{task: section})
    functions = module(eps)
    for name in "fghinprs":
        debugger.register_custom_api(functions, name, "Nd")
    for _ in range(steps):
        debugger.start(model, rank_id=rank_id)
        body(functions)
        debugger.stop()
        debugger.step()
    for name in "fghinprs":
        debugger.restore_custom_api(functions, name)
    return Run(directory / "dump")


def compared(tmp_path: Path, body: Callable[[Any], Any] = sample, eps: float = 0.1, diff_nums: int = -1, **more: Any) -> Run:
    """The run with eps, after an earlier one without."""
    run(tmp_path / BENCH, body, **{k: v for k, v in more.items() if k in ("steps", "model", "level", "list", "summary_mode")})
    return run(tmp_path / "run", body, eps=eps, bench_path=str(tmp_path / BENCH / "dump"), diff_nums=diff_nums, **more)


def saved(step: Step) -> list[str]:
    """The entries with files; each file that is named is there, and each that is there is named."""
    named = [record["data_name"] for record in tensors(list(step.data.values())) if "data_name" in record]
    assert sorted(named) == sorted(path.name for path in (step.directory / "dump_tensor_data").iterdir())
    return [name for name, entry in step.data.items() if "data_name" in json.dumps(entry)]


def test_the_sample(tmp_path: Path) -> None:
    """Faults aside: files of the nested result too (the reference compares none), and no data_name without a file (F35)."""
    made = compared(tmp_path, steps=2, summary_mode="md5")
    for number, theirs in golden("bench_dall")["steps"].items():
        step = made.step(int(number))
        files = sorted(path.name for path in (step.directory / "dump_tensor_data").iterdir())
        assert [name for name in files if ".h." not in name] == theirs["files"]
        assert step.names == list(theirs["data"])
        for name, entry in theirs["data"].items():
            ours = [record for part in ("input_args", "output") for record in tensors(step.data[name][part])]
            records = [record for part in ("input_args", "output") for record in tensors(entry[part])]
            assert len(ours) == len(records)
            for mine, record in zip(ours, records, strict=True):
                without_file = [key for key in record if key != "data_name" or record["data_name"] in files]
                assert list(mine) == without_file
                assert all(mine[key] == record[key] for key in without_file if key not in ("Mean", "Norm"))


@pytest.mark.parametrize("mode", ["statistics", "md5", "xor"])
def test_every_summary_mode(tmp_path: Path, mode: str) -> None:
    made = compared(tmp_path, steps=2, summary_mode=mode)
    assert made.steps == [0, 1]
    for number in (0, 1):
        step = made.step(number)
        assert step.names == ["Nd.g.0.forward", "Nd.f.0.forward", "Nd.h.0.forward", "Nd.f.1.forward", "Nd.f.2.forward", "Nd.g.1.forward"]
        # The reference looks at no nested output, so it has no files of h; all others are the same.
        assert saved(step) == ["Nd.f.0.forward", "Nd.h.0.forward", "Nd.f.1.forward", "Nd.f.2.forward"]
        assert list(step.data["Nd.f.0.forward"]["output"][0])[-1] == "data_name"
        meta = json.loads((step.directory / "meta.json").read_text())
        assert meta["differences"] == saved(step) and meta["compared_with"].startswith(str(tmp_path / BENCH))
        assert meta["compared"] == {"same": 1, "behind": 1, "missing": 0, "not_comparable": 0}
    files = made.step().directory / "dump_tensor_data"
    assert torch.equal(torch.load(files / "Nd.f.1.forward.input.1.pt", weights_only=True), torch.ones(3) * 3)
    assert torch.equal(torch.load(files / "Nd.h.0.forward.output.0.a.pt", weights_only=True), torch.ones(3) + 0.1)


@pytest.mark.parametrize(("diff_nums", "names"), [(1, ["g.0", "f.0"]), (2, ["g.0", "f.0", "h.0"]), (3, ["g.0", "f.0", "h.0", "f.1"])])
def test_recording_ends_after_so_many(tmp_path: Path, diff_nums: int, names: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="msprobe"):
        made = compared(tmp_path, diff_nums=diff_nums, steps=3)
    assert made.steps == [0]
    assert made.step().names == [f"Nd.{name}.forward" for name in names]
    assert saved(made.step()) == [f"Nd.{name}.forward" for name in names[1:]]
    assert f"diff_nums: {diff_nums} differences have been found, recording ends here" in caplog.text


def test_the_number_is_of_all_steps(tmp_path: Path) -> None:
    made = compared(tmp_path, diff_nums=5, steps=3)
    assert made.steps == [0, 1] and saved(made.step(1)) == ["Nd.f.0.forward"]


def test_equal_runs_keep_no_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, eps=0.0).step()
    assert saved(step) == [] and step.dump["task"] == "tensor"
    assert "differences from bench_path: 0; the same: 6" in caplog.text


def test_what_a_call_overwrote_is_saved_as_it_was(tmp_path: Path) -> None:
    step = compared(tmp_path, lambda functions: functions.i(torch.ones(2))).step()
    assert saved(step) == ["Nd.i.0.forward"]
    before = torch.load(step.directory / "dump_tensor_data" / "Nd.i.0.forward.input.0.pt", weights_only=True)
    assert before.tolist() == [1, 1]


def test_a_difference_in_the_backward_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(functions: Any) -> None:
        x = torch.ones(3, requires_grad=True)
        y = functions.s(functions.g(x)) * 2
        y.sum().backward()
        Scaled.factor = 3.0

    monkeypatch.setattr(Scaled, "factor", 1.0)
    step = compared(tmp_path, body, eps=0.0).step()
    assert saved(step) == ["Nd.s.0.backward"]
    files = sorted(path.name for path in (step.directory / "dump_tensor_data").iterdir())
    assert files == ["Nd.s.0.backward.input.0.pt", "Nd.s.0.backward.output.0.pt"]


def test_gradients_behind_a_forward_difference(tmp_path: Path) -> None:
    """A gradient computed from values that differed already is no difference of its own."""

    def body(functions: Any) -> None:
        x = torch.ones(3, requires_grad=True)
        torch.exp(functions.f(x, x)).sum().backward()

    step = compared(tmp_path, body, list=["Nd", "exp", "sum"]).step()
    assert saved(step) == ["Nd.f.0.forward"]
    assert "Torch.exp.0.backward" in step.data


class Inside(torch.nn.Module):
    def __init__(self, functions: list[Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.functions = functions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.functions[0].s(self.functions[0].f(x, x)))


def deep(functions_now: list[Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(3, 3), Inside(functions_now)), torch.nn.ReLU())


@pytest.mark.parametrize(("eps", "names"), [(0.1, ["Nd.f.0.forward"]), (0.0, ["Tensor.__mul__.0.forward", "Nd.s.0.backward"])])
def test_modules_around_a_difference_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eps: float, names: list[str]) -> None:
    functions_now: list[Any] = []
    model = deep(functions_now)

    def body(functions: Any) -> None:
        functions_now[:] = [functions]
        model.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        if not eps:
            Scaled.factor = 2.0

    monkeypatch.setattr(Scaled, "factor", 1.0)
    step = compared(tmp_path, body, eps=eps, model=model, level="mix").step()
    assert saved(step) == names
    assert {"Module.0.Sequential.forward.0", "Module.0.1.Inside.backward.0"} <= set(step.names)


def test_modules_that_run_when_recording_ends_are_ended(tmp_path: Path) -> None:
    functions_now: list[Any] = []
    model = deep(functions_now)

    def body(functions: Any) -> None:
        functions_now[:] = [functions]
        model(torch.ones(2, 3)).sum().backward()

    step = compared(tmp_path, body, model=model, level="mix", diff_nums=1).step()
    assert saved(step) == ["Nd.f.0.forward"]
    rest = step.names[step.names.index("Nd.f.0.forward") + 1 :]
    assert rest == ["Module.0.1.Inside.forward.0", "Module.0.Sequential.forward.0"]
    assert all("output" in step.data[name] and step.data[name]["output"] is not None for name in rest)


def test_values_that_change_places(tmp_path: Path) -> None:
    """Statistics do not see them, a checksum does."""
    turned = [False]

    def body(functions: Any) -> None:
        functions.p(turned[0])
        turned[0] = not turned[0]

    assert saved(compared(tmp_path, body).step()) == []
    shutil.rmtree(tmp_path / BENCH)
    shutil.rmtree(tmp_path / "run")
    assert saved(compared(tmp_path, body, summary_mode="md5").step()) == ["Nd.p.0.forward"]


def test_checksums_of_two_kinds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An XOR and a CRC-32 have nothing in common: nothing is said to be the same."""
    run(tmp_path / BENCH, sample, summary_mode="xor")
    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = run(tmp_path / "run", sample, summary_mode="md5", bench_path=str(tmp_path / BENCH / "dump")).step()
    assert saved(step) == [] and "differences from bench_path: 0; not comparable: 6" in caplog.text


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [("xor", "md5", 1), ("md5", "xor", 1), ("xor", "statistics", 1), ("statistics", "xor", 1), ("md5", "statistics", 0), ("xor", "xor", 0)],
)
def test_summary_modes_that_have_nothing_in_common(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, theirs: str, ours: str, told: int
) -> None:
    run(tmp_path / BENCH, sample, summary_mode=theirs, steps=2)
    run(tmp_path / "run", sample, summary_mode=ours, steps=2, bench_path=str(tmp_path / BENCH / "dump"), diff_nums=-1)
    warnings = [line.getMessage() for line in caplog.records if "nothing can be compared" in line.getMessage()]
    assert len(warnings) == told
    assert all(text.startswith(f"bench_path holds {theirs}, this run {ours}: nothing can be compared") for text in warnings)


def test_other_weights_are_other_input(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))

    def body(_: Any) -> None:
        model(torch.ones(2, 3))
        with torch.no_grad():
            model[0].weight.add_(1.0)

    assert saved(compared(tmp_path, body, model=model, level="L0").step()) == []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.unused = torch.nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.fc(x) * self.scale, self.unused.weight)  # that module is not called itself


@pytest.mark.parametrize("mode", ["statistics", "md5", "xor"])
@pytest.mark.parametrize(
    ("level", "which", "shown"),
    [
        ("mix", ["0.0.fc.weight"], "Module.0.0.fc.Linear.forward.0 weight"),
        ("L0", ["0.0.fc.bias"], "Module.0.0.fc.Linear.forward.0 bias"),
        ("mix", ["0.0.scale"], "Module.0.0.Block.forward.0 scale"),
        ("mix", ["0.0.fc.weight", "0.0.scale"], "Module.0.0.fc.Linear.forward.0 weight"),
        ("mix", ["0.0.unused.weight"], "Functional.linear.1.forward input.1"),
        ("L1", ["0.0.fc.weight"], "Functional.linear.0.forward input.1"),
    ],
)
def test_a_parameter_inside_a_module(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str, which: list[str], shown: str, mode: str
) -> None:
    """No module around it is blamed, neither forward nor backward, and the parameter is named."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Sequential(Block()), torch.nn.ReLU())

    def body(_: Any) -> None:
        model.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        with torch.no_grad():
            for name in which:
                model.get_parameter(name)[..., 0] += 0.1

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, body, model=model, level=level, summary_mode=mode, **({"list": []} if level == "L1" else {})).step()
    assert saved(step) == [] and "differences from bench_path: 0;" in caplog.text
    assert f"; the first parameter that differs: {shown}\n" in caplog.text
    assert json.loads((step.directory / "meta.json").read_text())["first_other_parameter"] == shown


def test_a_buffer_is_no_parameter_but_the_call_that_takes_it_in_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.BatchNorm1d(3))).eval()

    def body(_: Any) -> None:
        model(torch.ones(2, 3))
        model[0][0].running_mean += 1

    step = compared(tmp_path, body, model=model, level="mix").step()
    assert saved(step) == ["Module.0.0.BatchNorm1d.forward.0"]
    assert "; inside it Functional.batch_norm.0.forward is the first that took in another tensor (running_mean)" in caplog.text


def test_parameters_behind_a_difference_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weight = torch.nn.Parameter(torch.ones(3))

    def body(functions: Any) -> None:
        x = functions.f(torch.ones(3), 1)
        with torch.no_grad():
            weight.copy_(x)
        torch.exp(weight)

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, body, list=["Nd", "exp"]).step()
    assert saved(step) == ["Nd.f.0.forward"] and "first parameter" not in caplog.text


def test_a_parameters_gradient_alone(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))

    def body(_: Any) -> None:
        model(torch.ones(2, 3)).sum().backward()  # the second time the gradient is added to the first one

    assert saved(compared(tmp_path, body, model=model, level="L0").step()) == ["Module.0.Linear.parameters_grad.0"]


def test_calls_that_only_one_run_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path / BENCH, sample)

    def other(functions: Any) -> None:
        sample(functions)
        functions.g(torch.ones(2))

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = run(tmp_path / "run", other, bench_path=str(tmp_path / BENCH / "dump"), diff_nums=-1).step()
    assert "Nd.g.2.forward" in step.names and saved(step) == []
    assert "the same: 6; not in it: 1" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="msprobe"):
        run(tmp_path / "less", lambda f: f.g(torch.ones(3)), bench_path=str(tmp_path / "run" / "dump"))
    assert "the same: 1; only in it: 6" in caplog.text


def test_a_call_that_raises_in_one_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    columns = iter((3, 2))

    def body(_: Any) -> None:
        with contextlib.suppress(RuntimeError):
            torch.matmul(torch.ones(2, 3), torch.ones(next(columns), 3))

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, body, list=["matmul"]).step()
    assert saved(step) == [] and "not comparable: 1" in caplog.text


@pytest.mark.parametrize("value", [object(), {1, 2}, [{"a": object()}]])
def test_what_cannot_be_recorded_is_not_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any) -> None:
    def body(functions: Any) -> None:
        functions.r(lambda: value)  # nothing of what it takes in or gives out is known
        functions.g(torch.ones(1))

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, body).step()
    assert step.data["Nd.r.0.forward"]["input_args"] == [None]
    assert saved(step) == [] and "the same: 1; not comparable: 1" in caplog.text


@pytest.mark.parametrize("value", [object(), (x for x in "ab")])
def test_a_result_that_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any) -> None:
    results = iter((value, value, None, None))

    def body(functions: Any) -> None:
        functions.n(results)

    with caplog.at_level(logging.INFO, logger="msprobe"):
        compared(tmp_path, lambda functions: functions.n())
    assert "differences from bench_path: 0; the same: 1" in caplog.text  # None, in both
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="msprobe"):
        run(tmp_path / "other", body, bench_path=str(tmp_path / "run" / "dump"))
    assert "differences from bench_path: 0; not comparable: 1" in caplog.text


@pytest.mark.parametrize("value", [object(), [{"a": {1}}]])
def test_a_value_that_the_earlier_dump_could_not_record(tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any) -> None:
    """Its null is no None: meta.json of the earlier dump lists it."""
    given = iter((value, None if not isinstance(value, list) else [{"a": None}]))

    def body(functions: Any) -> None:
        functions.n([next(given)])

    with caplog.at_level(logging.INFO, logger="msprobe"):
        compared(tmp_path, body)
    assert "differences from bench_path: 0; not comparable: 1" in caplog.text


def test_an_argument_that_the_earlier_dump_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "builtin_ignore_ops.yaml").write_text("Nd: {g: {input: all}}", encoding="utf-8")
    with caplog.at_level(logging.INFO, logger="msprobe"):
        run(tmp_path / BENCH, lambda functions: functions.g(torch.ones(1)), ops_dir=str(tmp_path))
        run(tmp_path / "run", lambda functions: functions.g(torch.ones(1)), bench_path=str(tmp_path / BENCH / "dump"))
    assert "differences from bench_path: 0; the same: 1" in caplog.text
    assert "its argument" not in caplog.text


def test_a_call_and_a_module_that_raise_in_both_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def body(_: Any) -> None:
        with contextlib.suppress(RuntimeError):
            model(torch.ones(1, 3))

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = compared(tmp_path, body, model=model, level="mix").step()
    assert len(step.data) == 2 and "differences from bench_path: 0; not comparable: 2" in caplog.text


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (
            "Nd: {f: {output: all}}",
            "differences from bench_path: 1; the same: 1; behind a difference or from other input (first: Nd.g.1.forward): 1",
        ),
        ("Nd: {g: {input: all}}", "differences from bench_path: 5; the same: 1\n"),
    ],
)
def test_what_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture, rule: str, line: str) -> None:
    """Outputs: not comparable. Inputs say nothing, as where none are recorded."""
    (tmp_path / "builtin_ignore_ops.yaml").write_text(rule, encoding="utf-8")
    with caplog.at_level(logging.INFO, logger="msprobe"):
        run(tmp_path / BENCH, sample)
        run(tmp_path / "run", sample, eps=0.1, bench_path=str(tmp_path / BENCH / "dump"), diff_nums=-1, ops_dir=str(tmp_path))
    assert line in caplog.text
    assert ("not comparable: 3" if "output" in rule else "Nd.g.1.forward is different: from what it took in, which could") in caplog.text


@pytest.mark.parametrize("earlier", [["input"], ["all"]])
@pytest.mark.parametrize("here", [["input"], ["all"]])
def test_outputs_that_were_not_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture, earlier: list[str], here: list[str]) -> None:
    factors = iter((2.0, 3.0))

    def body(functions: Any) -> None:
        functions.g(torch.ones(1))
        torch.mul(torch.ones(1), next(factors))

    run(tmp_path / BENCH, body, list=["Nd", "mul"], data_mode=earlier)
    with caplog.at_level(logging.INFO, logger="msprobe"):
        bench = str(tmp_path / BENCH / "dump")
        step = run(tmp_path / "run", body, list=["Nd", "mul"], data_mode=here, bench_path=bench, diff_nums=-1).step()
    assert saved(step) == ["Torch.mul.0.forward"]
    if "input" in (*earlier, *here):
        assert "Torch.mul.0.forward is different: its argument other is 2.0 in the earlier run and 3.0 here" in caplog.text
        assert "; what it gave out is not compared with" in caplog.text
        assert "differences from bench_path: 1; not comparable: 1" in caplog.text
    else:
        assert "differences from bench_path: 1; the same: 1" in caplog.text


def test_a_step_that_the_earlier_run_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path / BENCH, sample)
    made = run(tmp_path / "run", sample, eps=0.1, steps=2, bench_path=str(tmp_path / BENCH / "dump"), diff_nums=-1)
    assert len(saved(made.step(0))) == 4 and saved(made.step(1)) == []
    assert "step 1 is not compared with bench_path" in caplog.text and "has no step1" in caplog.text


def test_two_processes_in_the_earlier_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    earlier = run(tmp_path / BENCH, sample)
    first = earlier.step().directory
    shutil.copytree(first, first.parent / "proc1")
    assert saved(run(tmp_path / "run", sample, eps=0.1, bench_path=str(earlier.root)).step()) == []
    assert "and not one process" in caplog.text


@pytest.mark.parametrize(("rank", "found"), [(0, 0), (1, 1)])
def test_the_same_rank_is_compared(tmp_path: Path, rank: int, found: int) -> None:
    earlier = run(tmp_path / BENCH, sample)
    directory = earlier.step().directory
    changed = earlier.step().dump
    changed["data"]["Nd.g.0.forward"]["output"][0]["Max"] = 7.0
    shutil.copytree(directory, directory.parent / "rank1")
    (directory.parent / "rank1" / "dump.json").write_text(json.dumps(changed))
    directory.rename(directory.parent / "rank0")
    made = run(tmp_path / "run", sample, bench_path=str(earlier.root), diff_nums=-1, rank_id=rank)
    assert saved(made.step()) == ["Nd.g.0.forward"][:found]


def test_an_error_of_ours_stays_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / BENCH, sample)

    def broken(*_: Any) -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(BenchCheck, "_is_difference", broken)
    step = run(tmp_path / "run", sample, eps=0.1, bench_path=str(tmp_path / BENCH / "dump")).step()
    assert saved(step) == [] and len(step.names) == 6
    assert "Nd.f.0.forward: could not be checked: ValueError('broken')" in step.errors


def test_threads(tmp_path: Path) -> None:
    def body(functions: Any) -> None:
        def work() -> None:
            for _ in range(20):
                functions.f(torch.ones(3), torch.ones(3))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(saved(compared(tmp_path, body).step())) == 80


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda root: None, "holds no step0, step1 ...; it is no dump"),
        (lambda root: (root / "step0").mkdir(), "no dump.json in its steps"),
        (lambda root: (root / "proc3").mkdir(), "name the directory above the steps"),
        (lambda root: _dump(root, "{"), "is cut off"),
        (lambda root: _dump(root, '{"task": "nan_check", "data": {}}'), 'was recorded with task "nan_check"'),
        (lambda root: _dump(root, "[]"), "holds a JSON array instead of an object"),
    ],
)
def test_no_dump_is_one_error_at_the_start(tmp_path: Path, prepare: Any, reason: str) -> None:
    root = tmp_path / "it"
    root.mkdir()
    prepare(root)
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, task="tensor", level="L1", tensor={"bench_path": str(root)})
    assert f'"tensor"."bench_path" is "{root}": ' in str(caught.value) and reason in str(caught.value)
    assert "\n" not in str(caught.value)


def _dump(root: Path, text: str) -> None:
    (root / "step0" / "proc1").mkdir(parents=True)
    (root / "step0" / "proc1" / "dump.json").write_text(text)


def test_no_directory_and_the_same_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'"tensor"."bench_path" is ".*nowhere": no such directory'):
        configured(tmp_path, task="tensor", level="L1", tensor={"bench_path": str(tmp_path / "nowhere")})
    (tmp_path / "dump").mkdir()
    with pytest.raises(ConfigError, match="this is dump_path too"):
        configured(tmp_path, task="tensor", level="L1", tensor={"bench_path": str(tmp_path / "dump")})


def test_the_existing_tools_dump(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its means and norms are in the tensor's precision, and its gradients are those of the graph's last node."""

    def body(functions: Any) -> None:
        functions.f(torch.ones(3, requires_grad=True), 1).sum().backward()

    earlier = run(tmp_path / BENCH, body).step()
    (earlier.directory / "meta.json").unlink()
    dump = earlier.dump
    dump["data"]["Nd.f.0.forward"]["output"][0]["Norm"] += 1e-7
    (earlier.directory / "dump.json").write_text(json.dumps(dump))
    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = run(tmp_path / "run", body, bench_path=str(tmp_path / BENCH / "dump")).step()
    assert saved(step) == [] and "the same: 1; not comparable: 1" in caplog.text


# --- arguments that are no tensors -----------------------------------------------------------------------------------------------------
H = torch.tensor([[-3.0, -0.5, 2.0], [0.25, 1.0, 3.0]])
Q = torch.arange(12.0).reshape(1, 4, 3)


@pytest.mark.parametrize(
    ("earlier", "now", "told"),
    [
        (lambda: F.gelu(H), lambda: F.gelu(H, approximate="tanh"), 'argument approximate is there in this run only ("tanh"), and'),
        (lambda: F.gelu(H, approximate="tanh"), lambda: F.gelu(H), 'argument approximate is there in the earlier run only ("tanh"), and'),
        (lambda: torch.clamp(H, -1), lambda: torch.clamp(H, -1, 0.5), "argument max is there in this run only (0.5), and"),
        (
            lambda: F.scaled_dot_product_attention(Q, Q, Q),
            lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True),
            "argument is_causal is there in this run only (True), and",
        ),
        (
            lambda: F.layer_norm(H, (3,), None, None, 1e-5),
            lambda: F.layer_norm(H, (3,), None, None, 1e-2),
            "argument eps is 1e-05 in the earlier run and 0.01 here, and",
        ),
        (lambda: F.layer_norm(H, (3,)), lambda: F.layer_norm(H, (2, 3)), "normalized_shape is [3] in the earlier run and [2, 3] here"),
        (
            lambda: F.scaled_dot_product_attention(Q, Q, Q),
            lambda: F.scaled_dot_product_attention(Q, Q, Q, attn_mask=torch.eye(4)),
            "argument attn_mask is there in this run only (a tensor), and",
        ),
        (lambda: torch.mul(H, 2), lambda: torch.mul(H, torch.tensor(3.0)), "is 2 in the earlier run and a tensor here, and"),
        (lambda: F.softmax(H, dim=0), lambda: F.softmax(H, 1), "argument dim is "),
    ],
)
def test_an_argument_is_the_difference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, earlier: Callable[[], Any], now: Callable[[], Any], told: str
) -> None:
    calls = iter((earlier, now))
    step = compared(tmp_path, lambda _: next(calls)(), list=[]).step()
    assert [name for name in saved(step) if ".forward" in name] == saved(step) != []
    assert told in caplog.text and "the same input" not in caplog.text


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (lambda: torch.clamp(H, -1), lambda: torch.clamp(H, -1, None)),
        (lambda: torch.clamp(H, -9), lambda: torch.clamp(H, -9, 9)),
        (lambda: torch.clamp(H, -1), lambda: torch.clamp(H, min=-1)),
        (lambda: torch.mul(H, Q[0, 0]), lambda: torch.mul(H, other=Q[0, 0])),
    ],
)
def test_arguments_that_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, earlier: Callable[[], Any], now: Callable[[], Any]
) -> None:
    calls = iter((earlier, now))
    with caplog.at_level(logging.INFO, logger="msprobe"):
        assert saved(compared(tmp_path, lambda _: next(calls)(), list=["clamp", "mul"]).step()) == []
    assert "differences from bench_path: 0; the same: 1" in caplog.text


def test_a_tensor_passed_by_name_is_compared_with_the_one_by_position(tmp_path: Path) -> None:
    calls = iter((lambda: torch.mul(H, Q[0, 0]), lambda: torch.mul(H, other=Q[0, 1])))
    assert saved(compared(tmp_path, lambda _: next(calls)(), list=["mul"]).step()) == []  # another tensor went in


def test_an_argument_that_shows_in_the_gradient_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    highs = iter((2.0, 1.0))

    def body(_: Any) -> None:
        x = torch.ones(2, requires_grad=True)
        torch.nn.functional.hardtanh(x, -1.0, next(highs)).sum().backward()

    step = compared(tmp_path, body, list=["hardtanh"]).step()
    assert saved(step) == ["Functional.hardtanh.0.backward"]
    assert "of its forward call, its argument max_val is 2.0 in the earlier run and 1.0 here, and it gave out" in caplog.text


def test_what_went_in_is_not_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compared(tmp_path, lambda functions: functions.h(torch.ones(2)), data_mode=["output"])
    assert "from what it took in, which could not be compared, it gave out something else" in caplog.text


@pytest.mark.parametrize(
    ("entry", "position", "name"),
    [
        ("Functional.layer_norm.0.forward", 4, "eps"),
        ("Torch.clamp.0.forward", 2, "max"),
        ("Tensor.clamp.0.forward", 1, "min"),
        ("Torch.sum.0.forward", 1, "1"),
        ("Functional.gelu.0.forward", 7, "7"),
        ("Torch.nothing.0.forward", 1, "1"),
        ("Nd.f.0.forward", 1, "1"),
        ("Module.a.B.forward.0", 0, "0"),
    ],
)
def test_names_of_arguments(entry: str, position: int, name: str) -> None:
    assert argument_name(entry, position) == name


# --- memory ----------------------------------------------------------------------------------------------------------------------------
class Held(torch.nn.Module):
    inner: Callable[[torch.Tensor], Any]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x[:6])
        return x


def test_values_held_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outermost call gives its values up, the one that is the difference keeps them."""
    monkeypatch.setattr(held_tensors.HeldTensors.__init__, "__defaults__", (64,))

    model = torch.nn.Sequential(Held())

    def once(functions: Any) -> None:
        model[0].inner = functions.h
        model(torch.ones(12))
        functions.h(torch.ones(17))

    step = compared(tmp_path, once, model=model, level="mix").step()
    assert saved(step) == ["Nd.h.0.forward"]  # 24 bytes in, 24 bytes out, beside the 48 of the module
    assert "Nd.h.1.forward: its values were not kept" in step.errors and "Nd.h.0" not in step.errors
    assert json.loads((step.directory / "meta.json").read_text())["differences"] == ["Nd.h.0.forward", "Nd.h.1.forward"]


def test_what_is_held_is_counted(tmp_path: Path) -> None:
    pool = TensorPool()
    held = held_tensors.HeldTensors(str(tmp_path), pool, limit=100)
    told: list[str] = []
    held.report = lambda entry, reason: told.append(entry)

    def record_of(entry: str, values: int) -> dict[str, Any]:
        held(torch.ones(values), Side(entry, "output", True), ("0",))
        return {"output": [tensor()]}

    records = {entry: record_of(entry, 10) for entry in "abc"}  # 40 bytes each
    assert [held.write(entry, records[entry], "data_name") for entry in "abc"] == [0, 1, 1] and told == ["a"]
    assert held.write("d", record_of("d", 25), "data_name") == 1  # all room is free again
    assert held.write("e", record_of("e", 26), "data_name") == 0 and told == ["a", "e"]
    large = torch.sparse_coo_tensor(torch.tensor([[5]]), torch.ones(1), (1000,), check_invariants=True)
    held(large, Side("f", "output", True), ("0",))
    assert held.write("f", {"output": [tensor()]}, "data_name") == 1  # counted as what it stores
    pool.close()


# --- records -------------------------------------------------------------------------------------------------------------------------
def tensor(**fields: Any) -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0} | fields


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (tensor(), tensor(), "same"),
        (tensor(), tensor(Norm=1.1), "other"),
        (tensor(Max=float("nan")), tensor(Max=float("nan")), "same"),
        (tensor(md5="0a"), tensor(md5="0a", Max=3.0), "same"),
        (tensor(md5="0a"), tensor(md5="0b"), "other"),
        (tensor(md5="0a"), tensor(), "same"),
        (tensor(md5="0a", Max=None), tensor(md5="0x0a", Max=None), "unknown"),
        (tensor(md5="0x0a", Max=None), tensor(md5="0x0a", Max=None), "same"),
        (tensor(Max=None), tensor(), "unknown"),
        (tensor(shape=[0], Max=None), tensor(shape=[0], Max=None), "same"),
        (tensor(shape=[2, 1]), tensor(), "other"),
        (tensor(dtype="torch.float16"), tensor(), "other"),
        (tensor(), None, "other"),
        (None, None, "same"),
        ([tensor()], [tensor(), tensor()], "other"),
        ([tensor(), tensor(Max=None)], [tensor(), tensor()], "unknown"),
        ([tensor(Max=None), tensor(Max=2.0)], [tensor(), tensor()], "other"),
        ({"a": tensor()}, {"a": tensor()}, "same"),
        ({"a": tensor()}, {"b": tensor()}, "other"),
        ({"type": tensor(), "dtype": tensor()}, {"type": tensor(), "dtype": tensor(Max=2.0)}, "other"),
        ({"type": "int", "value": 1}, {"type": "int", "value": 2}, "other"),
        ({"type": "float", "value": float("nan")}, {"type": "float", "value": float("nan")}, "same"),
        (tensor(), {"type": "int", "value": 2}, "other"),
        (Unread.OBJECT, None, "unknown"),
        (Unread.OBJECT, tensor(), "other"),
        (Unread.LEFT_OUT, tensor(), "unknown"),
        ([Unread.OBJECT, tensor()], [None, tensor(Max=2.0)], "other"),
    ],
)
def test_records(ours: Any, theirs: Any, expected: str) -> None:
    assert verdict(ours, theirs, plain=True) is Verdict(expected)
    assert verdict(theirs, ours, plain=True) is Verdict(expected)


def test_numbers_count_only_where_asked() -> None:
    assert verdict({"type": "int", "value": 1}, {"type": "int", "value": 2}, plain=False) is Verdict.SAME
