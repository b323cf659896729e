"""support_wrap_ops.yaml, custom_wrap_ops.yaml and builtin_ignore_ops.yaml: the packaged ones and those of a user's own directory."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_golden import sample_differences
from capturing import Run, configured, golden, record

import warm_python
from msprobe.errors import ConfigError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump.api_dump.api_table import ApiTable, seen_by_mode
from msprobe.pytorch.dump.api_dump.ignoring import Ignored
from msprobe.pytorch.dump.api_dump.operation_files import CUSTOM, IGNORE, SUPPORT, VARIABLE, read_operation_files

Write = Callable[..., str]
X = torch.tensor([1.0, -2.0], requires_grad=True)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files into a directory and gives its path; keyword arguments: support, custom, ignore."""

    def files(**texts: str) -> str:
        directory = tmp_path / "ops"
        directory.mkdir(exist_ok=True)
        for name, text in texts.items():
            (directory / {"support": SUPPORT, "custom": CUSTOM, "ignore": IGNORE}[name]).write_text(text, encoding="utf-8")
        return str(directory)

    return files


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The warnings so far."""
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Handler(logging.WARNING)
    logging.getLogger("msprobe").addHandler(handler)
    yield texts
    logging.getLogger("msprobe").removeHandler(handler)


def problems(directory: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_operation_files(directory)
    return str(caught.value).splitlines()


# --- reading --------------------------------------------------------------------------------------------------------------------------
def test_the_packaged_files(told: list[str]) -> None:
    files = read_operation_files()
    assert files.custom == {} and files.own == frozenset() and files.own_rules == frozenset() and files.source == ""
    assert {"functional", "tensor", "torch", "_VF", "aten", "distributed", "torch_npu", "mindspeed", "triton"} <= set(files.watched)
    assert files.ignored["Distributed.recv"] == Ignored(inputs=frozenset([0]), keywords=frozenset(["tensor"]))
    assert files.ignored["Distributed.isend"] == Ignored(outputs=frozenset([0]))
    assert {name for name in files.ignored if not name.startswith("Distributed.")} == {"_C.get_scheduler_metadata"}
    assert told == []


def test_a_category_is_replaced(write: Write) -> None:
    before = read_operation_files().watched
    files = read_operation_files(write(support="functional:\n  - relu\n  - gelu\n_VF:\n"))
    assert files.watched["functional"] == ["relu", "gelu"] and files.watched["_VF"] == []
    assert files.watched["torch"] == before["torch"]
    assert files.own == {("functional", "relu"), ("functional", "gelu")}


def test_a_category_is_changed(write: Write) -> None:
    before = read_operation_files().watched["functional"]
    files = read_operation_files(write(support="functional: [+my_function, +relu, -gelu]"))
    assert files.watched["functional"] == [*(name for name in before if name != "gelu"), "my_function"]
    assert files.own == {("functional", "my_function")}


def test_a_change_without_effect_is_told(write: Write, told: list[str]) -> None:
    read_operation_files(write(support="functional: [-gelo]"))
    assert len(told) == 1 and '"functional" has no "gelo" to take out, did you mean "gelu"?' in told[0]


def test_the_variable_names_the_directory_and_the_field_comes_first(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, write(support="_VF: [lstm]"))
    assert read_operation_files().watched["_VF"] == ["lstm"]
    other = tmp_path / "other"
    other.mkdir()
    (other / SUPPORT).write_text("_VF: [gru]")
    assert read_operation_files(str(other)).watched["_VF"] == ["gru"]
    monkeypatch.setenv(VARIABLE, "")
    assert len(read_operation_files().watched["_VF"]) > 1
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"^MSPROBE_OPS_DIR is '.*nowhere': no such directory"):
        read_operation_files()


def test_a_relative_directory_and_a_home(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(support="_VF: [lstm]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_operation_files("ops").watched["_VF"] == read_operation_files("~/ops").watched["_VF"] == ["lstm"]


def test_custom_modules_and_rules(write: Write) -> None:
    torch_rules = 'Torch:\n  add:\n    input: [1, "alpha"]\n    output: all\n  linalg.norm: {input: all}\n'
    text = f"{torch_rules}Distributed:\n  recv:\n__main__:\n  f: {{output: [2]}}\n"
    files = read_operation_files(write(custom="__main__:\n  - add_and_mul\na.b:\n", ignore=text))
    assert files.custom == {"__main__": ["add_and_mul"], "a.b": []}
    assert files.ignored["Torch.add"] == Ignored(inputs=frozenset([1]), keywords=frozenset(["alpha"]), all_outputs=True)
    assert files.ignored["Torch.linalg.norm"] == Ignored(all_inputs=True)
    assert files.ignored["Distributed.recv"] == Ignored()
    assert files.ignored["Distributed.scatter"] != Ignored()
    assert files.ignored["__main__.f"] == Ignored(outputs=frozenset([2]))


def test_a_file_that_is_not_there_and_an_empty_one(write: Write, told: list[str]) -> None:
    assert read_operation_files(write(custom="")).watched == read_operation_files().watched
    assert told == []


def test_other_files_are_told(write: Write, told: list[str]) -> None:
    directory = Path(write())
    assert read_operation_files(str(directory)).watched == read_operation_files().watched
    assert len(told) == 1 and "holds none of support_wrap_ops.yaml, custom_wrap_ops.yaml, builtin_ignore_ops.yaml" in told[0]
    told.clear()
    (directory / "support_wrap_op.yml").write_text("")
    read_operation_files(str(directory))
    assert told[0].endswith("support_wrap_op.yml is not read; did you mean support_wrap_ops.yaml?")


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        ({"support": "functional: [relu"}, ["support_wrap_ops.yaml is no valid YAML in line "]),
        ({"support": "- relu"}, ["support_wrap_ops.yaml holds a list: it must hold keys"]),
        ({"support": "functional:\n  relu:"}, ['"functional" is keys with values: it must be a list']),
        ({"support": "functional: relu"}, ["\"functional\" is 'relu': it must be a list"]),
        ({"support": "functionl: [relu]"}, ['"functionl" is no category; did you mean functional?']),
        ({"support": "x: [relu]"}, ['"x" is no category; known are functional, tensor,']),
        ({"support": "functional: [on, 1, null]"}, ["holds true:", "holds 1:", "holds nothing:"]),
        ({"support": "functional: [relu, +gelu]"}, ['holds "relu" and "+gelu": either all names begin with + or -']),
        ({"support": "functional: [relu]\ntorch: [add]\nfunctional: [gelu]"}, ['the key "functional" stands twice']),
        ({"support": "torch: !!python/object/apply:os.getpid []"}, ["is no valid YAML in line 1: could not determine a constructor"]),
        ({"custom": "bad key!: [x]"}, ['"bad key!" is no name of a module']),
        ({"custom": "__main__: [a.b]"}, ['holds "a.b", which is no name of a function']),
        ({"custom": "1: [a]"}, ['"1" must be text']),
        ({"ignore": "Torch: [add]"}, ['"Torch" is a list: below a prefix stand names of APIs']),
        ({"ignore": "Torch: {add: all}"}, ["\"Torch\".\"add\" is 'all': it must have \"input\" or \"output\" below it"]),
        ({"ignore": "Torch: {add: {inputs: all}}"}, ['"Torch"."add"."inputs" is not known']),
        ({"ignore": "Torch: {add: {input: 1, output: [a]}}"}, ['"input" is 1: it must be all, or a list', "holds 'a': allowed are"]),
        ({"ignore": "Torch: {add: {input: [-1, true, 1.5]}}"}, ["holds -1", "holds true", "holds 1.5"]),
        ({"support": "x: [a]", "custom": "- a"}, ["support_wrap_ops.yaml", "custom_wrap_ops.yaml holds a list"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(write: Write, files: dict[str, str], texts: list[str]) -> None:
    lines = problems(write(**files))
    assert len(lines) == len(texts)
    for line, text in zip(lines, texts, strict=True):
        assert text in line and ".yaml" in line


def test_files_that_cannot_be_read(write: Write) -> None:
    directory = Path(write())
    (directory / SUPPORT).write_bytes(b"functional: [\xff]")
    (directory / CUSTOM).mkdir()
    (directory / IGNORE).write_text("a: " + "[" * 5000)
    lines = problems(str(directory))
    assert len(lines) == 3
    assert "it is not UTF-8 text" in lines[0] and "Is a directory" in lines[1]
    assert "nested too deep" in lines[2] or "no valid YAML" in lines[2]


# --- the table ------------------------------------------------------------------------------------------------------------------------
def test_the_packaged_list_names_nothing_that_the_mode_does_not_see() -> None:
    assert ApiTable(read_operation_files()).unseen == []


def test_what_a_mode_sees() -> None:
    seen = (torch.relu, F.relu, F.conv2d, torch.randn, torch.Tensor.add, torch.Tensor.norm, F.sigmoid, torch.meshgrid, torch.ops.aten.add)
    assert all(map(seen_by_mode, seen))
    assert not any(map(seen_by_mode, (len, torch.get_num_threads, lambda x: x, torch.nn.ReLU, list.append, torch.is_tensor)))


def test_unknown_names_are_told_with_the_nearest(write: Write, told: list[str]) -> None:
    support = "functional: [+conv2]\ntensor: [relu, reluu]\ntorch: [+linalg.nrom, +no.such.place]"
    ApiTable(read_operation_files(write(support=support)))
    assert len(told) == 4
    assert all("support_wrap_ops.yaml" in line for line in told)
    for text in (
        'has no "conv2" in torch.nn.functional; did you mean "conv',
        'did you mean "relu"?',
        'did you mean "linalg.norm"?',
        '"no.such.place"',
    ):
        assert sum(text in line for line in told) == 1, text


def test_rules_for_what_is_not_watched_are_told(write: Write, told: list[str]) -> None:
    ignore = "torch: {add: {input: all}}\nTorch: {ad: {input: all}, add: {input: all}, relu: {output: all}}\nmine: {f: {input: all}}"
    ApiTable(read_operation_files(write(ignore=ignore)))
    assert len(told) == 2
    assert any('"torch" is a prefix of your own at most' in line and 'did you mean "Torch"?' in line for line in told)
    assert any('"Torch.ad"; did you mean "Torch.add"?' in line for line in told)


# --- recording ------------------------------------------------------------------------------------------------------------------------
def test_a_line_taken_out_is_not_recorded(write: Write, tmp_path: Path) -> None:
    step = record(tmp_path, lambda: (F.gelu(X), F.relu(X)), ops_dir=write(support="functional: [-gelu]"))
    assert [name for name in step.forward() if name.startswith("Functional.")] == ["Functional.relu.0.forward"]


def test_the_variable_works_for_the_debugger(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, write(support="functional: [relu]\ntorch: []\ntensor: []"))
    assert list(record(tmp_path, lambda: (F.gelu(X), F.relu(X), X + 1)).forward()) == ["Functional.relu.0.forward"]


@pytest.mark.parametrize(
    ("field", "text"), [("nowhere", "no such directory"), ("", "must be the path of a directory"), (3, "must be a string")]
)
def test_the_field_must_name_a_directory(tmp_path: Path, field: Any, text: str) -> None:
    with pytest.raises(ConfigError, match="ops_dir") as caught:
        configured(tmp_path, ops_dir=field)
    assert text in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_malformed_file_stops_the_debugger_with_one_error(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no category"):
        configured(tmp_path, ops_dir=write(support="functionl: [relu]"))
    assert PrecisionDebugger._instance is None


class Added:
    """Functions that nobody but the user has put into torch's namespaces."""

    @staticmethod
    def twice(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        """Twice."""
        return torch.relu(x) * by


def _method(self: torch.Tensor, by: int) -> torch.Tensor:
    return self * by


def test_a_function_that_the_mode_does_not_see(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Added.twice
    monkeypatch.setattr(F, "twice", twice, raising=False)
    monkeypatch.setattr(torch.Tensor, "times", _method, raising=False)
    monkeypatch.setattr(torch.linalg, "length", len, raising=False)
    codes = twice.__code__, _method.__code__
    directory = write(support="functional: [+twice]\ntensor: [+times]\ntorch: [+linalg.length]")

    def body() -> None:
        assert F.twice is twice  # type: ignore[attr-defined]
        twice(X, by=3.0).sum().backward()  # under another name too
        X.times(2)  # type: ignore[attr-defined]
        assert torch.linalg.length([X, X]) == 2  # type: ignore[attr-defined]

    step = record(tmp_path, body, ops_dir=directory)
    assert list(step.forward()) == [
        "Functional.twice.0.forward",
        "Tensor.sum.0.forward",
        "Tensor.times.0.forward",
        "Torch.linalg.length.0.forward",
    ]
    entry = step.data["Functional.twice.0.forward"]
    assert entry["input_args"][0]["shape"] == [2] and entry["input_kwargs"] == {"by": {"type": "float", "value": 3.0}}
    assert step.data["Functional.twice.0.backward"]["output"][0]["Max"] == 3.0
    assert step.data["Tensor.times.0.forward"]["output"][0]["Min"] == -4.0
    assert step.data["Torch.linalg.length.0.forward"]["output"] == [{"type": "int", "value": 2}]
    assert (twice.__code__, _method.__code__) == codes and torch.linalg.length is len  # type: ignore[attr-defined]


def test_the_sample_of_rules(write: Write, tmp_path: Path) -> None:
    """The reference's sample yaml_rules: its rules, its own function, its names and values."""
    custom = "__main__:\n  - add_and_mul\n  - nope\nmath2.x:\n  - foo\ntorch.nn.functional:\n  - relu\n"
    ignore = (
        'Torch:\n  add:\n    input: [1, "alpha"]\n    output: all\n  mul:\n    input: all\nFunctional:\n  linear:\n    output: [0, 5]\n'
    )
    write(custom=custom, ignore=ignore)
    script = """
import torch, torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
def add_and_mul(a, b, c): return (a + b) * c
dbg = PrecisionDebugger(config_path="config.json"); x = torch.ones(2, requires_grad=True)
dbg.start(); add_and_mul(x, x, 2).sum().backward(); torch.add(x, x, alpha=2).sum().backward(); torch.mul(x, x)
F.linear(torch.ones(1, 2), torch.ones(2, 2)); F.relu(x); dbg.stop(); dbg.step()
"""
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "config.json").write_text(json.dumps({**golden("yaml_rules")["config"], "dump_path": "dump", "ops_dir": "ops"}))
    output = run_script(tmp_path)
    assert output.count("__main__.nope is not recorded: module __main__ has no nope") == 1
    assert output.count("math2.x.foo is not recorded: no module math2.x has been imported") == 1
    step = Run(tmp_path / "dump").step()
    theirs = golden("yaml_rules")["steps"]["0"]["data"]
    assert list(step.forward()) == [name for name in theirs if name.endswith(".forward")]
    # The tensor that is passed twice has its whole gradient in both places (there: half of it, or null).
    assert set(step.data) - set(theirs) == set() and set(theirs) - set(step.data) == set()
    assert sample_differences(theirs, step.data) == []
    files = {path.name for path in (step.directory / "dump_tensor_data").iterdir()}
    assert {name for name in files if name.startswith(("Torch.add.0.forward", "Torch.mul", "Functional.linear"))} == {
        "Torch.add.0.forward.input.0.pt",
        "Torch.mul.0.forward.output.0.pt",
        "Functional.linear.0.forward.input.0.pt",
        "Functional.linear.0.forward.input.1.pt",
    }


def run_script(directory: Path) -> str:
    import subprocess

    from capturing import environment

    done = subprocess.run(
        [*warm_python.command(), "script.py"], cwd=directory, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_what_is_left_out_keeps_its_gradients(write: Write, tmp_path: Path) -> None:
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    ignore = (
        "Torch: {mul: {input: [0], output: [0]}, stack: {input: all}, split: {output: [1]}}\nFunctional: {layer_norm: {input: [bias, 0]}}"
    )

    def body() -> None:
        torch.mul(X, y).sum().backward()
        torch.stack([X, y]).sum().backward()
        torch.split(X, 1)
        F.layer_norm(y, (2,), weight=y, bias=X)

    step = record(tmp_path, body, ops_dir=write(ignore=ignore))
    mul = step.data["Torch.mul.0.forward"]
    assert mul["input_args"][0] is None and mul["input_args"][1]["Max"] == 4.0 and mul["output"] == [None]
    assert [slot["Max"] for slot in step.data["Torch.mul.0.backward"]["output"]] == [4.0, 1.0]
    assert step.data["Torch.stack.0.forward"]["input_args"] == [None]
    assert len(step.data["Torch.stack.0.backward"]["output"]) == 2
    assert [record is None for record in step.data["Torch.split.0.forward"]["output"]] == [False, True]
    norm = step.data["Functional.layer_norm.0.forward"]
    assert norm["input_args"][0] is None and norm["input_kwargs"]["bias"] is None and norm["input_kwargs"]["weight"]["Max"] == 4.0


def test_an_ignored_value_that_holds_itself_twice() -> None:
    from msprobe.pytorch.dump.api_dump.ignoring import _note_leaves
    from msprobe.pytorch.dump.encoder import Side

    leaf = torch.ones(1, requires_grad=True)
    loop: list[Any] = [leaf]
    loop += [loop, loop, {"again": loop}]
    side = Side("x", "input", False)
    _note_leaves(loop, side)
    assert len(side.leaves) == 1 and side.leaves[0] is leaf
