"""Task nan_check: is_nan of every call, and the values of the calls that tensor_list names."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capturing import Run, Step, configured, record, tensors

from msprobe.errors import ConfigError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump.checks import nan_check

INF, NAN = float("inf"), float("nan")


def checked(directory: Path, body: Any, **section: Any) -> Step:
    return record(directory, body, task="nan_check", nan_check=section)


def only_entry(directory: Path, body: Any, **section: Any) -> dict[str, Any]:
    (entry,) = checked(directory, body, **section).data.values()
    return entry


def kinds(entry: dict[str, Any]) -> dict[str, list[str]]:
    return entry.get("non_finite", {"input": [], "output": [], "produced": []})


def test_finite_values(tmp_path: Path) -> None:
    def body() -> None:
        x = torch.ones(3, requires_grad=True)
        F.relu(x * 2).sum().backward()

    step = checked(tmp_path, body)
    assert step.dump["task"] == "nan_check" and step.dump["dump_data_dir"] is None
    assert {name.split(".")[-1] for name in step.names} == {"forward", "backward"}
    for entry in step.data.values():
        assert list(entry)[-1] == "is_nan" and entry["is_nan"] == 0
        for tensor in tensors(entry):
            assert list(tensor) == ["type", "dtype", "shape", "requires_grad"]
    assert not (step.directory / "dump_tensor_data").exists() and not (step.directory / "extra-info").exists()


@pytest.mark.parametrize(
    ("call", "is_nan", "taken", "given", "produced"),
    [
        (lambda: torch.log(torch.zeros(2)), 1, [], ["-inf"], ["-inf"]),
        (lambda: torch.exp(torch.full((2,), 1000.0)), 1, [], ["inf"], ["inf"]),
        (lambda: torch.sqrt(torch.tensor([-1.0])), 1, [], ["nan"], ["nan"]),
        (lambda: torch.tensor([INF]) - torch.tensor([INF]), 1, ["inf"], ["nan"], ["nan"]),
        (lambda: torch.relu(torch.tensor([NAN])), 1, ["nan"], ["nan"], []),
        (lambda: torch.relu(torch.tensor([INF, 1.0])), 0, ["inf"], ["inf"], []),
        (lambda: torch.exp(torch.tensor([-INF, 1000.0])), 1, ["-inf"], ["inf"], ["inf"]),
        (lambda: F.softmax(torch.tensor([-INF, 1.0]), -1), 0, ["-inf"], [], []),
        (lambda: F.softmax(torch.tensor([-INF, -INF]), -1), 1, ["-inf"], ["nan"], ["nan"]),
        (lambda: torch.masked_fill(torch.ones(2), torch.tensor([True, False]), -INF), 0, ["-inf"], ["-inf"], []),
        (lambda: torch.full((2,), -INF), 0, ["-inf"], ["-inf"], []),
        (lambda: torch.max(torch.tensor([INF, -INF]), 0), 0, ["inf", "-inf"], ["inf"], []),
        (lambda: torch.mul(torch.tensor(60000.0, dtype=torch.float16), 2), 1, [], ["inf"], ["inf"]),
        (lambda: torch.mul(torch.tensor([3e38], dtype=torch.bfloat16), 2), 1, [], ["inf"], ["inf"]),
        (lambda: torch.div(torch.tensor([1.0], dtype=torch.float64), 0), 1, [], ["inf"], ["inf"]),
        (lambda: torch.log(torch.tensor(0.0)), 1, [], ["-inf"], ["-inf"]),
        (lambda: torch.mul(torch.tensor([1e38 + 1e38j], dtype=torch.complex64), 1e10), 1, [], ["inf"], ["inf"]),
        (lambda: torch.mul(torch.tensor([1.5e308 + 1.5e308j], dtype=torch.complex128), 1), 0, [], [], []),
        (lambda: torch.mul(torch.tensor([1.5e308 + 1.5e308j], dtype=torch.complex128), 2), 1, [], ["inf"], ["inf"]),
        (lambda: torch.mul(torch.tensor([complex(1.5e308, NAN)], dtype=torch.complex128), 1), 1, ["nan"], ["nan"], []),
        (lambda: torch.mul(torch.tensor([1.5e308 + 1.5e308j], dtype=torch.complex128).to_sparse(), 1), 0, [], [], []),
        (lambda: torch.mul(torch.tensor([1.0]), complex(0, INF)), 1, ["inf"], ["nan"], ["nan"]),
        (lambda: torch.add(torch.tensor([2**62]), torch.tensor([2**62])), 0, [], [], []),
        (lambda: torch.relu(torch.empty(0)), 0, [], [], []),
        (lambda: torch.logical_not(torch.tensor([True])), 0, [], [], []),
        (lambda: torch.mul(torch.tensor([1e300], dtype=torch.float64), 1.0), 0, [], [], []),
        (lambda: torch.stack([torch.tensor(INF), torch.tensor(NAN)]), 1, ["nan", "inf"], ["nan"], []),
    ],
)
def test_kinds(tmp_path: Path, call: Any, is_nan: int, taken: list[str], given: list[str], produced: list[str]) -> None:
    entry = list(checked(tmp_path, call).data.values())[-1]
    assert entry["is_nan"] == is_nan
    assert kinds(entry) == {"input": taken, "output": given, "produced": produced}


def test_nested_results_and_keywords(tmp_path: Path) -> None:
    import types

    module = types.ModuleType("mine")
    module.f = lambda x, scale=1.0: {"type": x * scale, "value": [x, (x / 0, "text")], "dtype": x}  # type: ignore[attr-defined]
    debugger = configured(tmp_path, task="nan_check", level="L1")
    debugger.register_custom_api(module, "f", "Mine")
    debugger.start()
    module.f(torch.ones(2), scale=INF)
    module.f(torch.ones(2))
    debugger.stop()
    debugger.step()
    data = Run(tmp_path / "dump").step().data
    assert kinds(data["Mine.f.0.forward"]) == {"input": ["inf"], "output": ["inf"], "produced": []}
    assert data["Mine.f.0.forward"]["is_nan"] == 0
    entry = data["Mine.f.1.forward"]
    assert entry["is_nan"] == 1 and kinds(entry)["produced"] == ["inf"]
    assert entry["output"][0]["value"][1][0]["non_finite"] == ["inf"] and "non_finite" not in entry["output"][0]["type"]


def test_the_tensor_that_holds_it_says_so(tmp_path: Path) -> None:
    entry = only_entry(tmp_path, lambda: torch.add(torch.ones(2), torch.tensor([0.0, -INF])))
    assert "non_finite" not in entry["input_args"][0]
    assert entry["input_args"][1]["non_finite"] == ["-inf"] and entry["output"][0]["non_finite"] == ["-inf"]


def test_gradients(tmp_path: Path) -> None:
    def body() -> None:
        x = torch.zeros(2, requires_grad=True)
        torch.sqrt(x).sum().backward()

    data = checked(tmp_path, body).data
    assert data["Torch.sqrt.0.forward"]["is_nan"] == 0
    assert data["Torch.sqrt.0.backward"]["is_nan"] == 1 and kinds(data["Torch.sqrt.0.backward"])["produced"] == ["inf"]
    assert data["Tensor.sum.0.backward"]["is_nan"] == 0


def test_in_place_takes_the_input_as_it_was(tmp_path: Path) -> None:
    entry = only_entry(tmp_path, lambda: torch.zeros(2).log_())
    assert entry["is_nan"] == 1 and kinds(entry) == {"input": [], "output": ["-inf"], "produced": ["-inf"]}


def test_what_cannot_be_read_is_neither(tmp_path: Path) -> None:
    step = checked(tmp_path, lambda: torch.relu(torch.ones(2, device="meta")))
    assert step.only("relu")["is_nan"] is None and step.only("relu")["output"][0]["non_finite"] is None


def test_a_call_that_raises(tmp_path: Path) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError):
            torch.matmul(torch.tensor([[NAN]]), torch.ones(3, 3))
        torch.relu(torch.ones(1))

    step = checked(tmp_path, body, tensor_list=["matmul"])
    entry = step.data["Torch.matmul.0.forward"]
    assert "output" not in entry and entry["is_nan"] is None and kinds(entry)["input"] == ["nan"]
    assert not (step.directory / "extra-info").exists()


def returned(directory: Path, value: Any, ignore: str = "") -> dict[str, Any]:
    """The entry of a call that gives `value`, or raises it."""
    import types

    def f() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    module: Any = types.ModuleType("mine")
    module.f = f
    more = {}
    if ignore:
        directory.joinpath("builtin_ignore_ops.yaml").write_text(ignore, encoding="utf-8")
        more["ops_dir"] = str(directory)
    debugger = configured(directory, task="nan_check", level="L1", **more)
    debugger.register_custom_api(module, "f", "Mine")
    debugger.start()
    with contextlib.suppress(ValueError):
        module.f()
    debugger.stop()
    debugger.step()
    step = Run(directory / "dump").step()
    entry = step.only("Mine")
    not_read = json.loads((step.directory / "meta.json").read_text())["nan_check"]["not_read"]
    assert not_read == (entry["is_nan"] is None)
    return entry


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else [torch.tensor(NAN)]


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {torch.tensor(NAN)},
        iter([torch.tensor(NAN)]),
        (x for x in [torch.tensor(NAN)]),
        np.array([NAN, None], dtype=object),
        np.array([(NAN,)], dtype=[("a", "<f4")]),
        deep(250),
        (torch.ones(1), [object()]),
        ValueError("the call raised"),
    ],
    ids=["object", "set", "iterator", "generator", "array of objects", "array of records", "deep", "inside", "raised"],
)
def test_an_output_that_nobody_has_looked_at(tmp_path: Path, value: Any) -> None:
    assert returned(tmp_path, value)["is_nan"] is None


@pytest.mark.parametrize(
    ("value", "is_nan"),
    [
        (None, 0),
        ((None, torch.ones(1)), 0),
        ({"a": None}, 0),
        ("text", 0),
        (np.array(["text"]), 0),
        (np.array([1.5e308 + 1.5e308j]), 0),
        (np.array([np.finfo(np.longdouble).max]), 0),
        (np.array([np.longdouble(INF)]), 1),
        ((object(), torch.tensor(NAN)), 1),
    ],
)
def test_an_output_that_is_known(tmp_path: Path, value: Any, is_nan: int) -> None:
    assert returned(tmp_path, value)["is_nan"] == is_nan


def test_an_input_that_cannot_be_read_says_nothing_of_the_output(tmp_path: Path) -> None:
    entry = only_entry(tmp_path, lambda: torch.rand(2, generator=torch.Generator()))
    assert entry["input_kwargs"]["generator"] is None and entry["is_nan"] == 0


def test_nothing_is_given_out(tmp_path: Path) -> None:
    x = torch.zeros(2)
    assert checked(tmp_path, lambda: x.__setitem__(0, 1)).only("__setitem__")["is_nan"] == 0


@pytest.mark.parametrize("rule", ["Mine: {f: {output: all}}", "Mine: {f: {output: [0]}}"])
def test_an_output_that_is_left_out(tmp_path: Path, rule: str) -> None:
    assert returned(tmp_path, torch.tensor(NAN), rule)["is_nan"] is None


def test_a_communication_that_nobody_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:

        def body() -> None:
            distributed.all_reduce(torch.ones(2), async_op=True)
            distributed.all_reduce(torch.ones(2), async_op=True).wait()

        with caplog.at_level(logging.INFO, logger="msprobe"):
            data = checked(tmp_path, body).data
    finally:
        distributed.destroy_process_group()
    assert "output" not in data["Distributed.all_reduce.0.forward"] and data["Distributed.all_reduce.0.forward"]["is_nan"] is None
    assert data["Distributed.all_reduce.1.forward"]["is_nan"] == 0
    assert "no NaN, no overflow; 1 calls gave out what could not be read" in caplog.text


# --- tensor_list ---------------------------------------------------------------------------------------------------------------------
def test_values_of_the_offending_call(tmp_path: Path) -> None:
    def body() -> None:
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        y = x / torch.zeros(2)
        torch.log(x)
        (x / 2).sum().backward()
        del y

    step = checked(tmp_path, body, tensor_list=["TrueDiv"])
    extra = step.directory / "extra-info"
    names = sorted(path.name for path in extra.iterdir())
    assert names == [f"Tensor.__truediv__.0.forward.{end}.pt" for end in ("input.0", "input.1", "output.0")]
    entry = step.data["Tensor.__truediv__.0.forward"]
    assert [tensor["extra_info"] for tensor in tensors(entry)] == names
    assert "data_name" not in json.dumps(step.dump)
    saved = torch.load(extra / names[2], weights_only=True)
    assert saved[0].isnan() and saved[1] == INF
    assert torch.load(extra / names[0], weights_only=True).tolist() == [0.0, 1.0]
    assert step.data["Torch.log.0.forward"]["is_nan"] == 1 and "extra_info" not in json.dumps(step.data["Torch.log.0.forward"])
    assert "extra_info" not in json.dumps(step.data["Tensor.__truediv__.1.forward"])


def test_values_are_those_of_the_time_of_the_call(tmp_path: Path) -> None:
    step = checked(tmp_path, lambda: torch.zeros(2).log_(), tensor_list=["log_"])
    assert torch.load(step.directory / "extra-info" / "Tensor.log_.0.forward.input.0.pt", weights_only=True).tolist() == [0, 0]


def test_gradients_of_a_named_call(tmp_path: Path) -> None:
    step = checked(tmp_path, lambda: torch.sqrt(torch.zeros(2, requires_grad=True)).sum().backward(), tensor_list=["sqrt"])
    names = sorted(path.name for path in (step.directory / "extra-info").iterdir())
    assert names == ["Torch.sqrt.0.backward.input.0.pt", "Torch.sqrt.0.backward.output.0.pt"]


def test_the_run_goes_on_when_the_disk_does_not(tmp_path: Path) -> None:
    debugger = configured(tmp_path, task="nan_check", level="L1", nan_check={"tensor_list": ["log"]})
    debugger.start()
    session = PrecisionDebugger._session
    assert session is not None and session.step is not None
    directory = Path(session.step.directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "extra-info").write_text("in the way")
    assert torch.log(torch.zeros(1)).item() == -INF
    debugger.stop()
    debugger.step()
    assert Run(tmp_path / "dump").step().data["Torch.log.0.forward"]["is_nan"] == 1


# --- configuration -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_level(tmp_path: Path, level: str) -> None:
    with pytest.raises(ConfigError, match=r'"level" is ".*": must be "L1" with task "nan_check"'):
        configured(tmp_path, task="nan_check", level=level)


@pytest.mark.parametrize("mode", [["input"], ["forward", "input"]])
def test_data_mode_without_outputs(tmp_path: Path, mode: list[str]) -> None:
    with pytest.raises(ConfigError, match=r'"nan_check"."data_mode"'):
        configured(tmp_path, task="nan_check", level="L1", nan_check={"data_mode": mode})


@pytest.mark.parametrize(
    ("mode", "forward", "backward"),
    [
        (["output"], ["output"], ["output"]),
        (["forward"], ["input_args", "input_kwargs", "output"], None),
        (["backward", "output"], None, ["output"]),
        (["input", "output"], ["input_args", "input_kwargs", "output"], ["input", "output"]),
    ],
)
def test_data_mode(tmp_path: Path, mode: list[str], forward: list[str] | None, backward: list[str] | None) -> None:
    """Inputs that are not recorded still decide."""
    step = checked(tmp_path, lambda: torch.add(torch.tensor([-INF, 0.0], requires_grad=True), 1).sum().backward(), data_mode=mode)
    for name, keys in (("Torch.add.0.forward", forward), ("Torch.add.0.backward", backward)):
        if keys is None:
            assert name not in step.data
        else:
            assert [key for key in step.data[name] if key != "non_finite"] == [*keys, "is_nan"]
            assert step.data[name]["is_nan"] == 0


def test_closing_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = checked(tmp_path, lambda: torch.relu(torch.log(torch.zeros(2)).mul(0)))
    found = json.loads((step.directory / "meta.json").read_text())["nan_check"]
    assert found == {"found": 3, "produced": ["Torch.log.0.forward", "Tensor.mul.0.forward"], "not_read": 0}
    assert "3 calls gave out NaN or an infinity, 2 of them produced it, first Torch.log.0.forward" in caplog.text


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda bad: F.linear(torch.ones(1, 2), bad), "Functional.linear.0.forward, which took it in (input.1)"),
        (lambda bad: torch.relu(bad), "Torch.relu.0.forward, which took it in (input.0)"),
        (lambda bad: torch.stack([torch.ones(2, 2), bad]), "Torch.stack.0.forward, which took it in (input.0.1)"),
        (lambda bad: torch.mul(torch.ones(2, 2), other=bad), "Torch.mul.0.forward, which took it in (kwargs.other)"),
        (lambda bad: torch.mul(torch.tensor([INF]), NAN), "Torch.mul.0.forward, which took it in (input.1)"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["output"]])
def test_closing_line_when_it_came_from_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Any, where: str, mode: list[str]
) -> None:
    bad = torch.ones(2, 2)
    bad[0, 0] = NAN
    with caplog.at_level(logging.INFO, logger="msprobe"):
        checked(tmp_path, lambda: torch.relu(call(bad)), data_mode=mode)
    assert f"2 calls gave out NaN or an infinity, none of them produced it; first {where}\n" in caplog.text


def test_a_gradient_behind_a_forward_call_that_met_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The gradient of a product is what the other factor was: NaN came in with it."""

    def body() -> None:
        x = torch.ones(2, requires_grad=True)
        y = torch.mul(x, torch.tensor([NAN, 1.0]))
        torch.exp(torch.mul(x, 1000.0)).sum().backward()
        y.sum().backward()

    with caplog.at_level(logging.INFO, logger="msprobe"):
        step = checked(tmp_path, body)
    data = step.data
    assert data["Torch.mul.0.backward"]["is_nan"] == 1
    assert data["Torch.mul.0.backward"]["non_finite"] == {"input": [], "output": ["nan"], "produced": [], "forward": ["nan"]}
    # exp gave out an infinity in its forward call, and its gradient is that infinity.
    assert data["Torch.exp.0.backward"]["is_nan"] == 1 and data["Torch.exp.0.backward"]["non_finite"]["forward"] == ["inf"]
    assert json.loads((step.directory / "meta.json").read_text())["nan_check"]["produced"] == ["Torch.exp.0.forward"]


def test_closing_line_when_only_gradients_show_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def body() -> None:
        x = torch.tensor([INF, 1.0], requires_grad=True)
        torch.sqrt(torch.mul(x, x)).backward(torch.tensor([1.0, 1.0]))

    with caplog.at_level(logging.INFO, logger="msprobe"):
        checked(tmp_path, body)
    assert "none of them produced it; first Torch.mul.0.backward, whose forward call took in or gave out inf\n" in caplog.text


def test_npu_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "register" not in nan_check.notice()
    find = nan_check.importlib.util.find_spec
    monkeypatch.setattr(nan_check.importlib.util, "find_spec", lambda name: object() if name == "torch_npu" else find(name))
    assert "status register of the NPU is not read" in nan_check.notice()


def test_nothing_changes(tmp_path: Path) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        model(torch.randn(5, 4)).sum().backward()
        return [*(p.grad for p in model.parameters()), torch.rand(3)]  # type: ignore[list-item]

    plain = run()
    watched: list[torch.Tensor] = []
    checked(tmp_path, lambda: watched.extend(run()), tensor_list=[""])
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
