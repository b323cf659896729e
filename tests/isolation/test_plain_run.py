from __future__ import annotations

from isolation.test_verdict import ARRIVED, WRONG, call
from msprobe.isolation.evidence import Evidence
from msprobe.isolation.plain_run import settle
from msprobe.isolation.suspects import Undecided, Verdict

SPOILS = "Module.relu.ReLU.forward.0"


def undecided(name: str, arrived: bool) -> Verdict:
    return Verdict(undecided=(Undecided(f"Module.{name}.forward.0", arrived, ARRIVED if arrived else WRONG, (SPOILS,)),))


def test_a_value_that_is_right_in_a_plain_run_is_cleared() -> None:
    plain = Evidence("proc1", (call("relu.ReLU"), call("fc.Linear")))
    found, notes = settle(undecided("fc.Linear", True), [plain])
    assert found == Verdict() and "differed only because of the replacement" in notes[0]


def test_a_value_that_is_wrong_behind_right_calls_is_confirmed() -> None:
    plain = Evidence("proc1", (call("relu.ReLU"), call("fc.Linear", given=ARRIVED)))
    found, notes = settle(undecided("fc.Linear", True), [plain])
    assert not notes and not found.undecided
    assert [(suspect.kind, suspect.after) for suspect in found.suspects] == [("between", SPOILS)]
    plain = Evidence("proc1", (call("block.Block", outputs=WRONG), call("relu.ReLU", "block.Block")))
    found, _ = settle(undecided("block.Block", False), [plain])
    assert [suspect.kind for suspect in found.suspects] == ["own code"]


def test_behind_wrong_calls_it_stays_undecided() -> None:
    plain = Evidence("proc1", (call("relu.ReLU", outputs=WRONG), call("fc.Linear", given=ARRIVED)))
    found, notes = settle(undecided("fc.Linear", True), [plain])
    assert not notes and not found.suspects and len(found.undecided) == 1
    plain = Evidence("proc1", (call("block.Block", given=ARRIVED, outputs=WRONG),))
    assert len(settle(undecided("block.Block", False), [plain])[0].undecided) == 1
