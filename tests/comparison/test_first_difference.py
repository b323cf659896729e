from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, headline
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.sentence import lead, sentence

from .dumps import api, backward, frame, module, tensor, write_dump
from .net import BLOCK, FC, HEAD, Net


def report_of(target: Net, tmp_path: Path, golden: Net | None = None) -> PairReport:
    outcome = compare(target.write(tmp_path / "target"), (golden or Net()).write(tmp_path / "golden"), tmp_path / "out")
    return outcome.reports[0]


def first_of(target: Net, tmp_path: Path) -> FirstDifference:
    first = report_of(target, tmp_path).findings.first
    assert first is not None
    return first


def results(report: PairReport) -> dict[str, str]:
    from .dumps import read_csv

    return {row["NPU Name"]: row["Result"] for row in read_csv(report.csv)}


def test_equal_runs_have_no_difference_and_pass(tmp_path: Path) -> None:
    report = report_of(Net(), tmp_path)
    assert report.findings.first is None
    assert report.findings.exact
    assert set(results(report).values()) == {"pass"}


@pytest.mark.parametrize(
    ("fault", "kind", "call", "module_name"),
    [
        (Net(fc_gain=1.5), "output", "Functional.linear.0.forward", FC),
        (Net(relu_gain=1.01), "output", "Functional.relu.0.forward", BLOCK),
        (Net(head_gain=2.0), "output", "Functional.linear.1.forward", HEAD),
        (Net(loss_gain=1.1), "output", "Functional.mse_loss.0.forward", None),
        (Net(fc_backward_gain=1.5), "output", "Functional.linear.0.backward", "Module.blocks.0.fc.Linear.backward.0"),
        (Net(gradient_gain=1.5), "gradient", "Module.blocks.0.fc.Linear.parameters_grad.0", None),
        (Net(fc_weight=2.5), "parameter", FC, BLOCK),
        (Net(data=1.5), "first input", "Functional.linear.0.forward", FC),
        (Net(between=1.5), "own code", "Functional.relu.0.forward", BLOCK),
        (Net(scale=3.5), "argument", "Tensor.__mul__.0.forward", BLOCK),
    ],
)
def test_the_call_at_fault_is_found(fault: Net, kind: str, call: str, module_name: str | None, tmp_path: Path) -> None:
    first = first_of(fault, tmp_path)
    assert (first.kind, first.call.name, first.module) == (kind, call, module_name)


@pytest.mark.parametrize(
    "fault", [Net(fc_gain=1.0004), Net(relu_gain=1.0004), Net(head_gain=2.0), Net(fc_backward_gain=1.0004), Net(gradient_gain=1.0004)]
)
def test_the_row_that_starts_it_is_an_error_and_what_follows_is_a_warning(fault: Net, tmp_path: Path) -> None:
    report = report_of(fault, tmp_path)
    first = report.findings.first
    assert first is not None
    words = results(report)
    started = [words[row.pair.target.name] for row in first.rows if row.pair.target is not None]
    assert set(started) == {"error"}
    names = list(Net().entries()[0])
    before = names[: names.index(first.call.name)]
    assert {words[row] for row in words if any(row.startswith(name + ".") for name in before)} <= {"pass"}


def test_what_only_propagates_is_a_warning(tmp_path: Path) -> None:
    words = results(report_of(Net(relu_gain=1.2), tmp_path))
    assert words["Functional.relu.0.forward.output.0"] == "error"
    assert words["Tensor.__mul__.0.forward.input.0"] == "warning"
    assert words["Functional.linear.1.forward.output.0"] == "warning"
    assert words["Functional.linear.0.backward.output.0"] == "warning"
    assert words["Module.blocks.0.fc.Linear.parameters_grad.0.weight"] == "warning"
    assert words["Functional.linear.0.forward.input.0"] == "pass"


def test_a_backward_output_that_follows_from_its_forward_is_a_warning(tmp_path: Path) -> None:
    """Equal gradients came in, but the forward pass had kept other values."""
    data = {
        "Torch.exp.0.forward": api([tensor(1.0)], [tensor(3.0)]),
        "Torch.exp.0.backward": backward([tensor(1.0)], [tensor(3.0)]),
    }
    changed = {
        "Torch.exp.0.forward": api([tensor(1.0)], [tensor(4.0)]),
        "Torch.exp.0.backward": backward([tensor(1.0)], [tensor(4.0)]),
    }
    outcome = compare(write_dump(tmp_path / "t", changed), write_dump(tmp_path / "g", data), tmp_path / "o")
    words = results(outcome.reports[0])
    assert words["Torch.exp.0.forward.output.0"] == "error"
    assert words["Torch.exp.0.backward.output.0"] == "warning"


def test_the_parameter_is_named(tmp_path: Path) -> None:
    report = report_of(Net(head_weight=5.1), tmp_path)
    assert report.findings.first is not None
    assert headline(report.findings.first) == f"the parameter weight of {HEAD} differs (inputs equal)"
    assert results(report)[f"{HEAD}.parameters.weight"] == "error"


def test_a_module_whose_own_code_changed_at_module_level_only(tmp_path: Path) -> None:
    """L0: two children agree, and what the parent gives out does not."""

    def data(out: float) -> dict[str, object]:
        return {
            "Module.b.a.Linear.forward.0": module([tensor(1.0)], [tensor(2.0)]),
            "Module.b.Block.forward.0": module([tensor(1.0)], [tensor(out)]),
        }

    construct = {"Module.b.a.Linear.forward.0": "Module.b.Block.forward.0", "Module.b.Block.forward.0": None}
    target = write_dump(tmp_path / "t", data(7.0), construct=construct)
    golden = write_dump(tmp_path / "g", data(6.0), construct=construct)
    first = compare(target, golden, tmp_path / "o").reports[0].findings.first
    assert first is not None
    assert (first.kind, first.call.name, first.last_inner) == ("output", "Module.b.Block.forward.0", "Module.b.a.Linear.forward.0")
    assert "the calls inside it agree: its own code changed" in headline(first)


@pytest.mark.parametrize(("given", "words"), [(7.0, "equal but for the one it overwrites"), (6.0, "equal")])
def test_an_input_that_is_overwritten_is_not_said_to_be_equal_where_it_differs(given: float, words: str, tmp_path: Path) -> None:
    sides = [{"Tensor.copy_.0.forward": api([tensor(into), tensor(1.0)], [tensor(out)])} for into, out in ((given, 7.0), (6.0, 6.0))]
    target, golden = (write_dump(tmp_path / name, data) for name, data in zip("tg", sides, strict=True))
    report = compare(target, golden, tmp_path / "o").reports[0]
    assert report.findings.first is not None
    assert headline(report.findings.first) == f"Tensor.copy_.0.forward (inputs {words}, output differs)"
    assert sentence(report) == f"Inputs {words}, `copy_` differs (forward)"


def test_a_module_entry_that_stands_before_its_inner_calls_does_not_hide_them(tmp_path: Path) -> None:
    """Backward: without a gradient for its input, a module's entry is complete before the calls inside it."""

    def data(gradient: float) -> dict[str, object]:
        return {
            "Module.emb.Embedding.backward.0": backward([tensor(1.0)], [tensor(gradient)]),
            "Functional.embedding.0.backward": backward([tensor(1.0)], [tensor(gradient)]),
        }

    construct = {"Functional.embedding.0.backward": "Module.emb.Embedding.backward.0"}
    target = write_dump(tmp_path / "t", data(7.0), construct=construct)
    golden = write_dump(tmp_path / "g", data(6.0), construct=construct)
    first = compare(target, golden, tmp_path / "o").reports[0].findings.first
    assert first is not None
    assert first.call.name == "Functional.embedding.0.backward"


def test_gradients_of_parameters_are_looked_at_after_the_backward_pass_that_made_them(tmp_path: Path) -> None:
    """The entry stands before the module's backward entry, whose incoming gradient already differs."""

    def data(gradient: float) -> dict[str, object]:
        return {
            "Module.a.Linear.forward.0": module([tensor(1.0)], [tensor(2.0)]),
            "Module.a.Linear.parameters_grad.0": {"weight": [tensor(gradient)]},
            "Module.a.Linear.backward.0": backward([tensor(gradient)], [tensor(gradient)]),
        }

    outcome = compare(write_dump(tmp_path / "t", data(3.0)), write_dump(tmp_path / "g", data(2.0)), tmp_path / "o")
    first = outcome.reports[0].findings.first
    assert first is not None
    assert (first.kind, first.call.name) == ("input", "Module.a.Linear.backward.0")


def test_input_of_a_later_call_without_any_module_around_it(tmp_path: Path) -> None:
    def data(label: float) -> dict[str, object]:
        return {
            "Torch.add.0.forward": api([tensor(1.0)], [tensor(2.0)]),
            "Functional.cross_entropy.0.forward": api([tensor(2.0), tensor(label)], [tensor(label)]),
        }

    outcome = compare(write_dump(tmp_path / "t", data(3.0)), write_dump(tmp_path / "g", data(4.0)), tmp_path / "o")
    first = outcome.reports[0].findings.first
    assert first is not None
    assert first.kind == "input"
    assert "input.1 (`target`) of Functional.cross_entropy.0.forward differs; no recorded call before it gave a difference" in headline(
        first
    )


def test_a_changed_argument_is_named_as_such(tmp_path: Path) -> None:
    def data(p: float) -> dict[str, object]:
        return {
            "Torch.add.0.forward": api([tensor(1.0)], [tensor(2.0)]),
            "Functional.dropout.0.forward": api([tensor(2.0)], [tensor(p)], p={"type": "float", "value": p}),
        }

    outcome = compare(write_dump(tmp_path / "t", data(0.1)), write_dump(tmp_path / "g", data(0.2)), tmp_path / "o")
    first = outcome.reports[0].findings.first
    assert first is not None
    assert first.kind == "argument"
    assert headline(first).startswith("argument input.p of Functional.dropout.0.forward differs")


def test_without_any_bit_identical_value_a_tolerance_decides_and_is_mentioned(tmp_path: Path) -> None:
    noise = 1 + 1e-7
    target = Net(data=noise, fc_weight=2 * noise, scale=3.0, head_weight=5 * noise, relu_gain=1.3)
    data, construct = target.entries()
    del data["Functional.mse_loss.0.backward"]  # its incoming gradient is 1 in every run
    golden, _ = Net().entries()
    del golden["Functional.mse_loss.0.backward"]
    outcome = compare(
        write_dump(tmp_path / "t", data, construct=construct), write_dump(tmp_path / "g", golden, construct=construct), tmp_path / "o"
    )
    findings = outcome.reports[0].findings
    assert not findings.exact
    assert findings.first is not None
    assert findings.first.call.name == "Functional.relu.0.forward"
    text = "\n".join(line.text for line in describe(outcome))
    assert "inputs equal up to rounding" in text
    assert "equal up to rounding, not to the last bit" in text


def test_statistics_of_two_tools_are_compared_up_to_rounding(tmp_path: Path) -> None:
    """Only our dumps have a meta.json. The other tool adds up in float32: its Norm is a float32 number, the next to 4.5 here."""
    data = {
        "Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0, Norm=4.5)]),
        "Torch.b.0.forward": api([tensor(2.0)], [tensor(3.0)]),
    }
    theirs = {
        "Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0, Norm=4.500000476837158)]),
        "Torch.b.0.forward": api([tensor(2.0)], [tensor(5.0)]),
    }
    target, golden = write_dump(tmp_path / "t", data), write_dump(tmp_path / "g", theirs)
    assert compare(target, golden, tmp_path / "o").reports[0].findings.exact
    (tmp_path / "t" / "meta.json").write_text("{}")
    report = compare(target, golden, tmp_path / "o").reports[0]
    assert not report.findings.exact
    assert report.findings.first is not None and report.findings.first.call.name == "Torch.b.0.forward"
    assert any("different tools" in note for note in report.notes)


def test_rounding_is_reported_with_the_first_difference_beyond_it(tmp_path: Path) -> None:
    report = report_of(Net(fc_gain=1 + 1e-7, head_gain=1.5), tmp_path)
    findings = report.findings
    assert findings.first is not None and findings.beyond_rounding is not None
    assert findings.first.call.name == "Functional.linear.0.forward" and findings.first.within_rounding
    assert findings.beyond_rounding.call.name == "Functional.linear.1.forward"
    words = results(report)
    assert words["Functional.linear.0.forward.output.0"] == "pass"
    assert words["Functional.linear.1.forward.output.0"] == "error"


def test_a_call_without_partner_before_the_difference_is_mentioned(tmp_path: Path) -> None:
    golden = Net(dropped=("Functional.relu.0.forward",))
    outcome = compare(Net(head_gain=2.0).write(tmp_path / "t"), golden.write(tmp_path / "g"), tmp_path / "o")
    findings = outcome.reports[0].findings
    assert findings.first is not None and findings.unmatched is not None
    assert findings.first.call.name == "Functional.linear.1.forward"
    assert findings.unmatched.name == "Functional.relu.0.forward" and findings.unmatched_is_earlier
    text = "\n".join(line.text for line in describe(outcome))
    # The block that it stands in gives the same on both sides: it explains nothing.
    assert findings.unmatched_is_harmless
    assert "First difference: Functional.linear.1.forward in Module.head.Linear.forward.0 (inputs equal" in text
    assert "First call without partner (earlier than that): Functional.relu.0.forward, in the target only, at /home/me/model.py:102" in text


def test_a_call_without_partner_leads_where_its_module_gives_something_else(tmp_path: Path) -> None:
    golden = Net(dropped=("Functional.relu.0.forward",))
    outcome = compare(Net(between=2.0).write(tmp_path / "t"), golden.write(tmp_path / "g"), tmp_path / "o")
    text = "\n".join(line.text for line in describe(outcome))
    assert f"First difference: the call Functional.relu.0.forward is in the target only, in {BLOCK}\n  at /home/me/model.py:102" in text
    assert "First value that differs: Module.blocks.0.Block.forward.0, before it calls Tensor.__mul__.0.forward" in text


def test_a_module_without_partner_is_named_as_a_whole(tmp_path: Path) -> None:
    def side(layers: int) -> Path:
        data: dict[str, object] = {}
        parents: dict[str, str | None] = {}
        for n in range(layers):
            data[f"Functional.linear.{n}.forward"] = api([tensor(n + 1.0), tensor(9.0)], [tensor(n + 2.0)])
            data[f"Module.layers.{n}.Layer.forward.0"] = module([tensor(n + 1.0)], [tensor(n + 2.0)])
            parents |= {f"Functional.linear.{n}.forward": f"Module.layers.{n}.Layer.forward.0", f"Module.layers.{n}.Layer.forward.0": None}
        data["Functional.relu.0.forward"] = api([tensor(layers + 1.0)], [tensor(layers + 3.0)])
        return write_dump(tmp_path / str(layers), data, construct={**parents, "Functional.relu.0.forward": None})

    outcome = compare(side(3), side(2), tmp_path / "o")
    assert lead(outcome) == "`layers.2` is in the target only (forward)"


def test_other_calls_inside_a_module_are_not_called_equal(tmp_path: Path) -> None:
    """Two implementations of an activation: no call inside agrees, since none has a partner."""

    def side(name: str, value: float) -> Path:
        inner, outer = f"Functional.{name}.0.forward", "Module.act.Act.forward.0"
        data = {inner: api([tensor(1.0)], [tensor(value)]), outer: module([tensor(1.0)], [tensor(value)])}
        return write_dump(tmp_path / name, data, construct={inner: outer, outer: None})

    findings = compare(side("gelu", 2.0), side("silu", 3.0), tmp_path / "o").reports[0].findings
    assert findings.first is not None and findings.first.other_calls
    assert headline(findings.first).endswith(
        "(inputs equal, output differs; the likely cause is Functional.gelu.0.forward, which the target calls in place of"
        " Functional.silu.0.forward)"
    )


def test_other_calls_of_which_none_is_known_to_lead_to_the_output(tmp_path: Path) -> None:
    def side(name: str, value: float) -> Path:
        inner, common, outer = f"Functional.{name}.0.forward", "Torch.exp.0.forward", "Module.act.Act.forward.0"
        data = {
            inner: api([tensor(1.0)], [tensor(value + 0.5)]),
            common: api([tensor(1.0)], [tensor(2.0)]),
            outer: module([tensor(1.0)], [tensor(value)]),
        }
        return write_dump(tmp_path / name, data, construct={inner: outer, common: outer, outer: None})

    findings = compare(side("gelu", 2.0), side("silu", 3.0), tmp_path / "o").reports[0].findings
    assert findings.first is not None and findings.first.other_calls and findings.first.cause is None
    assert headline(findings.first).endswith("(inputs equal, output differs; the calls inside it are not the same ones on both sides)")


def test_a_rounding_before_it_does_not_hide_what_differs(tmp_path: Path) -> None:
    """The sentence is about what matters; the first difference to the last bit is shown below it."""

    def side(name: str, first: float, second: float) -> Path:
        data = {
            "Torch.a.0.forward": api([tensor(1.0)], [tensor(3.0 * (1 + first))]),
            "Torch.b.0.forward": api([tensor(1.0)], [tensor(5.0 * (1 + second))]),
        }
        return write_dump(tmp_path / name, data)

    outcome = compare(side("t", 1e-7, 1.0), side("g", 0.0, 0.0), tmp_path / "o")
    findings = outcome.reports[0].findings
    assert findings.first is not None and findings.first.call.name == "Torch.a.0.forward"
    assert lead(outcome) == "Inputs equal, `b` differs (forward)"


def test_weights_of_the_first_call_are_not_called_data(tmp_path: Path) -> None:
    def side(name: str, weight: float) -> Path:
        return write_dump(tmp_path / name, {"Functional.linear.0.forward": api([tensor(1.0), tensor(weight)], [tensor(weight)])})

    outcome = compare(side("t", 2.0), side("g", 3.0), tmp_path / "o")
    assert lead(outcome) == "Weight `weight` of the first call, `linear`, differs (forward)"


def test_shapes_that_differ_are_not_told_as_infinities(tmp_path: Path) -> None:
    def side(name: str, rows: int) -> Path:
        return write_dump(tmp_path / name, {"Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0, shape=(rows, 3))])})

    text = "\n".join(line.text for line in describe(compare(side("t", 2), side("g", 4), tmp_path / "o")))
    assert "First difference: Torch.a.0.forward" in text and "Inf" not in text


def test_a_call_that_was_added_shifts_the_numbers_of_later_ones_and_is_found(tmp_path: Path) -> None:
    """Names count calls: from the added one on, equal names stand for different calls."""

    def data(added: bool) -> tuple[dict[str, object], dict[str, str | None]]:
        calls: list[tuple[str, dict[str, object]]] = [("Module.a.A.forward.0", api([tensor(1.0)], [tensor(2.0)]))]
        if added:
            calls.append(("Module.a.A.forward.0", api([tensor(2.0), {"type": "float", "value": 0.5}], [tensor(2.5)])))
        calls.append(("Module.b.B.forward.0", api([tensor(2.5 if added else 2.0), tensor(4.0)], [tensor(3.0)])))
        names = [f"Tensor.__add__.{number}.forward" for number in range(len(calls))]
        entries = {name: entry for name, (_, entry) in zip(names, calls, strict=True)}
        return entries, {name: module for name, (module, _) in zip(names, calls, strict=True)}

    (target, target_parents), (golden, golden_parents) = data(True), data(False)
    frames = {"Tensor.__add__.2.forward": [frame("/home/me/b.py", 5, "forward", "y = h + x")]}
    outcome = compare(
        write_dump(tmp_path / "t", target, construct=target_parents, stack=frames),
        write_dump(tmp_path / "g", golden, construct=golden_parents),
        tmp_path / "o",
    )
    findings = outcome.reports[0].findings
    assert findings.unmatched is not None and findings.unmatched.name == "Tensor.__add__.1.forward" and findings.unmatched_is_earlier
    assert findings.first is not None and findings.first.call.name == "Tensor.__add__.2.forward"
    assert findings.first.call.pair.golden is not None and findings.first.call.pair.golden.name == "Tensor.__add__.1.forward"


def test_calls_of_two_modules_are_no_pair_unless_the_user_wants_it(tmp_path: Path) -> None:
    names = ["Torch.relu.0.forward", "Torch.relu.1.forward"]
    data = [{names[0]: api([tensor()], [tensor()]), names[1]: api([tensor(shape=shape)], [tensor()])} for shape in ((2, 3), (3, 2))]
    parents = [{names[0]: "Module.a.A.forward.0", names[1]: f"Module.{second}.forward.0"} for second in ("b.B", "c.C")]
    paths = [write_dump(tmp_path / str(i), data[i], construct=parents[i]) for i in (0, 1)]
    plain = compare(*paths, tmp_path / "o").reports[0]
    assert (plain.matched, plain.counts["unmatched"]) == (2, 4)
    first = compare(*paths, tmp_path / "o", Options(fuzzy=True)).reports[0].findings.first
    assert first is not None and first.kind == "sequence"
    assert headline(first) == (
        "the sequence of calls: Torch.relu.1.forward is in Module.b.B.forward.0, in the golden run in Module.c.C.forward.0;"
        " a call was added or removed before it"
    )


def test_where_a_call_without_partner_is_made_is_told(tmp_path: Path) -> None:
    outcome = compare(Net().write(tmp_path / "t"), Net(dropped=("Functional.relu.0",)).write(tmp_path / "g"), tmp_path / "o")
    text = "\n".join(line.text for line in describe(outcome))
    assert "Functional.relu.0.forward, in the target only, at /home/me/model.py:102 in forward: y = self.part2(x)" in text


def test_an_argument_that_one_side_lacks_is_told(tmp_path: Path) -> None:
    target = {"Torch.a.0.forward": api([tensor(1.0), tensor(5.0)], [tensor(3.0)])}
    golden = {"Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0)])}
    outcome = compare(write_dump(tmp_path / "t", target), write_dump(tmp_path / "g", golden), tmp_path / "o")
    assert "  input.1: in the target only" in [line.text for line in describe(outcome)]


def test_uninitialised_memory_is_no_difference(tmp_path: Path) -> None:
    def data(garbage: float, filled: float = 0.0) -> dict[str, object]:
        return {
            "Torch.empty.0.forward": api([], [tensor(garbage)]),
            "Tensor.fill_.0.forward": api([tensor(garbage), {"type": "int", "value": 0}], [tensor(filled)]),
            "Tensor.__setitem__.0.forward": api([tensor(garbage)], [tensor(garbage)]),
        }

    outcome = compare(write_dump(tmp_path / "t", data(1e30)), write_dump(tmp_path / "g", data(5.0)), tmp_path / "o")
    assert outcome.reports[0].findings.first is None
    words = results(outcome.reports[0])
    assert words["Torch.empty.0.forward.output.0"] == "not compared"
    assert words["Tensor.fill_.0.forward.input.0"] == "warning"
    assert words["Tensor.fill_.0.forward.output.0"] == "pass"
    assert words["Tensor.__setitem__.0.forward.output.0"] == "warning"
    changed = compare(write_dump(tmp_path / "t", data(1e30, 1.0)), write_dump(tmp_path / "g", data(5.0)), tmp_path / "o")
    first = changed.reports[0].findings.first
    assert first is not None and first.call.name == "Tensor.fill_.0.forward"


def test_the_words_of_the_terminal(tmp_path: Path) -> None:
    outcome = compare(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    lines = [line.text for line in describe(outcome)]
    at = lines.index("First difference: Functional.relu.0.forward in Module.blocks.0.Block.forward.0 (inputs equal, output differs)")
    assert lines[at + 1] == "  at /home/me/model.py:102 in forward: y = self.part2(x)"
    assert lines[at + 2].startswith(
        "  through /venv/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py:77 in forward"
    )
    assert lines[at + 3] == "  output.0 (torch.float32 [2, 3])"
    assert lines[at + 4].split() == ["Max", "Min", "Mean", "Norm"]
    assert lines[at + 5].split() == ["target", "4.0", "2.0", "3.0", "6.5"]
    assert lines[at + 6].split() == ["golden", "3.0", "1.0", "2.0", "4.5"]
    assert any(line.startswith("result: ") for line in lines)
    assert lines[0] == "Inputs equal, `relu` in `blocks.0` differs (forward): model.py:102"
    assert lines[1] == "41 rows matched, 0 unmatched: 12 pass, 27 warning, 2 error, 0 not compared"


def test_parameters_of_the_module_around_are_mentioned(tmp_path: Path) -> None:
    first = first_of(Net(fc_gain=1.5), tmp_path)
    assert headline(first) == f"Functional.linear.0.forward in {FC} (inputs equal, parameters equal, output differs)"


@pytest.mark.parametrize(("given", "expected"), [(1.0, ("parameter", "Module.experts.Experts.forward.0")), (1.5, None)])
def test_a_parameter_that_an_unrecorded_call_uses_is_found_in_the_module_that_owns_it(
    tmp_path: Path, given: float, expected: tuple[str, str] | None
) -> None:
    """`act` gets what a custom operation made of `experts.w`; where the input of `experts` differs as well, that came first."""
    act, experts = "Module.experts.act.ReLU.forward.0", "Module.experts.Experts.forward.0"
    construct = {"Functional.relu.0.forward": act, act: experts, experts: None, "Torch.first.0.forward": None}

    def data(inside: float, weight: float, into: float) -> dict[str, object]:
        return {
            "Torch.first.0.forward": api([tensor(0.5)], [tensor(0.25)]),
            "Functional.relu.0.forward": api([tensor(inside)], [tensor(inside)]),
            act: module([tensor(inside)], [tensor(inside)]),
            experts: module([tensor(into)], [tensor(inside)], w=tensor(weight)),
        }

    target = write_dump(tmp_path / "t", data(3.0, 7.5, given), construct=construct)
    outcome = compare(target, write_dump(tmp_path / "g", data(2.0, 7.0, 1.0), construct=construct), tmp_path / "o")
    first = outcome.reports[0].findings.first
    assert first is not None
    if expected is None:
        assert first.kind == "input"
    else:
        assert (first.kind, first.call.name) == expected
        assert headline(first) == "the parameter w of Module.experts.Experts.forward.0 differs (inputs equal)"


def test_a_circle_in_construct_json_is_survived(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0)])}
    changed = {"Torch.a.0.forward": api([tensor(3.0)], [tensor(2.0)])}
    circle = {"Torch.a.0.forward": "Module.x.X.forward.0", "Module.x.X.forward.0": "Torch.a.0.forward"}
    outcome = compare(write_dump(tmp_path / "t", changed, construct=circle), write_dump(tmp_path / "g", data), tmp_path / "o")
    first = outcome.reports[0].findings.first
    assert first is not None and first.kind == "first input"
