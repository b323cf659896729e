"""MatMul and BiasAdd in a dump of MindSpore are the `linear` of PyTorch, at level L1; what could be joined wrongly is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.commands import Ran
from comparison.dumps import Json, api, backward, save_array, tensor, write_dump
from msprobe.cli.main import main

X, WEIGHT, BIAS, PRODUCT, RESULT = 1.0, 20.0, 30.0, 40.0, 50.0


def ms(value: float, shape: tuple[int, ...], **fields: Any) -> Json:
    record = tensor(value, shape=shape, **{"type": "mindspore.Tensor", **fields})
    del record["requires_grad"]
    return {**record, "dtype": "Float32"}


def of_mindspore(n: int = 0, *, weight: tuple[int, int] = (5, 3), bias: bool = True, off: Json | None = None, deep: bool = False) -> Json:
    """The calls of a Dense of 3 and 5 features. `off`: what is added to a value, by its name; `deep`: x has three dimensions."""
    more = off or {}

    def value(name: str, number: float, shape: tuple[int, ...]) -> Json:
        return ms(number + n + more.get(name, 0.0), shape)

    x, w, b = value("x", X, (4, 3)), value("weight", WEIGHT, weight), value("bias", BIAS, (5,))
    product, result = value("product", PRODUCT, (4, 5)), value("result", RESULT, (4, 5))
    data: Json = {}
    if deep:
        data[f"Primitive.reshape.Reshape.{2 * n}.forward"] = api([ms(X + n, (2, 2, 3)), {"type": "int", "value": -1}], [x])
    data[f"Primitive.matmul.MatMul.{n}.forward"] = api([x, w], [product if bias else result])
    if bias:
        data[f"Primitive.bias_add.BiasAdd.{n}.forward"] = api([ms(PRODUCT + n, (4, 5)), b], [result])
    if deep:
        data[f"Primitive.reshape.Reshape.{2 * n + 1}.forward"] = api([result, {"type": "int", "value": 2}], [ms(RESULT + n, (2, 2, 5))])
    return data


def gradients_of_mindspore(n: int = 0) -> Json:
    return {
        f"Primitive.bias_add.BiasAdd.{n}.backward": backward([ms(60.0, (4, 5))], [ms(60.0, (4, 5)), ms(61.0, (5,))]),
        f"Primitive.matmul.MatMul.{n}.backward": backward([ms(60.0, (4, 5))], [ms(62.0, (4, 3)), ms(63.0, (5, 3))]),
    }


def of_pytorch(n: int = 0, *, weight: tuple[int, int] = (5, 3), bias: bool = True, deep: bool = False) -> Json:
    lead = (2, 2) if deep else (4,)
    inputs = [tensor(X + n, shape=(*lead, 3)), tensor(WEIGHT + n, shape=weight), tensor(BIAS + n, shape=(5,)) if bias else None]
    return {f"Functional.linear.{n}.forward": api(inputs, [tensor(RESULT + n, shape=(*lead, 5))])}


GRADIENTS = {
    "Functional.linear.0.backward": backward(
        [tensor(60.0, shape=(4, 5))], [tensor(62.0, shape=(4, 3)), tensor(63.0, shape=(5, 3)), tensor(61.0, shape=(5,))]
    )
}


def compare(directory: Path, ours: Json, theirs: Json, capsys: pytest.CaptureFixture[str], *options: str, turned: bool = False) -> Ran:
    paths = [
        write_dump(directory / "ms", ours, framework="mindspore", level="L1"),
        write_dump(directory / "pt", theirs, level="L1"),
    ]
    return run(directory, *(reversed(paths) if turned else paths), capsys, *options)


def run(directory: Path, target: Path, golden: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Ran:
    capsys.readouterr()
    code = main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(directory / "out"), *options])
    text = capsys.readouterr()
    return Ran(code, text.out, text.err, directory / "out")


@pytest.mark.parametrize("turned", [False, True])
def test_two_calls_are_compared_with_one(turned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = {**of_mindspore(), **of_mindspore(1), **gradients_of_mindspore()}
    ran = compare(tmp_path, ours, {**of_pytorch(), **of_pytorch(1), **GRADIENTS}, capsys, turned=turned)
    assert ran.code == 0, ran.out
    pairs = {tuple(sorted((row["NPU Name"], row["Bench Name"]))) for row in ran.rows}
    assert pairs == {
        *((f"Functional.linear.{n}.forward.input.0", f"Primitive.matmul.MatMul.{n}.forward.input.0") for n in (0, 1)),
        *((f"Functional.linear.{n}.forward.input.1", f"Primitive.matmul.MatMul.{n}.forward.input.1") for n in (0, 1)),
        *((f"Functional.linear.{n}.forward.input.2", f"Primitive.bias_add.BiasAdd.{n}.forward.input.1") for n in (0, 1)),
        *((f"Functional.linear.{n}.forward.output.0", f"Primitive.bias_add.BiasAdd.{n}.forward.output.0") for n in (0, 1)),
        ("Functional.linear.0.backward.input.0", "Primitive.bias_add.BiasAdd.0.backward.input.0"),
        ("Functional.linear.0.backward.output.0", "Primitive.matmul.MatMul.0.backward.output.0"),
        ("Functional.linear.0.backward.output.1", "Primitive.matmul.MatMul.0.backward.output.1"),
        ("Functional.linear.0.backward.output.2", "Primitive.bias_add.BiasAdd.0.backward.output.1"),
    }
    assert {row["Result"] for row in ran.rows} == {"pass"}
    note = "pairs of calls such as Primitive.matmul.MatMul.0.forward and Primitive.bias_add.BiasAdd.0.forward are compared with the one"
    assert f"{note} call that PyTorch makes of both: 2" in ran.out


def test_what_is_not_a_number_is_joined_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = json.loads(json.dumps(of_mindspore()))
    for record in (ours["Primitive.matmul.MatMul.0.forward"]["output"][0], ours["Primitive.bias_add.BiasAdd.0.forward"]["input_args"][0]):
        record.update(dict.fromkeys(("Max", "Min", "Mean", "Norm"), "NaN"))
    ours["Primitive.bias_add.BiasAdd.0.forward"]["output"][0].update(dict.fromkeys(("Max", "Min", "Mean", "Norm"), "NaN"))
    ran = compare(tmp_path, ours, of_pytorch(), capsys)
    assert ran.code == 1 and "Primitive.bias_add.BiasAdd.0.forward (inputs equal, output differs)" in ran.out


def test_a_reference_of_the_other_framework(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is paired in the same way: what is compared with the golden run is compared with the truth."""
    ours, theirs = {**of_mindspore(), **gradients_of_mindspore()}, {**of_pytorch(), **GRADIENTS}
    truth = write_dump(tmp_path / "truth", theirs, level="L1")
    ran = compare(tmp_path, ours, theirs, capsys, "--reference", str(truth))
    assert ran.code == 0 and "against the reference: 8 rows: both are within rounding of the truth\n" in ran.out, ran.out
    ran = compare(tmp_path / "off", of_mindspore(off={"weight": 0.5}), of_pytorch(), capsys, "--reference", str(truth))
    assert "1 row: target is farther from the truth than golden" in ran.out


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ("weight", "the weight input.1 (`weight`) of the first call, Primitive.bias_add.BiasAdd.0.forward, differs"),
        ("bias", "the weight input.2 (`bias`) of the first call, Primitive.bias_add.BiasAdd.0.forward, differs"),
        ("result", "Primitive.bias_add.BiasAdd.0.forward (inputs equal, output differs)"),
    ],
)
def test_what_differs_is_found(off: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = compare(tmp_path, of_mindspore(off={off: 0.5}), of_pytorch(), capsys)
    assert ran.code == 1 and "First difference: " in ran.out
    assert said in ran.out.split("First difference: ")[1]


def test_more_dimensions_and_no_bias(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Dense makes two dimensions of three, and three of two; without a bias it is a MatMul."""
    ours = {**of_mindspore(deep=True), **of_mindspore(1, bias=False), **of_mindspore(2, deep=True, bias=False)}
    theirs = {**of_pytorch(deep=True), **of_pytorch(1, bias=False), **of_pytorch(2, deep=True, bias=False)}
    ran = compare(tmp_path, ours, theirs, capsys)
    assert ran.code == 0, ran.out
    assert ran.row("Primitive.reshape.Reshape.0.forward.input.0")["Bench Name"] == "Functional.linear.0.forward.input.0"
    assert ran.row("Primitive.matmul.MatMul.1.forward.output.0")["Bench Name"] == "Functional.linear.1.forward.output.0"
    assert ran.row("Primitive.reshape.Reshape.5.forward.output.0")["Bench Name"] == "Functional.linear.2.forward.output.0"


NOT_JOINED = {
    "the bias is added to something else": (of_mindspore(off={"product": 0.5}), of_pytorch()),
    "the weight is not transposed": (of_mindspore(weight=(3, 5)), of_pytorch()),
    "the weight is not transposed, and PyTorch has such a one elsewhere": (
        of_mindspore(weight=(3, 5), bias=False),
        {
            **of_pytorch(bias=False),
            "Functional.linear.1.forward": api([tensor(3.0, shape=(4, 5)), tensor(4.0, shape=(3, 5))], [tensor(5.0, shape=(4, 3))]),
        },
    ),
    "PyTorch has a bare product, too": (
        {**of_mindspore(), **of_mindspore(1)},
        {
            **of_pytorch(),
            "Torch.matmul.0.forward": api(
                [tensor(X + 1, shape=(4, 3)), tensor(WEIGHT + 1, shape=(3, 5))], [tensor(PRODUCT + 1, shape=(4, 5))]
            ),
            "Torch.add.0.forward": api(
                [tensor(PRODUCT + 1, shape=(4, 5)), tensor(BIAS + 1, shape=(5,))], [tensor(RESULT + 1, shape=(4, 5))]
            ),
        },
    ),
}


@pytest.mark.parametrize("why", NOT_JOINED)
def test_not_joined(why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = NOT_JOINED[why]
    ours = {**ours, "Functional.tanh.0.forward": api([ms(7.0, (4, 5))], [ms(8.0, (4, 5))])}
    theirs = {**theirs, "Torch.tanh.0.forward": api([tensor(7.0, shape=(4, 5))], [tensor(8.0, shape=(4, 5))])}
    ran = compare(tmp_path, ours, theirs, capsys)
    assert "pairs of calls such as" not in ran.out
    assert not any("linear" in row["Bench Name"] and "Primitive" in row["NPU Name"] for row in ran.rows)


def test_names_that_the_user_maps_are_left_to_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("Primitive.bias_add.BiasAdd: Functional.linear\n", encoding="utf-8")
    ran = compare(tmp_path, of_mindspore(), of_pytorch(), capsys, "-am", str(mapping))
    assert "pairs of calls such as" not in ran.out


def square(directory: Path, transposed: bool, md5: str = "") -> Path:
    """A layer of four features in files. `transposed`: MindSpore multiplies by the weight as `linear` does."""
    random = np.random.RandomState(3)
    x, weight, bias = (random.randn(*shape).astype(np.float32) for shape in ((6, 4), (4, 4), (4,)))
    product = x @ (weight.T if transposed else weight)
    arrays = {"x": x, "weight": weight, "bias": bias, "product": product, "result": product + bias, "golden": x @ weight.T + bias}
    records: dict[str, dict[str, Json]] = {}
    for side in ("ms", "pt"):
        records[side] = {name: save_array(directory / side, f"{name}.pt", array) for name, array in arrays.items()}
        for record in records[side].values() if md5 else ():
            del record["data_name"]
            record["md5"] = f"{len(str(record['Max'])):04x}{abs(hash(record['Max'])) % 65536:04x}"
    if md5:
        records["ms"]["weight"]["md5"] = md5
    for record in records["ms"].values():
        record.update(type="mindspore.Tensor", dtype="Float32")
    ours, theirs = records["ms"], records["pt"]
    data = {
        "Primitive.matmul.MatMul.0.forward": api([ours["x"], ours["weight"]], [ours["product"]]),
        "Primitive.bias_add.BiasAdd.0.forward": api([ours["product"], ours["bias"]], [ours["result"]]),
        "Functional.tanh.0.forward": api([ours["x"]], [ours["x"]]),
    }
    task = "statistics" if md5 else "tensor"
    write_dump(directory / "ms", data, framework="mindspore", level="L1", task=task)
    golden = {
        "Functional.linear.0.forward": api([theirs["x"], theirs["weight"], theirs["bias"]], [theirs["golden"]]),
        "Torch.tanh.0.forward": api([theirs["x"]], [theirs["x"]]),
    }
    return write_dump(directory / "pt", golden, level="L1", task=task)


@pytest.mark.parametrize("transposed", [True, False])
def test_the_values_tell_how_a_square_weight_is_multiplied(transposed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = square(tmp_path, transposed)
    ran = run(tmp_path, tmp_path / "ms" / "dump.json", golden, capsys)
    assert ("pairs of calls such as" in ran.out) is transposed
    assert ran.code == (0 if transposed else 1), ran.out
    assert any(row["Result"] == "unmatched" for row in ran.rows) is not transposed


def test_a_square_weight_of_another_checksum_may_be_the_transposed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = square(tmp_path, True, md5="12345678")
    ran = run(tmp_path, tmp_path / "ms" / "dump.json", golden, capsys)
    assert "pairs of calls such as" not in ran.out and any(row["Result"] == "unmatched" for row in ran.rows)
    same = json.loads(golden.read_text())["data"]["Functional.linear.0.forward"]["input_args"][1]["md5"]
    ran = run(tmp_path / "same", tmp_path / "same" / "ms" / "dump.json", square(tmp_path / "same", True, md5=same), capsys)
    assert "pairs of calls such as" in ran.out


def test_normalisations_take_their_arguments_in_another_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"gamma": 2.0, "beta": 3.0, "mean": 4.0, "variance": 5.0}
    of = {name: ms(value, (2,)) for name, value in numbers.items()}
    there = {name: tensor(value, shape=(2,)) for name, value in numbers.items()}
    x, y = (4, 2, 3, 3), (4, 2)
    ours: Json = {
        "Primitive.bn_train.BatchNorm.0.forward": api(
            [ms(1.0, x), of["gamma"], of["beta"], of["mean"], of["variance"]], [ms(6.0, x), *(ms(9.0, (2,)) for _ in range(4))]
        ),
        "Primitive.layer_norm.LayerNorm.0.forward": api(
            [ms(7.0, y), of["gamma"], of["beta"]], [ms(8.0, y), ms(9.0, (4, 1)), ms(9.0, (4, 1))]
        ),
    }
    count = tensor(1.0, dtype="int64", shape=())
    theirs: Json = {
        "Tensor.add_.0.forward": api([count, {"type": "int", "value": 1}], [count]),
        "Functional.batch_norm.0.forward": api(
            [tensor(1.0, shape=x), there["mean"], there["variance"], there["gamma"], there["beta"], {"type": "bool", "value": True}],
            [tensor(6.0, shape=x)],
        ),
        "Functional.layer_norm.0.forward": api(
            [tensor(7.0, shape=y), [{"type": "int", "value": 2}], there["gamma"], there["beta"]], [tensor(8.0, shape=y)]
        ),
    }
    ran = compare(tmp_path, ours, theirs, capsys)
    assert ran.code == 0, ran.out
    assert {row["Result"] for row in ran.rows} == {"pass"} and len(ran.rows) == 6 + 4
    assert ran.row("Primitive.bn_train.BatchNorm.0.forward.input.1")["Bench Name"] == "Functional.batch_norm.0.forward.input.3"
    assert ran.row("Primitive.layer_norm.LayerNorm.0.forward.input.2")["Bench Name"] == "Functional.layer_norm.0.forward.input.3"
    ours["Primitive.bn_train.BatchNorm.0.forward"]["input_args"][2] = ms(3.5, (2,))
    ran = compare(tmp_path / "off", ours, theirs, capsys)
    assert ran.code == 1 and "`bias` of the first call, `bn_train.BatchNorm`" in ran.out


def test_losses_take_their_arguments_in_another_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, mean = {"type": "int", "value": -100}, {"type": "str", "value": "mean"}
    x, labels, weight = (4, 3), (4,), (3,)
    ours: Json = {
        "Functional.cross_entropy.0.forward": api([ms(1.0, x), ms(2.0, labels), ms(3.0, weight), index, mean], [ms(5.0, ())]),
        "Functional.smooth_l1_loss.0.forward": api([ms(1.0, x), ms(2.0, x), {"type": "float", "value": 0.5}, mean], [ms(6.0, ())]),
    }
    theirs: Json = {
        "Functional.cross_entropy.0.forward": api(
            [tensor(1.0, shape=x), tensor(2.0, shape=labels), tensor(3.0, shape=weight)],
            [tensor(5.0, shape=())],
            ignore_index=index,
            reduction={"type": "str", "value": "sum"},
        ),
        "Functional.smooth_l1_loss.0.forward": api(
            [tensor(1.0, shape=x), tensor(2.0, shape=x)], [tensor(6.0, shape=())], reduction=mean, beta={"type": "float", "value": 0.5}
        ),
    }
    ran = compare(tmp_path, ours, theirs, capsys)
    assert [(row["NPU Name"], row["Bench Name"]) for row in ran.rows if row["Result"] != "pass"] == [
        ("Functional.cross_entropy.0.forward.input.4", "Functional.cross_entropy.0.forward.input.reduction")
    ]
    assert len(ran.rows) == 6 + 5 and "`reduction`" in ran.out


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_of_the_same_inputs(turned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing asks for the gradient of the first: MindSpore has null in its place, PyTorch has no place for it."""
    shape = (2, 3)
    first, second = tensor(1.0), tensor(2.0, requires_grad=True)
    ours: Json = {
        "Tensor.__add__.0.forward": api([ms(1.0, shape), ms(2.0, shape)], [ms(3.0, shape)]),
        "Tensor.__add__.0.backward": backward([ms(4.0, shape)], [None, ms(5.0, shape)]),
    }
    theirs: Json = {
        "Tensor.__add__.0.forward": api([first, second], [tensor(3.0, requires_grad=True)]),
        "Tensor.__add__.0.backward": backward([tensor(4.0)], [tensor(5.0)]),
    }
    ran = compare(tmp_path, ours, theirs, capsys, turned=turned)
    assert ran.code == 0, ran.out
    names = {row["NPU Name"]: row["Bench Name"] for row in ran.rows}
    wanted = ("Tensor.__add__.0.backward.output.1", "Tensor.__add__.0.backward.output.0")
    assert names[wanted[turned]] == wanted[not turned]
    theirs["Tensor.__add__.0.backward"] = backward([tensor(4.0)], [tensor(5.5)])
    assert compare(tmp_path / "off", ours, theirs, capsys, turned=turned).code == 1
