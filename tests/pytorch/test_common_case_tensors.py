"""The values of all tensors are kept by C in the common case and by Python in every other: both write the same files, bit by bit."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import numpy as np
import pytest
import test_common_case_apis as apis
import test_common_case_gradients as gradients
import test_common_case_modules as modules
import torch
import torch.nn.functional as F
from capturing import Run, Step, configured, forget_debugger, tensors, without_cost
from nets import NETS, seed, train
from odd_values import Data, Holder, Pair, Subclass, sample_arguments
from torch import nn

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump import common_case, step_record, tensor_saver
from msprobe.pytorch.dump.encoder import Encoder
from msprobe.pytorch.dump.module_recorder import ModuleRecorder
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool, flush_all
from msprobe.writer.appended_lines import AppendedLines

pytestmark = [
    pytest.mark.skipif(common_case.hot is None, reason="there was no compiler when msprobe was installed"),
    pytest.mark.filterwarnings("ignore"),
]

Program = Callable[[PrecisionDebugger], Any]
DIRECTORY = "dump_tensor_data"
TIMES = ("started", "milliseconds_added")
"""What meta.json says that is never the same twice."""


@pytest.fixture(autouse=True)
def no_random_memory() -> Iterator[None]:
    """`torch.empty` gives the same in both runs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


# --- one program both ways --------------------------------------------------------------------------------------------------------------
@dataclass
class Way:
    """What came of a program in one of the two ways."""

    root: Path
    """The dump."""
    files: dict[str, bytes]
    common: set[bool]
    """What `is_common` said of the steps."""
    by_python: list[str] = field(default_factory=list)
    """The tensors that came to the saver's part in Python."""

    @property
    def saved(self) -> list[str]:
        """The names of the tensor files of all steps."""
        return [name.rpartition("/")[2] for name in self.files if DIRECTORY in name]

    def step(self, number: int = 0) -> Step:
        return Run(self.root).step(number)

    def check_names(self) -> None:
        """Each file is named by one record, and each name has its file."""
        for number in Run(self.root).steps:
            step = self.step(number)
            named = [record["data_name"] for record in tensors(list(step.data.values())) if "data_name" in record]
            assert sorted(named) == sorted(path.name for path in (step.directory / DIRECTORY).iterdir())


def both_ways(program: Program, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, **config: Any) -> list[Way]:
    """Runs a program with C and without it, in one place (it stands in the files) and from one line of this file (it stands in stacks)."""
    ways = []
    # Lines about late calls are on the disk at once, not half a second later.
    monkeypatch.setattr(AppendedLines, "add", lambda lines, line: lines._append(f"{line}\n"))
    is_common, save = common_case.is_common, TensorSaver.__call__
    for hot in (common_case.hot, None):
        common: set[bool] = set()
        by_python: list[str] = []

        def asked(step: Any, common: set[bool] = common) -> bool:
            common.add(is_common(step))
            return is_common(step)

        def saving(self: Any, tensor: torch.Tensor, side: Any, path: Any, by_python: list[str] = by_python) -> Any:
            by_python.append(".".join((side.entry, side.role, *path)))
            return save(self, tensor, side, path)

        with monkeypatch.context() as patch:
            patch.setattr(common_case, "hot", hot)
            patch.setattr(step_record, "is_common", asked)
            patch.setattr(TensorSaver, "__call__", saving)
            place = directory / "run"
            place.mkdir()
            seed()
            capfd.readouterr()
            program(configured(place, **{"task": "tensor", "risk_level": "ALL", "level": "mix", **config}))
            forget_debugger()
            gc.collect(0)
            flush_all()
        files = {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
        lines = [without_cost(line[26:]) for line in capfd.readouterr().err.splitlines() if "[step " in line]
        for name in [name for name in files if name.endswith("meta.json")]:
            meta = {key: value for key, value in json.loads(files[name]).items() if key not in TIMES}
            files[name] = json.dumps(meta, sort_keys=True).encode()  # the flush thread may put some first
        root = directory / ("python" if hot is None else "c")
        shutil.move(place, root)
        ways.append(Way(root / "dump", {**files, "closing lines": "\n".join(lines).encode()}, common, by_python))
    return ways


def differing(one: Way, other: Way) -> list[str]:
    """The files that are not the same."""
    return [name for name in {**one.files, **other.files} if one.files.get(name) != other.files.get(name)]


def alike(program: Program, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, **config: Any) -> Way:
    """Sees to it that both ways write the same, and each in its way; gives C's."""
    in_c, in_python = both_ways(program, directory, monkeypatch, capfd, **config)
    assert (in_c.common, in_python.common) == ({True}, {False})
    assert any(name.endswith("dump.json") for name in in_c.files)
    assert differing(in_c, in_python) == []
    assert len(in_c.by_python) <= len(in_python.by_python)
    in_c.check_names()
    return in_c


@contextlib.contextmanager
def recording(debugger: PrecisionDebugger, model: nn.Module) -> Iterator[None]:
    debugger.start(model)
    try:
        yield
    finally:
        debugger.stop()
        debugger.step()


# --- what the other files of the common case do ---------------------------------------------------------------------------------------
def calling(body: Callable[[], Any]) -> Program:
    """A program of `test_common_case_apis`."""

    def program(debugger: PrecisionDebugger) -> None:
        with recording(debugger, nn.Sequential(nn.Identity())):
            body()

    return program


def training(net: str) -> Program:
    """A program that trains a net for a step."""

    def program(debugger: PrecisionDebugger) -> None:
        def stop() -> None:
            debugger.stop()
            debugger.step()

        train(NETS[net], 0.2, debugger.start, stop, steps=1)

    return program


PROGRAMS: dict[str, Program] = {
    **{f"apis {body.__name__}": calling(body) for body in apis.PROGRAMS},
    **{f"modules {program.__name__}": program for program in modules.PROGRAMS},
    **{f"gradients {program.__name__}": program for program in gradients.PROGRAMS},
    **{f"net {name}": training(name) for name in NETS},
}
MD5 = {"level": "mix", "summary_mode": "md5"}
CONFIGS: tuple[dict[str, Any], ...] = ({"level": "mix"}, MD5, {"level": "L0", "extra_info": False}, {"level": "L1", "summary_mode": "xor"})
EACH_TIME = {
    "apis calls_that_raise_and_are_made_again": 0,
    "apis changes_in_place_and_views": 1,
    "apis each_kind_of_value": 1,
    "apis operators_from_both_sides": 3,
    "apis results_of_several_kinds": 1,
    "apis written_in_several_forms": 0,
    "modules arguments_of_all_kinds": 1,
    "modules exceptions": 2,
    "modules nested_modules_of_three_steps": 2,
    "modules parameters_of_all_kinds": 1,
    "modules results_of_all_kinds": 0,
    "modules stop_before_the_backward_pass": 0,
    "modules threads": 0,
    "gradients leaves_given_on": 0,
    "gradients odd_gradients": 1,
    "gradients outputs_made_of_outputs": 1,
    "gradients own_functions": 0,
    "gradients several_passes": 0,
    "gradients shared_parameters": 2,
    "gradients shares_of_inputs": 3,
}
"""Programs of the default run, each with the number of its configuration; the slow run has every program in every one."""


def each_program_and_configuration() -> Iterator[Any]:
    for name in PROGRAMS:
        for number, config in enumerate(CONFIGS):
            marks = [] if EACH_TIME.get(name) == number else [pytest.mark.slow]
            yield pytest.param(name, config, id="-".join(map(str, (name, *config.values()))), marks=marks)


@pytest.mark.parametrize(("name", "config"), list(each_program_and_configuration()))
def test_the_same_files(name: str, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    in_c, in_python = both_ways(PROGRAMS[name], tmp_path, monkeypatch, capfd, **config)
    assert (in_c.common, in_python.common) == ({True}, {False})
    assert differing(in_c, in_python) == []
    assert len(in_c.by_python) <= len(in_python.by_python)


# --- values ---------------------------------------------------------------------------------------------------------------------------
def odd_layouts() -> dict[str, Any]:
    """Tensors whose elements lie, or are read, in some way of their own."""
    grid, numbers = torch.arange(24.0).view(4, 6), torch.tensor([1 + 2j, -3 + 0.5j, 0.25 - 4j])
    names = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    fp8 = [getattr(torch, name) for name in names if hasattr(torch, name)]  # the last came with torch 2.7
    made: dict[str, Any] = {
        "transposed": grid.t(),
        "expanded": torch.ones(1, 3).expand(4, 3),
        "sliced": grid[1:3, ::2],
        "a part side by side": grid[1:3],
        "channels last": torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=torch.channels_last),
        "one column": grid[:, :1],
        "strides of what is no step": torch.arange(6.0).as_strided((1, 3, 1), (77, 1, 13)),
        "overlapping": torch.arange(6.0).as_strided((3, 3), (1, 1)),
        "no dimension": torch.tensor(2.5),
        "no dimension of a part": grid[2, 3],
        "nothing": torch.empty(0),
        "nothing transposed": torch.empty(2, 0, 3).transpose(0, 2),
        "conj": numbers.conj(),
        "neg": numbers.conj().imag,
        "neg by itself": torch._neg_view(torch.tensor([1.0, -5.0])),
        "conj of a part": numbers.conj()[1:],
        "real part": numbers.real,
        "zero": torch._efficientzerotensor((2, 3)),
        "coo": grid.to_sparse(),
        "csr": grid.to_sparse_csr(),
        "held twice": torch.sparse_coo_tensor([[1, 1, 0]], [2.0, 3.0, -1.0], (3,)),
        "subclass": grid.as_subclass(Subclass),
        "subclass transposed": grid.t().as_subclass(Subclass),
        "buffer": nn.Buffer(torch.ones(2)),
        "parameter": nn.Parameter(grid.clone()),
        "parameter transposed": nn.Parameter(grid.t()),
        "leaf": torch.ones(2, requires_grad=True),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "not a number": torch.tensor([float("nan"), 1.0, float("inf"), -0.0]),
        "large": torch.arange(5000.0),
        "large transposed": torch.arange(6000.0).view(60, 100).t(),
        "array": np.arange(6.0).reshape(2, 3),
        "array transposed": np.arange(6).reshape(2, 3).T,
        "array backwards": np.arange(8.0)[::-2],
        "array of a dtype that torch lacks": np.ones(2, dtype=np.longdouble),
    }
    for dtype in (torch.bool, torch.int8, torch.uint16, torch.int64, torch.float16, torch.bfloat16, torch.float64, *fp8):
        made[f"{dtype} transposed"] = torch.tensor([[1, 0, 2], [4, 8, 1]]).to(torch.float32).to(dtype).t()
        made[f"{dtype}"] = torch.tensor([1.0, 2.0]).to(dtype)
        made[f"{dtype} without dimension"] = torch.tensor(1.0).to(dtype)
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        made[f"{dtype}"] = numbers.to(dtype)
        made[f"{dtype} in steps"] = numbers.to(dtype)[::2]
    return made


def values_of_every_layout(debugger: PrecisionDebugger) -> None:
    """Given to and by a module, and given to an API, as they are and inside of something."""
    holder = Holder()
    with recording(debugger, holder):
        for value in odd_layouts().values():
            holder.probe.result = (value, None, {"a": [value]})
            holder.probe(value, Pair(value, 1), key=value, more=Data([value]))
            with contextlib.suppress(Exception):  # it is recorded before the function finds out what it was given
                F.dropout(value, p=0.0, training=[value], inplace=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_values_of_every_layout(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    way = alike(values_of_every_layout, tmp_path, monkeypatch, capfd, summary_mode=mode)
    step = way.step()
    apart = {name: value for name, value in odd_layouts().items() if isinstance(value, torch.Tensor) and value.layout == torch.strided}
    calls = [entry["input_args"][0] for name, entry in step.data.items() if name.startswith("Module.probe.Probe.forward")]
    for (name, value), record in zip(odd_layouts().items(), calls, strict=True):
        if name not in apart or value.is_nested or not value.numel():
            continue
        loaded = torch.load(step.directory / DIRECTORY / record["data_name"])
        assert loaded.dtype == value.dtype and loaded.shape == value.shape, name
        assert loaded.is_contiguous(), name
        plain = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous()
        assert torch.equal(loaded.view(-1).view(torch.uint8), plain.view(-1).view(torch.uint8)), name


def samples_to_a_module(debugger: PrecisionDebugger) -> None:
    holder = Holder()
    with recording(debugger, holder):
        for args, kwargs in sample_arguments().values():
            holder.probe.result = args
            holder.probe(*args, **kwargs)
            holder.probe.result = [args, kwargs]
            holder.probe({"args": args, "kwargs": kwargs})


def test_values_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    alike(samples_to_a_module, tmp_path, monkeypatch, capfd, **MD5)


class Text(str):
    """Text of a class of the user's."""

    __slots__ = ()


KEYS = ["ünïcödé", "键", "a/b", "nul\0l", "..", "a.b", "", "a" * 300, "é" * 200, "x" * 215, "\ud800", "-rf", "a\nb", "dtype", "device"]


def odd_keys(debugger: PrecisionDebugger) -> None:
    holder, x = Holder(), torch.ones(2, requires_grad=True)
    model = nn.ModuleDict({"probe": holder.probe})
    model._modules["ä/" + "n" * 300] = inner = modules.Calls(lambda a, b, x, **_: b(a(x)))
    inner.inner[0].register_parameter("ö" * 130, nn.Parameter(torch.ones(1)))
    with recording(debugger, model):
        for key in (*KEYS, Text("text")):
            holder.probe.result = {key: x * 1, "inside": {key: [x]}}
            holder.probe(**{key: x, "plain": {key: x}})
            with contextlib.suppress(TypeError):
                F.dropout(x, **{key: x.detach() + 1})
            inner(x, **{key: x}).sum().backward()


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_keys_that_are_no_file_names(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    way = alike(odd_keys, tmp_path, monkeypatch, capfd, summary_mode=mode)
    saved = way.saved
    assert any("ünïcödé" in name for name in saved) and any("%2F" in name for name in saved)
    assert {len(name.encode()) for name in saved} >= {255}


def test_small_numbers_beside_nothing_are_spelled_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Two encoders make the text of entries, and spell them `0.00001` and `1e-5`: the same one has to make it both ways."""

    def program(debugger: PrecisionDebugger) -> None:
        holder = Holder()
        with recording(debugger, holder):
            torch.clamp(torch.ones(1), None, 1e-5)
            holder.probe(torch.ones(1), None, 1e-5)
            holder.probe(torch.full((2,), 1e-5))

    alike(program, tmp_path, monkeypatch, capfd)


class Unreadable(str):
    """Text of a class of the user's that cannot be asked."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("mine")


def test_keys_that_cannot_be_read_are_told_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """It is the values that are not kept: the call is recorded."""

    def program(debugger: PrecisionDebugger) -> None:
        holder = Holder()
        with recording(debugger, holder):
            holder.probe(torch.ones(1), **{Unreadable("key"): torch.ones(1)})

    way = alike(program, tmp_path, monkeypatch, capfd, level="L0")
    assert "kwargs key: values could not be kept: ValueError('mine')" in way.step().errors


def test_names_of_exactly_the_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    longest = 255 - len("Module.probe.Probe.forward.0.kwargs..pt")

    def program(debugger: PrecisionDebugger) -> None:
        holder = Holder()
        with recording(debugger, holder):
            for length in (longest - 1, longest, longest + 1):
                holder.probe(**{"k" * length: torch.ones(1), "ß" * (length // 2): torch.ones(1)})

    saved = alike(program, tmp_path, monkeypatch, capfd, level="L0").saved
    assert f"Module.probe.Probe.forward.1.kwargs.{'k' * longest}.pt" in saved
    assert f"Module.probe.Probe.forward.2.kwargs.{'k' * (longest + 1)}.pt" not in saved


def test_values_are_those_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Overwritten right after it was recorded: arguments, results, parameters and gradients."""

    def ten_times(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(10)

    def program(debugger: PrecisionDebugger) -> None:
        for size in (3, 40_000):
            weight = nn.Parameter(torch.ones(size))
            scale = gradients.Module(lambda x, weight=weight: x * weight, weight)
            weight.register_post_accumulate_grad_hook(ten_times)
            with recording(debugger, nn.Sequential(scale)):
                x = torch.arange(float(size))
                for _ in range(3):
                    torch.neg(x).zero_()
                    torch.relu_(x.neg_())
                    x.add_(1)
                y = scale(x.requires_grad_())
                y.register_hook(lambda gradient: gradient.mul_(3))
                (y * 2).sum().backward()
                with torch.no_grad():
                    weight.zero_()
                    x.zero_()
                    y.zero_()

    way = alike(program, tmp_path, monkeypatch, capfd)
    for number, size in enumerate((3, 40_000)):
        directory = way.step(number).directory / DIRECTORY
        values = {path.name: torch.load(path).tolist() for path in directory.iterdir()}
        at_first, later = list(map(float, range(size))), [1.0] * size
        assert values["Torch.neg.0.forward.input.0.pt"] == at_first
        assert values["Torch.neg.0.forward.output.0.pt"] == [-value for value in at_first]
        assert not any(values["Tensor.zero_.0.forward.output.0.pt"])
        assert values["Torch.neg.1.forward.input.0.pt"] == values["Module.0.Module.forward.0.input.0.pt"] == later
        assert values["Module.0.Module.forward.0.parameters.p0.pt"] == values["Module.0.Module.forward.0.output.0.pt"] == later


def test_what_is_freed_or_takes_the_same_memory_right_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        with recording(debugger, nn.Sequential(nn.Identity())):
            for number in range(60):
                torch.full((4000,), float(number)).view(40, 100).t().add(1).sum()

    way = alike(program, tmp_path, monkeypatch, capfd)
    directory = way.step().directory / DIRECTORY
    for number in range(60):
        assert torch.equal(torch.load(directory / f"Tensor.add.{number}.forward.output.0.pt"), torch.full((100, 40), number + 1.0))


# --- who keeps them -------------------------------------------------------------------------------------------------------------------
def noting(reached: list[str], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which says that it was reached."""

    def function(*args: Any, **kwargs: Any) -> Any:
        reached.append(name)
        return original(*args, **kwargs)

    return function


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_python_is_asked_for_nothing(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else this file compares Python with itself."""
    reached: list[str] = []
    for owner, name in (
        *((Encoder, name) for name in ("positional", "keyword", "output", "value", "gradient", "tensor", "_keep")),
        *((TensorSaver, name) for name in ("__call__", "file_name", "write")),
        *((ModuleRecorder, name) for name in ("module_before", "module_after")),
        (Recorder, "api"),
    ):
        monkeypatch.setattr(owner, name, noting(reached, name, getattr(owner, name)))
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    debugger = configured(tmp_path, level="mix", risk_level="ALL", task="tensor", summary_mode=mode)
    debugger.start(model)
    assert PrecisionDebugger._session is not None and PrecisionDebugger._session.step is not None
    assert common_case.is_common(PrecisionDebugger._session.step)
    x = torch.ones(3, 2, requires_grad=True)
    for _ in range(2):
        torch.clamp(model(x), min=torch.zeros(2)).backward(torch.ones(3, 2))
    debugger.stop()
    debugger.step()
    assert reached == []
    step = Run(tmp_path / "dump").step()
    records = list(tensors(list(step.data.values())))
    saved = {path.name for path in (step.directory / DIRECTORY).iterdir()}
    assert len(saved) == len(records) and {record["data_name"] for record in records} == saved
    assert {
        "Module.0.Linear.forward.0.parameters.weight.pt",
        "Module.0.Linear.parameters_grad.0.weight.pt",
        "Torch.clamp.0.forward.kwargs.min.pt",
        "Torch.clamp.0.backward.output.0.pt",
    } <= saved
    last = ["data_name", "md5"] if mode == "md5" else ["requires_grad", "data_name"]
    assert all(list(record)[-2:] == last for record in records)


def test_python_is_asked_for_what_c_cannot_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        holder, x = Holder(), torch.ones(2)
        with recording(debugger, holder):
            holder.probe(x, [x], x.to_sparse(), x.as_subclass(Subclass), np.ones(2), x.expand(3, 2))

    in_c, in_python = both_ways(program, tmp_path, monkeypatch, capfd, level="L0")
    assert differing(in_c, in_python) == []
    assert [name.rpartition("input.")[2] for name in in_c.by_python] == ["1.0", "2", "3", "4"]
    assert [name.rpartition("input.")[2] for name in in_python.by_python] == ["0", "1.0", "2", "3", "4", "5"]


SELECTIONS: list[dict[str, Any]] = [
    {"list": ["relu"]},
    {"scope": ["Module.0.Linear.forward.0", "Module.1.Tanh.forward.0"], "level": "L0"},
    {"data_mode": ["input"]},
]


@pytest.mark.parametrize("config", SELECTIONS, ids=str)
def test_a_selection_is_left_to_python(config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
        with recording(debugger, model):
            torch.relu(model(torch.ones(3, 2, requires_grad=True))).sum().backward()

    in_c, in_python = both_ways(program, tmp_path, monkeypatch, capfd, **config)
    assert in_c.common == in_python.common == {False}
    assert differing(in_c, in_python) == []
    assert len(in_c.by_python) == len(in_c.saved)
    assert {record["data_name"] for record in tensors(list(in_c.step().data.values()))} <= set(in_c.saved)
    if "list" in config:
        kept = [f"Torch.relu.0.{side}.0.pt" for side in ("backward.input", "backward.output", "forward.input", "forward.output")]
        assert in_c.saved == kept
    elif "scope" in config:
        assert in_c.step().names == ["Module.0.Linear.forward.0", "Module.1.Tanh.forward.0"]
    else:
        assert not any("output" in entry for entry in in_c.step().data.values())


# --- what fails -----------------------------------------------------------------------------------------------------------------------
PLACES = [
    "Torch.exp.0.forward.input.0",
    "Torch.exp.0.forward.output.0",
    "Torch.clamp.0.forward.kwargs.min",
    "Torch.exp.0.backward.input.0",
    "Torch.exp.0.backward.output.0",
    "Tensor.__add__.0.backward.output.1",
    "Module.0.Linear.forward.0.input.0",
    "Module.0.Linear.forward.0.parameters.bias",
    "Module.0.Linear.forward.0.output.0",
    "Module.0.Linear.backward.0.input.0",
    "Module.0.Linear.backward.0.output.0",
    "Module.0.Linear.parameters_grad.0.weight",
    "Module.2.Probe.forward.0.input.1.key",
]


def whatever_comes(debugger: PrecisionDebugger, unless: type[BaseException] = RuntimeWarning) -> list[str]:
    """Trains for two steps, and goes on where it is interrupted; gives where that was."""
    probe = Holder().probe
    model, interrupted = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), probe), []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = model[0](x) + x
        probe(y, {"key": y, "other": y})
        return torch.clamp(torch.exp(y), min=torch.zeros(2))

    for _ in range(2):
        with recording(debugger, model):
            x = torch.ones(3, 2, requires_grad=True) * 1
            for number in range(3):
                loss = None
                try:
                    loss = forward(x).sum()
                except unless:
                    interrupted.append(f"forward {number}")
                if loss is not None:
                    for _ in range(2):
                        try:
                            loss.backward(retain_graph=True)
                        except unless:
                            interrupted.append(f"backward {number}")
    return interrupted


class Pool:
    """A pool that does something before, which is given the file's name."""

    def __init__(self, pool: TensorPool, before: Callable[[str], Any]) -> None:
        self.pool = pool
        self.before = before

    def submit(self, path: str, *rest: Any) -> None:
        self.before(path.rpartition("/")[2].removesuffix(".pt"))
        self.pool.submit(path, *rest)

    def submit_saver(self, path: str, *rest: Any) -> None:
        self.before(path.rpartition("/")[2].removesuffix(".pt"))
        self.pool.submit_saver(path, *rest)


class Queue:
    """The same of a pool's queue, to which C goes by itself."""

    def __init__(self, queue: Any, before: Callable[[str], Any]) -> None:
        self.queue = queue
        self.before = before

    def submit(self, directory: str, name: str, *rest: Any) -> Any:
        self.before(name.removesuffix(".pt"))
        return self.queue.submit(directory, name, *rest)


def submitting(monkeypatch: pytest.MonkeyPatch, before: Callable[[str], Any]) -> None:
    """Has something done before a tensor goes to the pool."""
    made = TensorSaver.__init__

    def make(saver: TensorSaver, directory: str, pool: TensorPool) -> None:
        made(saver, directory, pool)
        saver._pool = cast(TensorPool, Pool(pool, before))
        if saver.queue is not None:
            saver.queue = Queue(saver.queue, before)

    monkeypatch.setattr(TensorSaver, "__init__", make)


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_values_that_cannot_be_kept_are_told_alike(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Training goes on, and what is not kept has no name in the record."""

    def fail(name: str) -> None:
        if name in PLACES:
            raise OSError(28, f"no room for {name}")

    submitting(monkeypatch, fail)
    way = alike(whatever_comes, tmp_path, monkeypatch, capfd, summary_mode=mode)
    step = way.step()
    assert not {f"{place}.pt" for place in PLACES} & set(way.saved) and len(way.saved) > 50
    for place in PLACES:
        assert f"values could not be kept: OSError(28, 'no room for {place}')" in step.errors, place
    (missing,) = step.data["Torch.exp.0.forward"]["input_args"]
    assert list(missing)[-1] == ("md5" if mode == "md5" else "requires_grad") and "data_name" not in missing


def test_every_kind_of_error_is_told_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Also one that says nothing, one of an odd class and one that has a cause; of what Python saves too."""

    class Odd(Exception):
        def __repr__(self) -> str:
            return "odd\nin two lines"

    errors = [MemoryError(), Odd(), KeyError("ä"), RuntimeError("no", 1), AttributeError("submit"), TypeError(), StopIteration(3)]

    def fail(name: str) -> None:
        number = crc32(name.encode("utf-8", "surrogatepass"))
        if number % 3:
            raise errors[number % len(errors)] from ValueError("the cause")

    def program(debugger: PrecisionDebugger) -> None:
        whatever_comes(debugger)
        values_of_every_layout(debugger)

    submitting(monkeypatch, fail)
    way = alike(program, tmp_path, monkeypatch, capfd)
    assert all(repr(error).split("\n", maxsplit=1)[0] in way.step().errors for error in errors)


def test_an_expanded_tensor_that_is_too_large_is_told_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        holder, one = Holder(), torch.ones(1)
        with recording(debugger, holder):
            holder.probe(one.expand(1000), torch.ones(1000), one.expand(20), one.expand(100, 10).t())

    monkeypatch.setattr(tensor_saver, "_LARGE", 100)
    way = alike(program, tmp_path, monkeypatch, capfd, level="L0")
    assert [name.rpartition("input.")[2] for name in way.saved] == ["1.pt", "2.pt"]
    assert way.step().errors.count("an expanded tensor: its values would take") == 2


def test_no_room_for_what_waits_is_written_at_once_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    for kind in (TensorPool, *TensorPool.__subclasses__()):
        monkeypatch.setattr(vars(kind)["__init__"], "__defaults__", (100, 1))
    alike(whatever_comes, tmp_path, monkeypatch, capfd, **MD5)


class Interrupted(BaseException):
    pass


class Expired(Exception):
    """What a signal handler of the user's raises."""


SLOW_PLACES = PLACES[2::2]


@pytest.mark.parametrize("how", ["interrupted", "by a signal handler"])
@pytest.mark.parametrize("place", [pytest.param(place, marks=[pytest.mark.slow] if place in SLOW_PLACES else []) for place in PLACES])
def test_what_is_the_users_is_let_through_alike(place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    met: list[list[str]] = []

    def handler(number: int, frame: Any) -> None:
        raise Expired

    def interrupt(name: str) -> None:
        if name == place:
            if how == "interrupted":
                raise Interrupted
            signal.raise_signal(signal.SIGUSR1)

    def program(debugger: PrecisionDebugger) -> None:
        met.append(whatever_comes(debugger, Interrupted if how == "interrupted" else Expired))

    submitting(monkeypatch, interrupt)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        in_c, in_python = both_ways(program, tmp_path, monkeypatch, capfd)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert met[0] == met[1] and len(met[0]) >= 2
    assert differing(in_c, in_python) == []
    assert (in_c.common, in_python.common) == ({True}, {False})
