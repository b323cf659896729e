"""meta.json lists which nulls of dump.json stand for a value that nobody looked at."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, Step, configured, environment, parse, record

import warm_python
from msprobe.format import unread
from msprobe.writer import StepWriter


class Cache:
    """What nobody can look at."""


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor, given: Any = None, **more: Any) -> Any:
        return more.get("back", x + 1)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m = Module()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.m(*args, **kwargs)


NAME = "Module.m.Module.forward.0"


def listed(step: Step) -> dict[str, Any]:
    found = parse(step.directory / "meta.json").get("unread", {})
    assert isinstance(found, dict)
    return found


def call(directory: Path, *args: Any, level: str = "L0", **kwargs: Any) -> Step:
    model = Model()
    x = torch.ones(2)
    return record(directory, lambda: model(x, *args, **kwargs), model=model, level=level)


@dataclasses.dataclass
class Holder:
    x: torch.Tensor
    cache: object


class Lazy(Mapping[str, Any]):
    """What it gives is made when it is asked for: nobody asks it."""

    def __iter__(self) -> Any:
        raise ValueError("no")

    __len__ = __getitem__ = __iter__


def nothing() -> None:
    pass


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Cache(), "a Cache"),
        (nothing, "a function"),
        (torch.nn.Identity(), "an Identity"),
        ({1, 2}, "a set"),
        (b"ab", "a bytes"),
        (range(3), "a range"),
        (Lazy(), "a Lazy"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_every_kind_of_value(value: Any, what: str, level: str, tmp_path: Path) -> None:
    step = call(tmp_path, value, level=level)
    assert step.data[NAME]["input_args"][1] is None
    assert listed(step) == {what: {"input.1": [NAME]}}


@pytest.mark.parametrize("value", [None, 1, 1.5, "a", True, 1j, ..., torch.float16, slice(1, 2), [], {}, (None,), torch.ones(1)])
def test_what_is_recorded_or_none_is_not_listed(value: Any, tmp_path: Path) -> None:
    step = call(tmp_path, value)
    assert "unread" not in parse(step.directory / "meta.json")


def test_at_l1(tmp_path: Path) -> None:
    step = record(tmp_path, lambda: torch.ones(2).uniform_(0, 1, generator=torch.Generator().manual_seed(1)))
    assert listed(step) == {"a Generator": {"input.generator": ["Tensor.uniform_.0.forward"]}}


def test_keyword_arguments_and_results(tmp_path: Path) -> None:
    step = call(tmp_path, cache=Cache(), back={"a": torch.ones(1), "b": [None, Cache()]})
    assert listed(step) == {"a Cache": {"input.cache": [NAME], "input.back.b.1": [NAME], "output.0.b.1": [NAME]}}


def test_inside_containers(tmp_path: Path) -> None:
    itself: list[Any] = [1]
    itself.append(itself)
    step = call(tmp_path, {"a": (Holder(torch.ones(1), Cache()), {3})}, itself=itself)
    assert listed(step) == {
        "a Cache": {"input.1.a.0.cache": [NAME]},
        "a set": {"input.1.a.1": [NAME]},
        "a list inside itself": {"input.itself.1": [NAME]},
    }


def test_nested_too_deep(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    (what,) = listed(call(tmp_path, deep))
    assert what == "what is nested deeper or wider than 200 levels"


def test_a_field_that_only_code_of_the_user_s_gives(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Data:
        x: int
        y: int = 1

    Data.x = property(lambda self: 2, lambda self, value: None)  # type: ignore[assignment]
    step = call(tmp_path, Data(1))
    assert listed(step) == {"a field that is a property": {"input.1.x": [NAME]}}
    assert step.data[NAME]["input_args"][1] == {"x": None, "y": {"type": "int", "value": 1}}


def test_a_module_that_raises_has_no_result(tmp_path: Path) -> None:
    class Raising(Module):
        def forward(self, x: torch.Tensor, given: Any = None, **more: Any) -> Any:
            raise RuntimeError("by the user")

    model = Model()
    model.m = Raising()

    def body() -> None:
        with contextlib.suppress(RuntimeError):
            model(torch.ones(1))

    step = record(tmp_path, body, model=model, level="L0")
    name = NAME.replace("Module.forward", "Raising.forward")
    assert step.data[name]["output"] == [None]
    assert listed(step) == {"the result of a call that did not come to its end": {"output.0": [name]}}


def test_a_module_that_is_running_when_stop_comes(tmp_path: Path) -> None:
    model, debugger = Model(), configured(tmp_path, level="L0")

    class Stopping(Module):
        def forward(self, x: torch.Tensor, given: Any = None, **more: Any) -> Any:
            debugger.stop()
            return x

    model.m = Stopping()
    debugger.start(model)
    model(torch.ones(1))
    debugger.step()
    assert listed(Run(tmp_path / "dump").step()) == {
        "the result of a call that did not come to its end": {"output.0": [NAME.replace("Module.forward", "Stopping.forward")]}
    }


def test_a_module_that_gives_none_has_a_result(tmp_path: Path) -> None:
    assert listed(call(tmp_path, back=None)) == {}


def test_what_a_rule_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "builtin_ignore_ops.yaml").write_text("Functional:\n  linear:\n    input: [1]\n    output: [0]\n")
    x = torch.ones(2, 2)
    step = record(tmp_path, lambda: torch.nn.functional.linear(x, x), ops_dir=str(tmp_path / "ops"))
    name = "Functional.linear.0.forward"
    assert listed(step) == {unread.LEFT_OUT: {"input.1": [name], "output.0": [name]}}


def test_calls_that_are_not_written_are_not_listed(tmp_path: Path) -> None:
    """With `data_mode` backward the arguments are looked at, for what requires grad."""
    model = Model()
    x = torch.ones(2, requires_grad=True)
    step = record(tmp_path, lambda: model(x, Cache()).sum().backward(), model=model, level="L0", data_mode=["backward"])
    assert step.names and "unread" not in parse(step.directory / "meta.json")


def test_a_gradient_that_autograd_does_not_keep(tmp_path: Path) -> None:
    def body() -> None:
        w = torch.ones(2, 3, requires_grad=True)
        a = w * 1
        a[0].mul_(torch.ones(3, requires_grad=True))
        a.sum().backward()

    step = record(tmp_path, body)
    (name,) = [name for name in step.names if name.startswith("Tensor.mul_") and "backward" in name]
    assert step.data[name]["output"][0] is None
    assert listed(step) == {"a gradient that autograd does not keep (a view was changed in place)": {"output.0": [name]}}


def test_with_async_dump(tmp_path: Path) -> None:
    model = Model()
    step = record(tmp_path, lambda: model(torch.ones(1), Cache()), model=model, level="L0", async_dump=True)
    assert listed(step) == {"a Cache": {"input.1": [NAME]}}


def test_a_killed_process_has_said_it(tmp_path: Path) -> None:
    program = """
        import os, signal, sys, time, torch
        from msprobe.pytorch import PrecisionDebugger
        class M(torch.nn.Module):
            def forward(self, x, cache): return x
        model = torch.nn.Sequential()
        model.m = M()
        debugger = PrecisionDebugger(task="statistics", level="L0", dump_path=sys.argv[1])
        debugger.start(model)
        model.m(torch.ones(1), object())
        time.sleep(1.2)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run(
        [*warm_python.command(), "-c", textwrap.dedent(program), str(tmp_path / "dump")], env=environment(), capture_output=True
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert listed(Run(tmp_path / "dump").step()) == {"an object": {"input.1": ["Module.m.M.forward.0"]}}


def test_save(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="debug")
    debugger.save({"a": torch.ones(2), "b": [Cache()]}, "x")
    debugger.save({1, 2}, "y")
    debugger.step()
    (directory,) = (tmp_path / "dump" / "step0").iterdir()
    assert parse(directory / "meta.json")["unread"] == {"a Cache": {"b.0": ["x.0.debug"]}, "a set": {"": ["y.0.debug"]}}


def test_a_bad_note_costs_no_entry(tmp_path: Path) -> None:
    writer = StepWriter(tmp_path, task="statistics", level="L1")
    writer.note_unread((1, 2, 3, None))  # type: ignore[arg-type]
    writer.add("a", {"input_args": []}, True)
    report = writer.close()
    assert list(parse(tmp_path / "dump.json")["data"]) == ["a"]
    assert any("meta.json does not list" in problem for problem in report.problems)


def test_nothing_is_kept_after_the_end(tmp_path: Path) -> None:
    writer = StepWriter(tmp_path, task="statistics", level="L1")
    writer.close()
    writer.note_unread(("a", "input", ("0",), "a set"))
    assert not writer._unread.waiting
    assert os.listdir(tmp_path)


def test_a_recomputation_that_torch_cuts_short_has_no_result_in_any_run(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()))
    x = torch.ones(1, 2, requires_grad=True)
    step = record(tmp_path, lambda: checkpoint(model[0], x, use_reentrant=False).sum().backward(), model=model, level="L0")
    assert [None] in [entry.get("output") for entry in step.forward().values()]
    assert listed(step) == {}
