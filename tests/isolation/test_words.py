from __future__ import annotations

from dataclasses import replace

import pytest

from msprobe.comparison.block import Line
from msprobe.comparison.stacks import Frame
from msprobe.isolation.differences import Difference
from msprobe.isolation.suspects import Suspect, Undecided, Verdict, short
from msprobe.isolation.words import details, hint, in_one_sentence, nothing_wrong, place, sentence, undecided, wrapped

DIFFERENCE = Difference("output.0", "max abs diff 1, relative 0.1")
CALL = "Module.fc.Linear.forward.0"
SUSPECT = Suspect("module", CALL, (DIFFERENCE,), 0, 0)
FRAME = Frame("model.py", 9, "forward", "return self.fc(x)")


def test_short_names() -> None:
    assert short(CALL) == "fc (Linear)"
    assert short("Module.a.b.Linear.forward.2") == "a.b (Linear, call 2)"
    assert short("Torch.relu.0.forward") == "Torch.relu.0.forward"


def test_every_kind_has_its_sentence_and_no_two_are_alike() -> None:
    kinds = ("module", "own code", "between", "data", "parameter", "argument", "missing", "extra")
    found = {sentence(replace(SUSPECT, kind=kind, owner="Module.Net.forward.0")) for kind in kinds}
    assert len(found) == len(kinds) and all("fc (Linear)" in text for text in found)
    assert sentence(replace(SUSPECT, kind="missing", again=[CALL])).startswith("the golden run makes 2 module calls that")
    assert sentence(replace(SUSPECT, again=[CALL])).startswith("fc (Linear) is wrong; the same at 1 more call: ")
    assert sentence(replace(SUSPECT, kind="between")).startswith("the code before fc (Linear), the first call, is wrong")
    assert "that the golden run does not" in sentence(replace(SUSPECT, kind="extra"))
    between = replace(SUSPECT, kind="between", call="Module.a.o.Linear.forward.0", owner="Module.a.A.forward.0")
    assert sentence(between).startswith("the code before o (Linear), the first call in a (A), is wrong: output.0 of o (Linear) arrives")
    between.after = "Module.a.v.Linear.forward.0"
    assert sentence(between).startswith("the code between v (Linear) and o (Linear) in a (A) is wrong: all that ran before is right")


def test_nothing_wrong_says_what_was_not_looked_at() -> None:
    assert nothing_wrong({}) == "nothing is wrong: every module is right on golden inputs, and so is the last one of a plain run"
    one = {"Module.bn.BatchNorm2d": ("running_mean", "running_var")}
    assert nothing_wrong(one).startswith("nothing is wrong in what was looked at: every module is right")
    assert nothing_wrong(one).endswith("were not looked at: those of bn (BatchNorm2d) (running_mean and running_var)")
    more = {**one, "Module.a.A": ("ids",), "Module.b.B": ("ids",)}
    assert nothing_wrong(more).endswith("(running_mean and running_var) and of 2 more modules")
    assert nothing_wrong({"Module.Net": ("scale",)}).endswith("those of Net (scale)")


def test_places() -> None:
    assert place(SUSPECT) == ""
    assert place(replace(SUSPECT, frame=FRAME)) == "called at model.py:9 in forward: return self.fc(x)"
    assert place(replace(SUSPECT, frame=FRAME, code="net.py:3")) == "net.py:3 in its forward"
    between = replace(SUSPECT, kind="between", frame=FRAME)
    assert place(between) == f"before {FRAME}"
    assert place(replace(between, frame_before=replace(FRAME, line=4))) == "model.py:4 to 9 in forward"
    own = replace(SUSPECT, kind="own code", size=1, frame_before=FRAME)
    assert place(own) == "model.py in forward; no wrong value shows before line 9"
    own.code, own.code_end = "model.py:3", 12
    assert place(own) == "model.py:3 to 12 in its forward; no wrong value shows before line 9"
    own.frame_before = replace(FRAME, path="other.py")
    assert place(own) == "model.py:3 to 12 in its forward; no wrong value shows before other.py:9"


def test_the_first_is_told_first() -> None:
    assert in_one_sentence(Verdict()) == ""
    one = replace(SUSPECT, code="/home/you/net.py:3")
    assert in_one_sentence(Verdict((one,))) == "fc (Linear) is wrong (net.py:3)"
    assert in_one_sentence(Verdict((one, one, one))).endswith("; and 2 more things, listed below")


@pytest.mark.parametrize(
    ("suspect", "text"),
    [
        (replace(SUSPECT, call="Module.drop.Dropout.forward.0"), "may draw random numbers (dropout)"),
        (replace(SUSPECT, call="Module.fc.Linear.forward.2"), "its 2 earlier calls in this step are right"),
        (replace(SUSPECT, buffers=("running_mean",)), "its buffers (running_mean) are in no dump"),
        (SUSPECT, ""),
        (
            replace(SUSPECT, kind="between", owner="Module.a.A.forward.0", buffers=("inv_freq",)),
            "a (A)'s buffers (inv_freq) are in no dump",
        ),
        (replace(SUSPECT, kind="between", owner="Module.a.A.forward.0", random=True), "a (A)'s code may draw random numbers"),
        (replace(SUSPECT, kind="between", call="Module.fc.Linear.forward.2"), ""),
        (replace(SUSPECT, kind="extra", times=3), "the script makes every call 3 times as often: is a step() missing there"),
        (replace(SUSPECT, kind="missing", times=2), "the golden run makes every call 2 times as often"),
    ],
)
def test_hints(suspect: Suspect, text: str) -> None:
    assert text in hint(suspect) and bool(text) is bool(hint(suspect))


def test_what_cannot_be_told_says_why() -> None:
    item = Undecided(CALL, True, (DIFFERENCE,), ("Module.relu.ReLU.forward.0",))
    assert "relu (ReLU) changed an input in place" in undecided(item)
    assert "could not be given (input.1)" in undecided(replace(item, mutators=(), not_given=(Difference("input.1", ""),)))


def test_long_lists_are_cut_and_say_so() -> None:
    many = tuple(replace(SUSPECT, call=f"Module.{number}.Linear.forward.0") for number in range(30))
    lines = [line.text for line in details(Verdict(many, unknown=tuple(map(str, range(9)))))]
    assert "... and 10 more, see isolate.json" in lines and "... and 3 more values not compared" in lines
    slight = [line.text for line in details(Verdict((replace(SUSPECT, differences=(replace(DIFFERENCE, slight=True),)),)))]
    assert any("narrower arithmetic may give as much" in line for line in slight) and any(line.endswith("(slight)") for line in slight)


def test_lines_of_two_functions_are_no_range() -> None:
    suspect = replace(SUSPECT, kind="between", frame=Frame("a.py", 278, "bias", "x"), frame_before=Frame("a.py", 328, "forward", "y"))
    assert place(suspect) == "after a.py:328 in forward, before a.py:278 in bias: x"
    assert place(replace(suspect, frame=Frame("a.py", 330, "forward", "x"))) == "a.py:328 to 330 in forward"
    assert place(replace(suspect, frame=Frame("a.py", 320, "forward", "x"))) == "after a.py:328 in forward, before a.py:320 in forward: x"


def test_a_slight_difference_is_called_so_at_once() -> None:
    assert "narrower arithmetic may give as much" in sentence(replace(SUSPECT, differences=(Difference("output.0", "", slight=True),)))
    assert "narrower" not in sentence(SUSPECT)


def test_lines_are_short_and_the_place_stands_first() -> None:
    suspect = replace(
        SUSPECT,
        kind="between",
        owner="Module.a.A.forward.0",
        frame=FRAME,
        arguments=(Difference("input.flag", "True, golden False"),),
        handed_down="Module.net.Net.forward.0",
        again=[f"Module.blocks.{number}.attention.output_projection.Linear.forward.0" for number in range(5)],
    )
    lines = [line.text for line in details(Verdict((suspect,), remarks=("word " * 40,)))]
    assert lines[0] == f"   before {FRAME}" and max(map(len, lines)) <= 120
    text = " ".join(" ".join(lines).split())
    assert "a (A) is called with other arguments, which may be why: flag (True, golden False), handed down from net (Net)" in text
    assert lines[-2].startswith("remark: word") and lines[-1].startswith("  word")
    assert [line.text for line in wrapped(Line("x" * 200))] == ["x" * 200] and [line.text for line in wrapped(Line(""))] == [""]
