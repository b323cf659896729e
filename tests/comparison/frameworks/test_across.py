"""A dump of MindSpore against one of PyTorch: both were written by hand, in the shape in which they are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.commands import Ran
from comparison.dumps import Json, api, backward, module, tensor, write_dump
from msprobe.cli.main import main

LAYERS = ("conv.Conv2d", "bn.BatchNorm2d", "embed.Embedding", "fc.Dense", "norm.LayerNorm")
CLASSES = {"Dense": "Linear", "SequentialCell": "Sequential"}
PARAMETERS = {
    "conv": (("weight", "weight"),),
    "bn": (("gamma", "weight"), ("beta", "bias"), ("moving_mean", None), ("moving_variance", None)),
    "embed": (("embedding_table", "weight"),),
    "fc": (("weight", "weight"), ("bias", "bias")),
    "norm": (("gamma", "weight"), ("beta", "bias")),
}


def ms(value: float = 1.0, dtype: str = "Float32", **fields: Any) -> Json:
    """A record as MindSpore's tensors have it."""
    record = tensor(value, **{"type": "mindspore.Tensor", **fields})
    del record["requires_grad"]
    return {**record, "dtype": dtype}


def nets(*, off: float = 0.0, inside: bool = False) -> tuple[Json, Json, dict[str, str | None], dict[str, str | None]]:
    """The same net in both frameworks, and what is called inside of what. `off`: what is added to the output of fc in MindSpore."""
    ours: Json = {}
    theirs: Json = {}
    parents: tuple[dict[str, str | None], dict[str, str | None]] = ({}, {})
    value = 3.0
    for layer in LAYERS:
        path, class_name = layer.split(".")
        names = f"Cell.{layer}.forward.0", f"Module.{path}.{CLASSES.get(class_name, class_name)}.forward.0"
        wrong = off if path == "fc" else 0.0
        known = [(own, there, 10.0 + number + value) for number, (own, there) in enumerate(PARAMETERS[path])]
        if inside:
            for number, primitive in enumerate(("matmul.MatMul", "bias_add.BiasAdd")):
                name = f"Primitive.{primitive}.{len(ours)}.forward"
                ours[name] = api([ms(value + number)], [ms(value + 0.5 + number)])
                parents[0][name] = names[0]
            name = f"Functional.linear.{len(theirs)}.forward"
            theirs[name] = api([tensor(value)], [tensor(value + 1)])
            parents[1][name] = names[1]
        ours[names[0]] = module([ms(value)], [ms(value + 1 + wrong)], **{own: ms(number) for own, _, number in known})
        theirs[names[1]] = module([tensor(value)], [tensor(value + 1)], **{there: tensor(number) for _, there, number in known if there})
        parents[0][names[0]] = parents[1][names[1]] = None
        value += 1
    for layer in reversed(LAYERS):
        path, class_name = layer.split(".")
        bases = f"Cell.{layer}", f"Module.{path}.{CLASSES.get(class_name, class_name)}"
        trained = [(own, there, number) for number, (own, there) in enumerate(PARAMETERS[path]) if there]
        ours[f"{bases[0]}.parameters_grad.0"] = {own: [ms(20.0 + number + value)] for own, _, number in trained}
        theirs[f"{bases[1]}.parameters_grad.0"] = {there: [tensor(20.0 + number + value)] for _, there, number in trained}
        ours[f"{bases[0]}.backward.0"] = backward([ms(value)], [ms(value + 1)])
        theirs[f"{bases[1]}.backward.0"] = backward([tensor(value)], [tensor(value + 1)])
        value += 1
    return ours, theirs, *parents


def compare(directory: Path, ours: Path, theirs: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Ran:
    capsys.readouterr()
    code = main(["compare", "-tp", str(ours), "-gp", str(theirs), "-o", str(directory / "out"), *options])
    text = capsys.readouterr()
    return Ran(code, text.out, text.err, directory / "out")


def both(directory: Path, ours: Json, theirs: Json, parents: tuple[Any, Any] = (None, None), **more: Any) -> tuple[Path, Path]:
    return (
        write_dump(directory / "ms", ours, framework="mindspore", construct=parents[0], **more),
        write_dump(directory / "pt", theirs, construct=parents[1], **more),
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("options", [(), ("-cm",)])
def test_equal_nets(turned: bool, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, *parents = nets()
    paths = both(tmp_path, ours, theirs, (parents[0], parents[1]), level="L0")
    ran = compare(tmp_path, *(reversed(paths) if turned else paths), capsys, *options)
    assert ran.code == 0, ran.out + ran.err
    assert {row["Result"] for row in ran.rows} == {"pass"}
    assert len(ran.rows) == 36
    place = "Bench Name" if turned else "NPU Name"
    other = "NPU Name" if turned else "Bench Name"
    pairs = {row[place]: row[other] for row in ran.rows}
    assert pairs["Cell.fc.Dense.forward.0.parameters.weight"] == "Module.fc.Linear.forward.0.parameters.weight"
    assert pairs["Cell.norm.LayerNorm.forward.0.parameters.gamma"] == "Module.norm.LayerNorm.forward.0.parameters.weight"
    assert pairs["Cell.norm.LayerNorm.parameters_grad.0.beta"] == "Module.norm.LayerNorm.parameters_grad.0.bias"
    assert pairs["Cell.embed.Embedding.forward.0.parameters.embedding_table"] == "Module.embed.Embedding.forward.0.parameters.weight"
    assert "running statistics, which PyTorch keeps in buffers that no dump holds: 2" in ran.out
    assert not any("moving_mean" in row["NPU Name"] + row["Bench Name"] for row in ran.rows)
    assert {row["NPU Dtype"] for row in ran.rows} == {row["Bench Dtype"] for row in ran.rows} == {"torch.float32"}


def test_a_planted_difference_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, *parents = nets(off=0.25)
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, (parents[0], parents[1]), level="L0"), capsys)
    assert ran.code == 1
    assert "First difference: Cell.fc.Dense.forward.0 (inputs equal, parameters equal, output differs)" in ran.out
    assert "`fc` differs" in ran.out
    assert ran.result("Cell.fc.Dense.forward.0.output.0") == "error"


def test_layers_are_built_of_other_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, *parents = nets(inside=True)
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, (parents[0], parents[1])), capsys)
    assert ran.code == 0, ran.out
    assert "15 calls inside of 5 layers are left out, the layers are compared" in ran.out


def test_a_call_that_stands_alone_is_unmatched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, *parents = nets()
    ours["Mint.exp.0.forward"] = api([ms(1.0)], [ms(2.0)])
    parents[0]["Mint.exp.0.forward"] = None
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, (parents[0], parents[1])), capsys)
    assert ran.code == 1 and ran.result("Mint.exp.0.forward.output.0") == "unmatched"


FUNCTIONS = [
    ("Mint.matmul", "Torch.matmul"),
    ("MintFunctional.silu", "Functional.silu"),
    ("Functional.softmax", "Functional.softmax"),
    ("Functional.exp", "Torch.exp"),
    ("Functional.select", "Torch.where"),
    ("Functional.floor_div", "Torch.floor_divide"),
    ("Functional.cross_entropy", "Functional.cross_entropy"),
    ("Tensor.__matmul__", "Tensor.__matmul__"),
    ("Primitive.mul.Mul", "Tensor.__mul__"),
    ("Primitive.softmax.Softmax", "Functional.softmax"),
]


def functions(number: int) -> tuple[Json, Json]:
    ours = {f"{own}.{number}.forward": api([ms(2.0 + i), ms(5.0 + i)], [ms(3.5 + i)]) for i, (own, _) in enumerate(FUNCTIONS)}
    theirs: Json = {}
    for i, (_, there) in enumerate(FUNCTIONS):
        count = sum(name.startswith(there + ".") for name in theirs)
        theirs[f"{there}.{count}.forward"] = api([tensor(2.0 + i), tensor(5.0 + i)], [tensor(3.5 + i)])
    return ours, theirs


def test_functions_by_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = compare(tmp_path, *both(tmp_path, *functions(0), level="L1"), capsys)
    assert ran.code == 0, ran.out
    assert [row["Result"] for row in ran.rows] == ["pass"] * 30
    assert (ran.row("Functional.select.0.forward.output.0")["Bench Name"]) == "Torch.where.0.forward.output.0"


def test_arguments_have_other_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def number(value: int) -> Json:
        return {"type": "int", "value": value}

    ours: Json = {
        "Functional.softmax.0.forward": api([ms(2.0)], [ms(3.0)], axis=number(-1)),
        "Functional.add.0.forward": api([], [ms(9.0)], x=ms(4.0), y=ms(5.0)),
        "Functional.mean.0.forward": api([ms(7.0), number(1), {"type": "bool", "value": False}], [ms(8.0)]),
    }
    theirs: Json = {
        "Functional.softmax.0.forward": api([tensor(2.0)], [tensor(3.0)], dim=number(0)),
        "Torch.add.0.forward": api([tensor(4.0), tensor(5.0)], [tensor(9.0)]),
        "Torch.mean.0.forward": api([tensor(7.0)], [tensor(8.0)], dim=number(1)),
    }
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, level="L1"), capsys)
    assert ran.row("Functional.softmax.0.forward.input.axis")["Bench Name"] == "Functional.softmax.0.forward.input.dim"
    assert ran.result("Functional.softmax.0.forward.input.axis") == "error"
    assert ran.row("Functional.add.0.forward.input.y")["Bench Name"] == "Torch.add.0.forward.input.1"
    assert "arguments that are no tensors" in ran.out
    assert not [row for row in ran.rows if row["Result"] == "unmatched"]


def test_views_that_pytorch_does_not_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours: Json = {
        "Functional.expand_dims.0.forward": api([ms(2.0)], [ms(2.0)]),
        "Functional.relu.0.forward": api([ms(2.0)], [ms(3.0)]),
        "Functional.relu.0.backward": backward([ms(1.0)], [None]),
    }
    theirs: Json = {
        "Functional.relu.0.forward": api([tensor(2.0)], [tensor(3.0)]),
        "Functional.relu.0.backward": backward([tensor(1.0)], []),
    }
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, level="L1"), capsys)
    assert ran.code == 0, ran.out
    assert (
        "values of calls that only move, make or convert elements, such as Functional.expand_dims.0.forward, none" in ran.out
        and "(PyTorch: risk_level ALL): 2" in ran.out
    )
    assert "gradients that are not there: 1" in ran.out
    theirs["Torch.unsqueeze.0.forward"] = api([tensor(2.0)], [tensor(2.5)])
    ran = compare(tmp_path / "second", *both(tmp_path / "second", ours, theirs, level="L1"), capsys)
    assert ran.code == 1 and "move elements" not in ran.out


def test_what_pytorch_makes_and_converts_without_recording_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`torch.ones` and `.bool()` are recorded at risk_level ALL only; what computes still has to have a partner."""
    ours: Json = {
        "Functional.ones.0.forward": api([{"type": "int", "value": 3}], [ms(1.0)]),
        "Tensor.astype.0.forward": api([ms(1.0)], [ms(1.0, "Int32")]),
        "Functional.relu.0.forward": api([ms(2.0)], [ms(3.0)]),
    }
    theirs: Json = {"Functional.relu.0.forward": api([tensor(2.0)], [tensor(3.0)])}
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, level="L1"), capsys)
    assert ran.code == 0, ran.out
    ours["Functional.cumsum.0.forward"] = api([ms(1.0)], [ms(2.0)])
    ran = compare(tmp_path / "second", *both(tmp_path / "second", ours, theirs, level="L1"), capsys)
    assert ran.code == 1
    assert {row["NPU Name"] for row in ran.rows if row["Result"] == "unmatched"} == {
        "Functional.cumsum.0.forward.input.0",
        "Functional.cumsum.0.forward.output.0",
    }


def tokens(ours: str, theirs: str, number: int = 9, **more: Any) -> tuple[Json, Json]:
    """An embedding whose input has another width on each side; `number`: its largest, in MindSpore."""
    ids = {"Max": number, "Min": 0, "Mean": 4.5, "Norm": 12.0}
    other = {**ids, "Max": 9}
    md5 = {"md5": "0000000a"} if more.get("md5") else {}
    return (
        {"Cell.embed.Embedding.forward.0": module([ms(1.0, ours, **ids, **md5)], [ms(3.0, **md5)])},
        {
            "Module.embed.Embedding.forward.0": module(
                [tensor(1.0, dtype=theirs, **other, **({"md5": "0000000b"} if md5 else {}))], [tensor(3.0, **md5)]
            )
        },
    )


def test_equal_integers_of_two_widths_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = compare(tmp_path, *both(tmp_path, *tokens("Int32", "int64"), level="L0"), capsys)
    assert ran.code == 0, ran.out
    row = ran.row("Cell.embed.Embedding.forward.0.input.0")
    assert (row["Result"], row["NPU Dtype"], row["Bench Dtype"]) == ("pass", "torch.int32", "torch.int64")
    assert "accepted: integers of another width on each side." in row["Err_message"]
    assert "int32" not in ran.out


@pytest.mark.parametrize(
    ("dtype", "first"), [("Float32", "Inputs equal, weight "), ("BFloat16", "The target computes in torch.bfloat16, ")]
)
def test_what_is_told_first_of_several_steps_is_no_width_of_integers(
    dtype: str, first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(2):
        ours, theirs = tokens("Int32", "int64")
        record = ms(3.0, dtype)
        ours["Cell.embed.Embedding.forward.0"] = module([ours["Cell.embed.Embedding.forward.0"]["input_args"][0]], [record])
        ours["Cell.fc.Dense.forward.0"] = module([record], [record], weight=ms(4.0 + 4.0 * step, dtype), bias=record)
        theirs["Module.fc.Linear.forward.0"] = module([tensor(3.0)], [tensor(3.0)], weight=tensor(4.0), bias=tensor(3.0))
        write_dump(tmp_path / "ms" / f"step{step}" / "rank0", ours, level="L0", framework="mindspore")
        write_dump(tmp_path / "pt" / f"step{step}" / "rank0", theirs, level="L0")
    ran = compare(tmp_path, tmp_path / "ms", tmp_path / "pt", capsys)
    assert ran.out.startswith(first)


@pytest.mark.parametrize(("ours", "theirs", "number"), [("Int32", "int64", 8), ("Int32", "float32", 9), ("Int32", "bool", 9)])
def test_other_integers_or_no_integers_differ(
    ours: str, theirs: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = compare(tmp_path, *both(tmp_path, *tokens(ours, theirs, number), level="L0"), capsys)
    assert ran.code == 1
    assert ran.result("Cell.embed.Embedding.forward.0.input.0") == "error"


def test_checksums_of_integers_of_two_widths_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = compare(tmp_path, *both(tmp_path, *tokens("Int32", "int64", md5=True), level="L0"), capsys)
    assert ran.result("Cell.embed.Embedding.forward.0.input.0") == "not compared"
    assert ran.result("Cell.embed.Embedding.forward.0.output.0") == "pass"


def convolution(off: float = 0.0) -> tuple[Json, Json]:
    ours = ms(3.0 + off, shape=[4, 2, 1, 3])
    theirs = tensor(3.0, shape=[4, 2, 3])
    return (
        {
            "Cell.conv.Conv1d.forward.0": module([ms(1.0)], [ms(2.0)], weight=ours),
            "Cell.conv.Conv1d.parameters_grad.0": {"weight": [ours]},
        },
        {
            "Module.conv.Conv1d.forward.0": module([tensor(1.0)], [tensor(2.0)], weight=theirs),
            "Module.conv.Conv1d.parameters_grad.0": {"weight": [theirs]},
        },
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("off", [0.0, 0.5])
def test_weights_of_conv1d_are_compared_in_three_dimensions(
    turned: bool, off: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = both(tmp_path, *convolution(off), level="L0")
    ran = compare(tmp_path, *(reversed(paths) if turned else paths), capsys)
    assert ran.code == (1 if off else 0), ran.out
    assert "weights of Conv1d, which MindSpore keeps in four dimensions, are compared in three: 2" in ran.out
    weights = [row["Result"] for row in ran.rows if row["NPU Name"].endswith("weight")]
    assert len(weights) == 2 and set(weights) <= ({"error", "warning"} if off else {"pass"})


def test_values_of_conv1d_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = convolution()
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 1, 3)
    for entry in (ours, theirs):
        for name, value in entry.items():
            record = value["parameters"]["weight"] if "forward" in name else value["weight"][0]
            record["data_name"] = f"{name}.weight.npy"
    paths = both(tmp_path, ours, theirs, level="L0", task="tensor")
    for path, entry, array in zip(paths, (ours, theirs), (values, values[:, :, 0]), strict=True):
        (path.parent / "dump_tensor_data").mkdir()
        for name in entry:
            np.save(path.parent / "dump_tensor_data" / f"{name}.weight.npy", array)
    ran = compare(tmp_path, *paths, capsys)
    row = ran.row("Cell.conv.Conv1d.forward.0.parameters.weight")
    assert (row["Result"], float(row["MaxAbsErr"]), float(row["Cosine"])) == ("pass", 0.0, 1.0)


def test_what_a_recurrent_layer_is_made_of_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cell in a cell, and its sums, here; one function there. A layer of the user's own with cells inside stays as it is."""
    inner = "Cell.rnn.inner._DynamicLSTM.forward.0"
    ours: Json = {
        "Tensor.__add__.0.forward": api([ms(1.0)], [ms(2.0)]),
        inner: module([ms(1.5)], [ms(3.0)]),
        "Cell.rnn.LSTM.forward.0": module([ms(1.0)], [ms(3.0)]),
        "Cell.rnn.LSTM.backward.0": backward([ms(1.0)], [ms(2.0)]),
        "Cell.rnn.inner._DynamicLSTM.backward.0": backward([ms(1.0)], [ms(2.5)]),
    }
    theirs: Json = {
        "VF.lstm.0.forward": api([tensor(1.0)], [tensor(3.0)]),
        "Module.rnn.LSTM.forward.0": module([tensor(1.0)], [tensor(3.0)]),
        "Module.rnn.LSTM.backward.0": backward([tensor(1.0)], [tensor(2.0)]),
    }
    around = {"Tensor.__add__.0.forward": inner, inner: "Cell.rnn.LSTM.forward.0", "Cell.rnn.LSTM.forward.0": None}
    around |= {name.replace("forward", "backward"): parent and parent.replace("forward", "backward") for name, parent in around.items()}
    there = {"VF.lstm.0.forward": "Module.rnn.LSTM.forward.0", "Module.rnn.LSTM.forward.0": None, "Module.rnn.LSTM.backward.0": None}
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, (around, there)), capsys)
    assert ran.code == 0, ran.out
    assert "4 calls inside of 1 layers are left out" in ran.out

    def own(value: Any) -> Any:
        text = json.dumps(value).replace("LSTM", "Mine")
        return json.loads(text)

    ran = compare(tmp_path / "own", *both(tmp_path / "own", own(ours), own(theirs), (own(around), own(there))), capsys)
    assert ran.code == 1 and ran.result("Cell.rnn.inner._DynamicMine.forward.0.output.0") == "unmatched"


def test_without_layers_it_is_said_that_they_are_built_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = compare(tmp_path, *both(tmp_path, *functions(0), level="L1"), capsys)
    assert "record at level L0 or mix to compare the layers" in ran.out


def test_mapping_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def cell(path: str, shift: float = 0.0) -> Json:
        return {f"Cell.{path}.forward.0": module([ms(2.0 + shift)], [ms(3.0 + shift)], weight=ms(4.0 + shift))}

    def there(path: str, shift: float = 0.0) -> Json:
        return {f"Module.{path}.forward.0": module([tensor(2.0 + shift)], [tensor(3.0 + shift)], weight=tensor(4.0 + shift))}

    def ran(name: str, ours: Json, theirs: Json, flag: str, text: str, turned: bool = False) -> Ran:
        file = tmp_path / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        paths = both(tmp_path / name, ours, theirs, level="L0")
        return compare(tmp_path / name, *(reversed(paths) if turned else paths), capsys, flag, str(file))

    ours, theirs = {**cell("first.Dense"), **cell("second.MyDense", 10.0)}, {**there("one.Linear"), **there("two.Theirs", 10.0)}
    found = ran("cells", ours, theirs, "-cm", "first.Dense: one.Linear\nsecond.MyDense: two.Theirs\n")
    assert found.code == 0 and len(found.rows) == 6, found.out
    assert found.row("Cell.first.Dense.forward.0.output.0")["Bench Name"] == "Module.one.Linear.forward.0.output.0"
    found = ran("turned", ours, theirs, "-cm", "one.Linear: first.Dense\ntwo.Theirs: second.MyDense\n", turned=True)
    assert found.code == 0 and len(found.rows) == 6, found.out
    found = ran("layers", ours, theirs, "-lm", "TopLayer:\n  first: one\n  second: two\n")
    assert found.code == 0 and len(found.rows) == 6, found.out
    ours = {"Mint.mine.0.forward": api([ms(2.0)], [ms(3.0)]), "Functional.kept.0.forward": api([ms(4.0)], [ms(5.0)])}
    theirs = {"Torch.theirs.0.forward": api([tensor(2.0)], [tensor(3.0)]), "Functional.kept.0.forward": api([tensor(4.0)], [tensor(5.0)])}
    found = ran("apis", ours, theirs, "-am", "Mint.mine: Torch.theirs\n")
    assert found.code == 0 and len(found.rows) == 4, found.out
    found = ran("apis_turned", ours, theirs, "-am", "Torch.theirs: Mint.mine\n", turned=True)
    assert found.code == 0 and len(found.rows) == 4, found.out
    found = ran("none", ours, theirs, "-am", "Mint.miin: Torch.theirs\n")
    assert found.code == 1 and "'calls: Mint.miin'; nearest: Mint.mine" in found.out, found.out
    ours = {"Cell.a.Mine.forward.0": module([ms(2.0)], [ms(3.0)]), **cell("b.Dense")}
    theirs = {"Module.a.Mine.forward.0": module([tensor(9.0), tensor(2.0)], [tensor(3.0)]), **there("b.Linear")}
    found = ran("rows", ours, theirs, "-dm", "Cell.a.Mine.forward.0.input.0: Module.a.Mine.forward.0.input.1\n")
    assert found.row("Cell.a.Mine.forward.0.input.0")["Bench Name"] == "Module.a.Mine.forward.0.input.1"
    assert found.result("Cell.a.Mine.forward.0.input.0") == "pass"


def test_two_dumps_of_mindspore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = nets()[0], nets(off=1e-7)[0]
    first["Functional.relu.0.forward"] = api([ms(1.0, "BFloat16")], [ms(2.0, "BFloat16")])
    second["Functional.relu.0.forward"] = api([ms(1.0, "BFloat16")], [ms(2.001, "BFloat16")])
    paths = [write_dump(tmp_path / name, data, framework="mindspore") for name, data in (("a", first), ("b", second))]
    ran = compare(tmp_path, *paths, capsys)
    assert ran.code == 0, ran.out
    assert "moving_mean" in str(ran.rows) and "left out" not in ran.out
    assert {row["NPU Dtype"] for row in ran.rows} == {"torch.float32", "torch.bfloat16"}


def test_names_that_both_frameworks_have_are_not_taken_for_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ops.gather selects along an axis, torch.gather does something else: equal text, another function."""
    ours = {"Functional.gather.0.forward": api([ms(2.0)], [ms(3.0)]), "Functional.gather_elements.0.forward": api([ms(5.0)], [ms(6.0)])}
    theirs = {
        "Torch.index_select.0.forward": api([tensor(2.0)], [tensor(3.0)]),
        "Torch.gather.0.forward": api([tensor(5.0)], [tensor(6.0)]),
    }
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, level="L1"), capsys)
    assert ran.code == 0, ran.out
    assert ran.row("Functional.gather.0.forward.input.0")["Bench Name"] == "Torch.index_select.0.forward.input.0"


def test_values_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`.npy` there, `.pt` here; what MindSpore's bfloat16 is kept as."""
    from comparison.dumps import save_array

    arrays = {"a": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "b": np.arange(6, dtype=np.int32), "c": np.float32([0.5, -1.25])}
    ours: Json = {}
    theirs: Json = {}
    (tmp_path / "ms/dump_tensor_data").mkdir(parents=True)
    for name, array in arrays.items():
        entry, there = f"Mint.{name}.0.forward", f"Torch.{name}.0.forward"
        record = save_array(tmp_path / "pt", f"{there}.output.0.pt", array)
        np.save(tmp_path / f"ms/dump_tensor_data/{entry}.output.0.npy", array)
        own = {"float32": "Float32", "int32": "Int32"}[str(array.dtype)]
        ours[entry] = api([], [{**record, "type": "mindspore.Tensor", "dtype": own, "data_name": f"{entry}.output.0.npy"}])
        theirs[there] = api([], [record])
    bits = (np.float32([1.5, -2.0]).view(np.uint32) >> 16).astype(np.uint16)
    halved = save_array(tmp_path / "pt", "Torch.d.0.forward.output.0.pt", bits, "bfloat16")
    np.save(tmp_path / "ms/dump_tensor_data/Mint.d.0.forward.output.0.npy", np.float32([1.5, -2.0]))
    values = {"Max": 1.5, "Min": -2.0, "Mean": -0.25, "Norm": 2.5}
    record = {**halved, **values, "type": "mindspore.Tensor", "dtype": "BFloat16", "data_name": "Mint.d.0.forward.output.0.npy"}
    ours["Mint.d.0.forward"] = api([], [record])
    theirs["Torch.d.0.forward"] = api([], [{**halved, **values}])
    ran = compare(tmp_path, *both(tmp_path, ours, theirs, task="tensor", level="L1"), capsys)
    assert ran.code == 0, ran.out + str([row["Err_message"] for row in ran.rows])
    assert [row["Cosine"] for row in ran.rows] == ["1.0"] * 4
    np.save(tmp_path / "ms/dump_tensor_data/Mint.a.0.forward.output.0.npy", arrays["a"] * 1.5)
    ran = compare(tmp_path / "second", tmp_path / "ms", tmp_path / "pt", capsys)
    assert ran.code == 1


def test_structure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, *parents = nets(inside=True)
    paths = both(tmp_path, {}, {}, (parents[0], parents[1]), task="structure", stack={})
    ran = compare(tmp_path, *paths, capsys)
    assert ran.code == 0, ran.out
    assert [row["Result"] for row in ran.rows] == ["pass"] * 5
    assert "of two frameworks the forward calls are compared" in ran.out
    del parents[1]["Module.fc.Linear.forward.0"]
    paths = both(tmp_path / "second", {}, {}, (parents[0], parents[1]), task="structure", stack={})
    assert compare(tmp_path / "second", *paths, capsys).code == 1
