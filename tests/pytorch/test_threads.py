"""Threads, workers and forked processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured, environment, parse, record, statistics

import warm_python
from msprobe.writer import flush_all


def in_threads(count: int, work: Any) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_three_threads_of_five_calls(tmp_path: Path) -> None:
    barrier = threading.Barrier(3)

    def work(index: int) -> None:
        barrier.wait()
        for i in range(5):
            torch.relu(torch.full((2,), float(10 * index + i)))

    data = record(tmp_path, lambda: in_threads(3, work)).data
    assert sorted(data) == sorted(f"Torch.{api}.{i}.forward" for api in ("relu", "full") for i in range(15))
    values = sorted(entry["input_args"][0]["Max"] for name, entry in data.items() if "relu" in name)
    assert values == [float(10 * index + i) for index in range(3) for i in range(5)]
    for name, entry in data.items():
        if "relu" in name:
            assert statistics(entry["input_args"][0]) == statistics(entry["output"][0])


def test_spelling_belongs_to_its_thread(tmp_path: Path) -> None:
    barrier = threading.Barrier(2)

    def work(index: int) -> None:
        x = torch.ones(2)
        barrier.wait()
        for _ in range(20):
            if index:
                1 + x
            else:
                x.add(x)

    data = record(tmp_path, lambda: in_threads(2, work)).data
    assert sum("__radd__" in name for name in data) == 20 and sum("Tensor.add." in name for name in data) == 20


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_modules_in_threads(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()))

    def work(index: int) -> None:
        for _ in range(4):
            model[index](torch.ones(1, 2)).sum().backward()

    step = record(tmp_path, lambda: in_threads(2, work), model=model, level=level)
    names = step.names
    if level != "L1":
        for index, act in ((0, "Tanh"), (1, "Sigmoid")):
            for part in ("0.Linear", f"1.{act}"):
                assert [n for n in names if n.startswith(f"Module.{index}.{part}.forward")] == [
                    f"Module.{index}.{part}.forward.{i}" for i in range(4)
                ]
                assert all(
                    step.construct[f"Module.{index}.{part}.forward.{i}"] == f"Module.{index}.Sequential.forward.{i}" for i in range(4)
                )
            assert sum(n.startswith(f"Module.{index}.0.Linear.backward") for n in names) == 4
    if level != "L0":
        assert sum(n.startswith("Functional.linear") and "forward" in n for n in names) == 8
        assert sum(n.startswith("Functional.linear") and "backward" in n for n in names) == 8
        assert sum(n.startswith("Tensor.sum") and "backward" in n for n in names) == 8
    if level == "mix":
        parents = [p for n, p in step.construct.items() if n.startswith("Functional.linear") and "forward" in n]
        assert sorted(parents) == sorted(f"Module.{m}.0.Linear.forward.{i}" for m in (0, 1) for i in range(4))


def pool_of_two() -> ThreadPoolExecutor:
    """Both threads run when it is given back."""
    pool, barrier = ThreadPoolExecutor(2), threading.Barrier(2)
    list(pool.map(lambda _: barrier.wait(), range(2)))
    return pool


def test_a_pool_made_before_the_window(tmp_path: Path) -> None:
    """Its threads run already: modules open the way for their own inside."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    pool = pool_of_two()
    step = record(tmp_path, lambda: list(pool.map(lambda _: model[1](model[0](torch.ones(1, 2))), range(6))), model=model, level="mix")
    after = list(pool.map(lambda _: torch._C._len_torch_function_stack(), range(4)))
    pool.shutdown()
    assert sum("Linear.forward" in n for n in step.names) == 6 and sum("Functional.linear" in n for n in step.names) == 6
    assert after == [0, 0, 0, 0]


def test_a_pool_made_in_one_window_works_in_the_next(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(nn.Linear(2, 2))
    pool = None
    for _ in range(3):
        debugger.start(model)
        pool = pool or pool_of_two()
        list(pool.map(lambda _: model[0](torch.ones(1, 2)), range(4)))
        debugger.stop()
        debugger.step()
    assert pool is not None
    pool.shutdown()
    run = Run(tmp_path / "dump")
    for number in range(3):
        assert sum("Linear.forward" in n for n in run.step(number).names) == 4
        assert sum("Functional.linear" in n for n in run.step(number).names) == 4


def test_a_pool_made_in_the_window_outlives_it(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    step = record(tmp_path, lambda: pool.submit(torch.relu, torch.ones(1)).result())
    assert step.names == ["Torch.relu.0.forward"]
    assert torch.equal(pool.submit(torch.relu, torch.ones(1)).result(), torch.ones(1))
    pool.shutdown()
    assert Run(tmp_path / "dump").steps == [0] and len(step.data) == 1


def test_a_thread_that_runs_on_after_the_end(tmp_path: Path) -> None:
    goes_on, started, errors = threading.Event(), threading.Event(), []

    def work() -> None:
        try:
            torch.relu(torch.ones(1))
            started.set()
            goes_on.wait(20)
            for _ in range(3):
                torch.relu(torch.ones(1)) + 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)

    def body() -> None:
        thread.start()
        started.wait(20)

    step = record(tmp_path, body)
    goes_on.set()
    thread.join()
    assert errors == [] and "Torch.relu.1.forward" not in step.data


@pytest.mark.parametrize("settings", [{}, {"statistics": {"list": ["slow"]}}, {"task": "nan_check"}], ids=str)
def test_a_call_that_runs_while_its_step_ends_tells_that_its_gradient_is_lost(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, started = threading.Event(), threading.Event()

    def slow(x: torch.Tensor) -> torch.Tensor:
        started.set()
        goes_on.wait(20)
        return x * 2

    slow.__module__ = "slow_functions"
    functions: Any = types.ModuleType("slow_functions")
    functions.slow = slow
    monkeypatch.setitem(sys.modules, "slow_functions", functions)
    debugger = configured(tmp_path, level="L1", **settings)
    debugger.register_custom_api(functions, "slow")
    debugger.start()
    x, results = torch.ones(2, requires_grad=True), []
    thread = threading.Thread(target=lambda: results.append(functions.slow(x)))
    thread.start()
    assert started.wait(20)
    debugger.stop()
    debugger.step()
    goes_on.set()
    thread.join()
    results[0].sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0))
    flush_all()
    told = Run(tmp_path / "dump").step(0).errors
    assert told == "slow_functions.slow.0.backward: its backward pass came after step() had ended this step: not recorded\n"


def test_backward_in_another_thread(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def body() -> None:
        loss = model(torch.ones(1, 2)).sum()
        in_threads(1, lambda _: loss.backward())

    step = record(tmp_path, body, model=model, level="mix")
    assert {"Tensor.sum.0.backward", "Module.1.Tanh.backward.0", "Functional.linear.0.backward"} <= set(step.data)
    assert {"Module.0.Linear.backward.0", "Module.0.Linear.parameters_grad.0"} <= set(step.data)


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.relu(torch.full((2,), float(index))) + 1


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_a_data_loader(tmp_path: Path, workers: int) -> None:
    """Forked processes record nothing and write nothing; the parent goes on."""
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = configured(tmp_path, level="mix")
    seen = []
    debugger.start(model)
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=workers):
        seen.append(batch)
        model(batch).sum().backward()
    debugger.stop()
    debugger.step()
    assert torch.equal(torch.cat(seen)[:, 0], torch.arange(8.0) + 1)
    step = Run(tmp_path / "dump").step()
    assert step.directory.name == f"proc{os.getpid()}"
    assert sum("Functional.linear" in n and "forward" in n for n in step.names) == 2
    assert ("Torch.relu.0.forward" in step.data) == (workers == 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_touches_nothing(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="L1", task="tensor")
    debugger.start()
    torch.relu(torch.ones(1))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.sigmoid(torch.ones(1))
            debugger.stop()
            debugger.step()
            debugger.start()
            torch.sigmoid(torch.ones(1))
            debugger.step()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    torch.tanh(torch.ones(1))
    debugger.step()
    run = Run(tmp_path / "dump")
    assert run.steps == [0] and run.step().names == ["Torch.relu.0.forward", "Torch.tanh.0.forward"]
    assert len(list((run.step().directory / "dump_tensor_data").iterdir())) == 4


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_that_ends_in_order(tmp_path: Path) -> None:
    """exit handlers run in it, and still write nothing."""
    script = textwrap.dedent(
        f"""
        import os, sys, time, torch
        from msprobe.pytorch import PrecisionDebugger
        debugger = PrecisionDebugger(task="statistics", dump_path={str(tmp_path / "dump")!r}, level="L1")
        debugger.start(); torch.relu(torch.ones(1))
        if os.fork() == 0:
            torch.sigmoid(torch.ones(1))
            sys.exit(0)
        os.wait()
        torch.tanh(torch.ones(1))
        """
    )
    done = subprocess.run([*warm_python.command(), "-c", script], env=environment(), timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Run(tmp_path / "dump").step().names == ["Torch.relu.0.forward", "Torch.tanh.0.forward"]


class Hidden(nn.Module):
    """Goes on with what was made of its input before the call."""

    hidden: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + self.hidden


@pytest.mark.parametrize("path", [{}, {"list": ["Module"]}], ids=["c", "python"])
@pytest.mark.parametrize("threads", [0, 1])
def test_what_another_thread_has_made_is_not_of_the_call(tmp_path: Path, path: dict[str, Any], threads: int) -> None:
    """A new thread numbers its nodes from 0, so those of the main thread look newer."""
    model, x = nn.Sequential(Hidden()), torch.ones(3, requires_grad=True)
    outputs: list[torch.Tensor] = []

    def body() -> None:
        hidden = x
        for _ in range(20):
            hidden = hidden * 1
        model[0].hidden = hidden * 100
        call = [lambda _: outputs.append(model[0](x))]
        if threads:
            in_threads(threads, call[0])
        else:
            call[0](0)
        outputs[0].sum().backward()

    step = record(tmp_path, body, model=model, level="L0", **path)
    assert [given["Mean"] for given in step.data["Module.0.Hidden.backward.0"]["output"]] == [2.0]
    assert step.errors == ""


@pytest.mark.parametrize("path", [{}, {"list": ["Module"]}], ids=["c", "python"])
def test_an_input_that_only_another_thread_leads_to_is_told(tmp_path: Path, path: dict[str, Any]) -> None:
    class Helped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            helped: list[torch.Tensor] = []

            def help_with(_: int) -> None:
                for _ in range(20):
                    helped.append(x * 3)

            in_threads(1, help_with)
            return helped[-1] * 2

    model, x = nn.Sequential(Helped()), torch.ones(3, requires_grad=True)
    step = record(tmp_path, lambda: in_threads(1, lambda _: model(x).sum().backward()), model=model, level="L0", **path)
    name = "Module.0.Helped.backward.0"
    why = "the call goes on in what another thread has made, where gradients of inputs are not looked for"
    found = step.data[name]
    assert found["input"][0]["Mean"] == 1.0 and found["output"] == [None]
    assert step.errors == f"{name}: output 0: {why}\n"
    assert parse(step.directory / "meta.json")["unread"] == {why: {"output.0": [name]}}
