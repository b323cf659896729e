"""What lies around the first difference, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.one_pair import examine
from msprobe.comparison.propagation import Propagation, sentences, trace

from .dumps import Json, api, frame, save_array, tensor, write_dump
from .net import BLOCK, FC, Net


def traced(tmp_path: Path, target: Json, golden: Json) -> Propagation:
    pair = DumpPair(write_dump(tmp_path / "t", target), write_dump(tmp_path / "g", golden), None, "")
    found = trace(examine(pair))
    assert found is not None
    return found


def chain(sizes: list[float]) -> Json:
    """Calls whose outputs lie at 1 + size."""
    values = [1.0, *(1.0 + size for size in sizes)]
    return {f"Torch.op.{n}.forward": api([tensor(values[n])], [tensor(values[n + 1])]) for n in range(len(sizes))}


def test_parents_and_consumers(tmp_path: Path) -> None:
    pair = DumpPair(Net(fc_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), None, "")
    found = trace(examine(pair))
    assert found is not None
    assert found.call == "Functional.linear.0.forward"
    assert found.parents == (FC, BLOCK)
    assert found.consumers == ("Functional.relu.0.forward", "Tensor.__mul__.0.forward")  # relu leaves the value as it is
    assert found.consumer_count == 2
    # blocks.0.fc lies in blocks.0, and the module around the call stands in the headline: nothing to tell.
    assert next(sentences(found)) == "used by Functional.relu.0.forward, Tensor.__mul__.0.forward"
    assert not any(text.startswith("inside") for text in sentences(found))


@pytest.mark.parametrize("odd", [[1], {"a": 1}])
def test_statistics_that_are_no_numbers(odd: object, tmp_path: Path) -> None:
    data = [{"Torch.op.0.forward": api([tensor()], [tensor(2.0, Max=value)])} for value in (odd, 3.0)]
    for number, (ours, theirs) in enumerate((data, data[::-1])):
        assert traced(tmp_path / str(number), ours, theirs).call == "Torch.op.0.forward"


def test_modules_that_the_names_do_not_tell_are_told(tmp_path: Path) -> None:
    around: dict[str, str | None] = {
        "Torch.op.0.forward": "Module.model.layers.1.Loss.forward.0",
        "Module.model.layers.1.Loss.forward.0": "Module.model.layers.10.Block.forward.0",
        "Module.model.layers.10.Block.forward.0": "Module.model.Model.forward.0",
        "Module.model.Model.forward.0": "Module.trainer.Trainer.forward.0",
    }
    for side, size in (("t", 0.5), ("g", 0.0)):
        write_dump(tmp_path / side, chain([size]), construct=around)
    found = trace(examine(DumpPair(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", None, "")))
    assert found is not None
    assert next(sentences(found)) == "inside model.layers.1, in model.layers.10, in trainer"


def test_who_holds_a_value_does_not_use_it(tmp_path: Path) -> None:
    """Of a module and the call in it the call is named; the modules around the call that gave the value are not."""
    outer, user = "Module.outer.Outer.forward.0", "Module.user.User.forward.0"
    construct: dict[str, str | None] = {"Torch.a.0.forward": outer, outer: None, "Torch.b.0.forward": user, user: None}
    for side, value in (("t", 5.0), ("g", 6.0)):
        data = {
            "Torch.a.0.forward": api([tensor(value)], [tensor(value)]),
            outer: api([tensor(value)], [tensor(value)]),
            "Torch.b.0.forward": api([tensor(value)], [tensor(1.0)]),
            user: api([tensor(value)], [tensor(1.0)]),
        }
        write_dump(tmp_path / side, data, construct=construct)
    found = trace(examine(DumpPair(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", None, "")))
    assert found is not None
    assert (found.consumers, found.consumer_count) == (("Torch.b.0.forward",), 1)


def test_consumers_by_checksum(tmp_path: Path) -> None:
    """Statistics are equal and checksums are not: a transposed tensor is another value."""

    def dump(produced: str) -> Json:
        return {
            "Torch.a.0.forward": api([tensor(1.0, md5="00000001")], [tensor(2.0, md5=produced)]),
            "Torch.b.0.forward": api([tensor(2.0, md5="0000000f")], [tensor(3.0, md5="00000003")]),
            "Torch.c.0.forward": api([tensor(2.0, md5=produced)], [tensor(4.0, md5="00000004")]),
        }

    assert traced(tmp_path, dump("0000000a"), dump("0000000b")).consumers == ("Torch.c.0.forward",)


@pytest.mark.parametrize("value", [{"Max": 0.0, "Min": 0.0, "Mean": 0.0, "Norm": 0.0}, {"Max": 2.0, "Min": 2.0}], ids=["zeros", "constant"])
def test_values_that_many_calls_have_by_chance_have_no_consumers(value: Json, tmp_path: Path) -> None:
    target = {"Torch.a.0.forward": api([tensor()], [tensor(2.0, **value)]), "Torch.b.0.forward": api([tensor(2.0, **value)], [tensor()])}
    golden = {"Torch.a.0.forward": api([tensor()], [tensor(7.0)]), "Torch.b.0.forward": api([tensor(7.0)], [tensor()])}
    assert traced(tmp_path, target, golden).consumers == ()


def test_many_consumers_are_counted(tmp_path: Path) -> None:
    def dump(value: float) -> Json:
        uses = {f"Torch.use.{n}.forward": api([tensor(value)], [tensor(float(n))]) for n in range(9)}
        return {"Torch.a.0.forward": api([tensor()], [tensor(value)]), **uses}

    found = traced(tmp_path, dump(5.0), dump(6.0))
    assert (len(found.consumers), found.consumer_count) == (5, 9)
    assert any(text.endswith("Torch.use.2.forward and 6 more") for text in sentences(found))


def test_it_grows(tmp_path: Path) -> None:
    found = traced(tmp_path, chain([0.001, 0.002, 0.02, 0.5, 0.1]), chain([0.0] * 5)).growth
    assert found.start == pytest.approx(0.001, rel=0.6)
    assert found.tenfold is not None and found.tenfold.call == "Torch.op.2.forward"
    assert found.largest is not None and found.largest.call == "Torch.op.3.forward"
    assert found.last is not None and found.last.call == "Torch.op.4.forward"
    assert found.gone_after == ""


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([0.001, 0.02, 0.5], "it grows: relative size 0.0008 here, 0.29 in Torch.op.2.forward"),
        (
            [0.001, 0.5, 0.02],
            "it grows: relative size 0.0008 here, 0.29 in Torch.op.1.forward, 0.016 in Torch.op.2.forward, the last of the forward pass",
        ),
        (
            [0.3, 0.4, 0.02],
            "it does not grow: relative size 0.19 here, 0.016 in Torch.op.2.forward, the last of the forward pass",
        ),
        ([0.3, 0.4], None),
        ([0.3], None),
        ([0.3, 0.0], "it dies out in Torch.op.1.forward, which takes in what differs and gives what agrees"),
    ],
)
def test_growth_in_words(tmp_path: Path, sizes: list[float], words: str | None) -> None:
    told = [text for text in sentences(traced(tmp_path, chain(sizes), chain([0.0] * len(sizes)))) if not text.startswith("used by")]
    assert told == ([] if words is None else [words])


def test_it_dies_out(tmp_path: Path) -> None:
    found = traced(tmp_path, chain([0.01, 0.02, 0.0, 0.0, 0.0]), chain([0.0] * 5))
    assert found.growth.gone_after == "Torch.op.1.forward"
    # The third call takes in what differs and gives what agrees.
    assert found.growth.agreeing == 3
    text = list(sentences(found))[-1]
    assert text == "it dies out in Torch.op.2.forward, which takes in what differs and gives what agrees"


def test_later_calls_that_have_nothing_to_do_with_it(tmp_path: Path) -> None:
    other = {f"Torch.other.{n}.forward": api([tensor(5.0)], [tensor(6.0)]) for n in range(2)}
    found = traced(tmp_path, {**chain([0.01, 0.02]), **other}, {**chain([0.0, 0.0]), **other})
    assert (found.growth.gone_after, found.growth.absorbed_by) == ("Torch.op.1.forward", "")
    assert list(sentences(found))[-1] == "no difference is recorded after Torch.op.1.forward (2 later calls agree)"


def test_nan_on_one_side(tmp_path: Path) -> None:
    target = chain([0.01, 0.02, 0.02])
    target["Torch.op.1.forward"]["output"][0].update(Max=float("nan"), Min=float("nan"), Mean=float("nan"), Norm=float("nan"))
    assert "NaN or Inf on one side from Torch.op.1.forward on" in list(sentences(traced(tmp_path, target, chain([0.0] * 3))))[-1]


@pytest.mark.parametrize("given", [0.0, float("-inf")])
def test_nan_made_by_a_call_that_one_side_alone_has(tmp_path: Path, given: float) -> None:
    """Where minus infinity was given as an argument it is a mask, and made nothing."""
    nan = dict.fromkeys(("Max", "Min", "Mean", "Norm"), float("nan"))
    changed = chain([0.01, 0.02, 0.02])
    changed["Torch.op.1.forward"]["output"][0].update(nan)
    log = api([tensor(), {"type": "float", "value": given}], [tensor(Min=float("-inf"), Mean=float("-inf"), Norm=float("inf"))])
    target = {"Torch.log.0.forward": log, **changed}
    born = "Torch.op.1.forward" if given else "Torch.log.0.forward"
    assert f"NaN or Inf on one side from {born} on" in list(sentences(traced(tmp_path, target, chain([0.0] * 3))))


def test_checksums_have_no_size(tmp_path: Path) -> None:
    def dump(*sums: str) -> Json:
        return {f"Torch.op.{n}.forward": api([tensor(md5="00000001")], [tensor(md5=f"{sums[n]:0>8}")]) for n in range(len(sums))}

    found = traced(tmp_path, dump("2", "3", "4"), dump("a", "b", "4")).growth
    assert (found.start, found.largest, found.gone_after, found.agreeing) == (None, None, "Torch.op.1.forward", 1)


def test_tensors(tmp_path: Path) -> None:
    for side, gain in (("t", 1.01), ("g", 1.0)):
        directory = tmp_path / side
        data = {}
        for n, factor in enumerate((gain, gain**20)):
            record = save_array(directory, f"Torch.op.{n}.forward.output.0.pt", [1.0 * factor, 2.0 * factor])
            data[f"Torch.op.{n}.forward"] = api([save_array(directory, f"Torch.op.{n}.forward.input.0.pt", [3.0])], [record])
        write_dump(directory, data, task="tensor")
    found = trace(examine(DumpPair(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", None, "")))
    assert found is not None and found.growth.start == pytest.approx(0.01 / 1.01)
    assert found.growth.tenfold is not None and found.growth.tenfold.call == "Torch.op.1.forward"


def test_nothing_to_follow(tmp_path: Path) -> None:
    pair = DumpPair(Net().write(tmp_path / "t"), Net().write(tmp_path / "g"), None, "")
    assert trace(examine(pair)) is None


def test_a_circle_in_construct_json_ends(tmp_path: Path) -> None:
    circle: dict[str, str | None] = {"Torch.op.0.forward": "Module.a.A.forward.0", "Module.a.A.forward.0": "Torch.op.0.forward"}
    for side, size in (("t", 0.5), ("g", 0.0)):
        write_dump(tmp_path / side, chain([size]), construct=circle)
    found = trace(examine(DumpPair(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", None, "")))
    assert found is not None and found.parents == ("Module.a.A.forward.0",)


@pytest.mark.parametrize("name", ["Torch._fused_adamw_.0.forward", "Tensor.add_.0.forward", "Tensor.__iadd__.0.forward"])
def test_what_goes_into_a_call_that_acts_on_its_inputs_has_not_died_out(name: str, tmp_path: Path) -> None:
    def dump(size: float) -> Json:
        return {**chain([size]), name: api([tensor(1.0 + size)], [tensor(1.0)]), "Torch.last.0.forward": api([tensor(5.0)], [tensor(6.0)])}

    found = traced(tmp_path, dump(0.3), dump(0.0))
    assert found.growth.absorbed_by == ""
    assert list(sentences(found))[-1] == "no difference is recorded after it (2 later calls agree)"


@pytest.mark.parametrize("level", ["mix", "L1"])
def test_what_goes_into_an_optimizer_has_not_died_out(level: str, tmp_path: Path) -> None:
    """At L1 its stack tells whose call it is."""
    names = ("Torch.op.0.forward", "Torch.lerp.0.forward")
    for side, value in (("t", 1.5), ("g", 1.0)):
        data = {names[0]: api([tensor(2.0)], [tensor(value)]), names[1]: api([tensor(value)], [tensor(3.0)])}
        construct = {names[0]: None, names[1]: "optimizer", "optimizer": None} if level == "mix" else {}
        optim = [frame(f"/venv/lib/python3.11/site-packages/torch/optim/{file}.py", 1, "step", "") for file in ("adam", "optimizer")]
        write_dump(tmp_path / side, data, level=level, construct=construct, stack={names[1]: optim} if level == "L1" else {})
    found = trace(examine(DumpPair(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", None, "")))
    assert found is not None and found.growth.absorbed_by == ""


def test_a_call_that_gives_no_tensor_absorbs_nothing(tmp_path: Path) -> None:
    def dump(size: float) -> Json:
        number = {"type": "int", "value": 2}
        return {**chain([size]), "Tensor.size.0.forward": api([tensor(1.0 + size)], [number])}

    assert traced(tmp_path, dump(0.3), dump(0.0)).growth.absorbed_by == ""


def test_nothing_has_died_out_when_a_later_step_differs(tmp_path: Path) -> None:
    found = traced(tmp_path, chain([0.3, 0.0]), chain([0.0, 0.0]))
    assert any(text.startswith("it dies out in") for text in sentences(found))
    assert [text for text in sentences(found, differs_later=True) if not text.startswith("used by")] == []


def test_a_number_given_as_argument_is_not_compared_with_a_loss(tmp_path: Path) -> None:
    def dump(eps: float, loss: float) -> Json:
        norm = api([tensor(2.0), {"type": "float", "value": eps}], [tensor(1.0 + eps)])
        return {"Functional.layer_norm.0.forward": norm, "Functional.cross_entropy.0.forward": api([tensor(1.0 + eps)], [tensor(loss)])}

    found = traced(tmp_path, dump(0.5, 1.0003), dump(0.00001, 1.0))
    assert found.growth.start is None
    assert not any("grow" in text for text in sentences(found))
