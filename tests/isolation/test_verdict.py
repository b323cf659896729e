from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from msprobe.comparison.stacks import Frame
from msprobe.isolation.differences import Difference
from msprobe.isolation.evidence import CallFacts, Evidence
from msprobe.isolation.suspects import Suspect, Verdict, operation, over_ranks
from msprobe.isolation.verdict import judge

WRONG = (Difference("output.0", "max abs diff 1, relative 0.1"),)
ARRIVED = (Difference("input.0", "max abs diff 1, relative 0.1"),)


def call(name: str, parent: str | None = None, **facts: Any) -> CallFacts:
    return CallFacts(f"Module.{name}.forward.0", f"Module.{parent}.forward.0" if parent else None, **facts)


def verdict(*calls: CallFacts, **evidence: Any) -> Verdict:
    return judge(Evidence("rank0", calls, **evidence))


def shown(found: Verdict) -> list[tuple[str, str]]:
    return [(suspect.kind, operation(suspect.call).removeprefix("Module.")) for suspect in found.suspects]


def only(found: Verdict) -> Suspect:
    (suspect,) = found.suspects
    return suspect


def test_nothing_wrong() -> None:
    assert verdict(call("block.Block"), call("block.fc.Linear", "block.Block")) == Verdict()


def test_the_innermost_is_to_blame_and_what_is_around_it_is_explained() -> None:
    found = only(
        verdict(
            call("block.Block", outputs=WRONG),
            call("block.mlp.Mlp", "block.Block", outputs=WRONG),
            call("block.mlp.fc.Linear", "block.mlp.Mlp", outputs=WRONG),
            call("next.Linear", arrived=ARRIVED),
        )
    )
    assert (found.kind, found.call, found.size) == ("module", "Module.block.mlp.fc.Linear.forward.0", 0)
    assert found.explained == ["Module.block.Block.forward.0", "Module.block.mlp.Mlp.forward.0"]
    assert found.reached == ["Module.next.Linear.forward.0"]


def test_smallest_first_then_earliest_and_slight_ones_behind() -> None:
    slight = (Difference("output.0", "", slight=True),)
    found = verdict(
        call("big.Block", outputs=WRONG),
        call("big.fc.Linear", "big.Block"),
        call("a.Linear", outputs=slight),
        call("b.Linear", outputs=WRONG),
        call("c.Linear", outputs=WRONG),
        missing=("Module.gone.Linear.forward.0", "Module.gone.Linear.forward.1"),
    )
    assert shown(found) == [
        ("module", "b.Linear"),
        ("module", "c.Linear"),
        ("own code", "big.Block"),
        ("module", "a.Linear"),
        ("missing", "gone.Linear"),
    ]
    assert found.suspects[-1].again == ["Module.gone.Linear.forward.1"]


def test_code_between_two_calls() -> None:
    found = only(
        verdict(
            call("block.Block", outputs=WRONG),
            call("block.norm.Norm", "block.Block"),
            call("block.norm.inner.Inner", "block.norm.Norm"),
            call("block.fc.Linear", "block.Block", arrived=ARRIVED),
            call("block.last.Linear", "block.Block", arrived=ARRIVED),
        )
    )
    assert (found.kind, found.owner, found.after) == ("between", "Module.block.Block.forward.0", "Module.block.norm.Norm.forward.0")
    assert found.explained == ["Module.block.Block.forward.0"] and found.reached == ["Module.block.last.Linear.forward.0"]


def test_code_before_the_first_call() -> None:
    found = only(verdict(call("block.Block"), call("block.fc.Linear", "block.Block", arrived=ARRIVED)))
    assert (found.kind, found.after) == ("between", None)
    assert shown(verdict(call("fc.Linear", arrived=ARRIVED), call("next.Linear"))) == [("data", "fc.Linear")]
    assert shown(verdict(call("fc.Linear"), call("next.Linear", arrived=ARRIVED))) == [("between", "next.Linear")]


def test_what_the_golden_files_say_of_where_a_value_came_from() -> None:
    sources = {"input.0": ("Module.right.Linear.forward.0",)}
    calls = (call("wrong.Linear", outputs=WRONG), call("right.Linear"), call("next.Linear", arrived=ARRIVED, sources=sources))
    assert shown(verdict(*calls)) == [("module", "wrong.Linear"), ("between", "next.Linear")]
    assert shown(verdict(calls[0], calls[1], call("next.Linear", arrived=ARRIVED))) == [("module", "wrong.Linear")]
    spoils = call("spoils.Linear", mutated=("input.0",))
    assert shown(verdict(spoils, *calls)) == [("module", "wrong.Linear"), ("between", "next.Linear")]


def test_parameters_explain_what_they_touch() -> None:
    weight = (Difference("parameters.weight", ""),)
    found = verdict(call("fc.Linear", parameters=weight, outputs=WRONG), call("next.Linear", arrived=ARRIVED))
    assert shown(found) == [("parameter", "fc.Linear")] and found.suspects[0].reached == ["Module.next.Linear.forward.0"]


FLAG = (Difference("input.flag", "True, golden False"),)
LESS = (Difference("input.cache", "the golden run has it, this one does not", missing=True, alone=True),)


@pytest.mark.parametrize("arguments", [FLAG, LESS])
def test_other_arguments_may_be_why_a_module_is_wrong_and_excuse_nothing_else(arguments: tuple[Difference, ...]) -> None:
    found = only(verdict(call("block.Block", arguments=arguments, outputs=WRONG), call("block.fc.Linear", "block.Block")))
    assert (found.kind, found.arguments, found.handed_down) == ("argument", arguments, None)
    found = only(
        verdict(
            call("block.Block", arguments=arguments, outputs=WRONG),
            call("block.q.Linear", "block.Block"),
            call("block.fc.Linear", "block.Block", arrived=ARRIVED),
        )
    )
    assert (found.kind, found.after, found.arguments) == ("between", "Module.block.q.Linear.forward.0", arguments)
    found = only(
        verdict(
            call("block.Block", arguments=arguments, outputs=WRONG),
            call("block.fc.Linear", "block.Block", arguments=arguments, outputs=WRONG),
        )
    )
    assert (found.call, found.handed_down) == ("Module.block.fc.Linear.forward.0", "Module.block.Block.forward.0")
    assert shown(verdict(call("wrong.Linear", outputs=WRONG), call("b.Block", arguments=arguments), call("b.fc.Linear", "b.Block"))) == [
        ("module", "wrong.Linear")
    ]


def test_numbers_that_follow_from_what_is_wrong_are_no_other_arguments() -> None:
    found = verdict(call("wrong.Linear", outputs=WRONG), call("next.Other", arguments=FLAG))
    assert shown(found) == [("module", "wrong.Linear")] and not found.remarks
    assert found.suspects[0].reached == ["Module.next.Other.forward.0"]
    assert len(verdict(call("wrong.Linear", outputs=WRONG), call("next.Other", arguments=LESS)).remarks) == 1


def test_other_arguments_of_which_nothing_comes_are_a_remark() -> None:
    layers = [call(f"{name}.Layer", arguments=LESS) for name in ("a", "b", "c")]
    found = verdict(*layers, call("a.fc.Linear", "a.Layer", arguments=LESS), call("d.Other", arguments=FLAG))
    assert not found.suspects
    assert found.remarks == (
        "a (Layer) and 2 more are called with other arguments, which explain nothing that is wrong: "
        "cache (the golden run has it, this one does not)",
        "d (Other) is called with other arguments, which explain nothing that is wrong: flag (True, golden False)",
    )
    wrong = verdict(*layers[:2], call("c.Layer", arguments=LESS, outputs=WRONG), call("c.fc.Linear", "c.Layer"))
    assert shown(wrong) == [("own code", "c.Layer")] and not only(wrong).arguments and len(wrong.remarks) == 1


def test_calls_without_golden_inputs_are_told() -> None:
    missed = tuple(f"Module.{name}.SiLU.forward.0" for name in ("a", "b"))
    assert verdict(call("a.SiLU"), not_replaced=missed).remarks == (
        "no golden input was given to 2 module calls, the first: a (SiLU); judged on what arrived there",
    )
    assert verdict(call("a.SiLU"), not_replaced=missed[:1]).remarks[0].startswith("no golden input was given to 1 module call: a (SiLU);")


def test_a_missing_step() -> None:
    calls = (call("a.A"), call("b.B"))
    more = tuple(f"Module.{name}.forward.{number}" for number in (1, 2) for name in ("a.A", "b.B"))
    assert [(found.kind, found.times) for found in verdict(*calls, extra=more).suspects] == [("extra", 3)]
    assert only(verdict(*calls, missing=more)).times == 3
    assert only(verdict(*calls, extra=more[:3])).times == 0
    assert only(verdict(*calls, extra=("Module.c.C.forward.0",))).times == 0


def test_a_changed_copy_makes_what_follows_undecided() -> None:
    found = verdict(
        call("block.Block", outputs=WRONG),
        call("block.relu.ReLU", "block.Block", mutated=("input.0",)),
        call("block.fc.Linear", "block.Block", arrived=ARRIVED),
    )
    assert not found.suspects
    assert [(item.call, item.arrived, item.mutators) for item in found.undecided] == [
        ("Module.block.fc.Linear.forward.0", True, ("Module.block.relu.ReLU.forward.0",)),
        ("Module.block.Block.forward.0", False, ("Module.block.relu.ReLU.forward.0",)),
    ]


def test_inputs_that_could_not_be_given() -> None:
    given = (Difference("input.0", "max abs diff 1"),)
    found = verdict(call("fc.Linear", given=given, outputs=WRONG))
    assert not found.suspects and found.undecided[0].not_given == given


def test_one_module_in_several_calls_is_one_suspect() -> None:
    again = CallFacts("Module.fc.Linear.forward.1", outputs=WRONG)
    found = only(verdict(call("fc.Linear", outputs=WRONG), again))
    assert found.again == ["Module.fc.Linear.forward.1"]


def test_what_was_broken_off_is_no_verdict() -> None:
    gone = (Difference("output.0", "", missing=True),)
    evidence = Evidence("rank0", (call("fc.Linear", outputs=gone),), missing=("Module.next.Linear.forward.0",))
    assert judge(evidence, whole=False) == Verdict()
    assert shown(judge(evidence)) == [("module", "fc.Linear"), ("missing", "next.Linear")]


def test_ranks_are_joined() -> None:
    one = verdict(call("fc.Linear", outputs=WRONG, unknown=("output.1: no file",)))
    two = verdict(call("fc.Linear", outputs=WRONG), call("next.Linear", outputs=WRONG))
    found = over_ranks([("rank0", one), ("rank1", two)])
    assert [(suspect.call.split(".")[1], suspect.ranks) for suspect in found.suspects] == [("fc", ["rank0", "rank1"]), ("next", ["rank1"])]
    assert found.unknown == ("rank0: Module.fc.Linear.forward.0: output.1: no file",)


LINE = Frame("model.py", 3, "forward", "")


def test_the_same_lines_of_code_are_one_suspect() -> None:
    calls: list[CallFacts] = []
    for name in ("a", "b"):
        calls += [
            call(f"{name}.Block"),
            call(f"{name}.q.Linear", f"{name}.Block", frame=LINE),
            call(f"{name}.o.Linear", f"{name}.Block", arrived=ARRIVED, frame=replace(LINE, line=5)),
        ]
    found = only(verdict(*calls))
    assert (found.call, found.again) == ("Module.a.o.Linear.forward.0", ["Module.b.o.Linear.forward.0"])
    other = replace(calls[-1], frame=replace(LINE, line=6))
    assert len(verdict(*calls[:-1], other).suspects) == 2


def test_a_class_that_is_wrong_everywhere_is_one_suspect() -> None:
    norms = [call(f"{name}.Norm", outputs=WRONG) for name in ("a", "b", "c")]
    assert only(verdict(*norms)).again == ["Module.b.Norm.forward.0", "Module.c.Norm.forward.0"]
    assert len(verdict(*norms, call("d.Norm")).suspects) == 3
    assert len(verdict(*norms[:2]).suspects) == 2


NONE = (Difference("input.mask", "None, golden a tensor", may_not_matter=True, alone=True),)


def test_none_for_a_tensor_is_to_blame_only_where_something_is_wrong() -> None:
    assert not verdict(call("a.A", arguments=NONE), call("a.fc.Linear", "a.A")).suspects
    found = only(verdict(call("a.A", arguments=NONE), call("a.fc.Linear", "a.A", arrived=ARRIVED)))
    assert (found.kind, found.arguments) == ("between", NONE)
    assert shown(verdict(call("a.A", arguments=NONE, outputs=WRONG))) == [("argument", "a.A")]


def test_none_for_a_tensor_is_not_to_blame_where_another_of_the_class_is_right_with_it() -> None:
    found = verdict(
        call("a.A", arguments=NONE),
        call("a.fc.Linear", "a.A"),
        call("b.A", arguments=NONE),
        call("b.fc.Linear", "b.A", arrived=ARRIVED),
    )
    assert shown(found) == [("between", "b.fc.Linear")] and not only(found).arguments


def test_none_for_a_tensor_that_is_handed_down_is_told_where_it_comes_in() -> None:
    found = verdict(
        call("net.Net", arguments=NONE),
        call("net.a.A", "net.Net", arguments=NONE),
        call("net.a.fc.Linear", "net.a.A", arrived=ARRIVED),
    )
    assert shown(found) == [("between", "net.a.fc.Linear")]
    assert (only(found).arguments, only(found).handed_down) == (NONE, "Module.net.Net.forward.0")


def test_parameters_that_an_update_within_the_step_made_wrong_come_last() -> None:
    weight = (Difference("parameters.weight", ""),)
    again = CallFacts("Module.fc.Linear.forward.1", parameters=weight)
    found = verdict(call("fc.Linear"), call("big.Big", outputs=WRONG), call("big.a.A", "big.Big"), again)
    assert shown(found) == [("own code", "big.Big"), ("parameter", "fc.Linear")]
    assert found.suspects[1].updated and not found.suspects[0].updated
    assert not only(verdict(call("fc.Linear", parameters=weight), replace(again, outputs=()))).updated


def test_what_is_slight_at_one_call_and_clear_at_another_is_clear() -> None:
    slight = CallFacts("Module.fc.Linear.forward.0", outputs=(Difference("output.0", "", slight=True),))
    clear = CallFacts("Module.fc.Linear.forward.1", outputs=WRONG)
    assert not only(verdict(slight, clear)).slight
    assert only(verdict(slight, replace(slight, name=clear.name))).slight


def test_code_between_has_the_buffers_of_the_module_around_it() -> None:
    found = only(
        verdict(
            call("a.A"), call("a.fc.Linear", "a.A", arrived=ARRIVED), buffers={"Module.a.A": ("ids",)}, random=frozenset(["Module.a.A"])
        )
    )
    assert (found.kind, found.buffers, found.random) == ("between", ("ids",), True)
