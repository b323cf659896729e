"""Which fault of a backward pass is named, from two real dumps of a few records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msprobe.comparison.names import parse
from msprobe.isolation.gradients import code_or_call, first_wrong


def record(name: str, *wrong: str, target: bool = True, golden: bool = True) -> Any:
    """A measured call whose values of these keys differ."""
    keys = ("weight",) if "parameters_grad" in name else ("input.0", "output.0")
    rows = [SimpleNamespace(pair=SimpleNamespace(target=SimpleNamespace(role=key.split(".")[0]), golden=None), key=key) for key in keys]
    for row in rows:
        row.wrong = row.key in wrong
    pair = SimpleNamespace(target=target or None, golden=golden or None)
    return SimpleNamespace(name=f"Module.{name}", parts=parse(f"Module.{name}"), rows=rows, pair=pair, matched=target and golden)


def said(*calls: Any) -> str:
    place = code_or_call({"Module.act.Act": "net.py:3"}, {"Module.act.Act": "called at x", "Module.fc.Linear": "called at net.py:9"})
    return first_wrong(calls, lambda row: row.key if row.wrong else "", place)


def test_nothing_wrong() -> None:
    assert said(record("fc.Linear.parameters_grad.0"), record("fc.Linear.backward.0")) == ""
    assert said() == ""


def test_the_loss() -> None:
    text = said(record("fc.Linear.parameters_grad.0", "weight"), record("fc.Linear.backward.0", "input.0", "output.0"))
    assert text.startswith("the code after fc (Linear) (called at net.py:9) is wrong, that of the loss: the gradient that comes from it")
    assert text.endswith(": input.0")


def test_a_module_and_what_follows_from_it() -> None:
    text = said(
        record("fc.Linear.backward.0"),
        record("a.act.Act.backward.0", "output.0"),
        record("a.A.backward.0", "output.0"),
        record("b.B.backward.0", "input.0", "output.0"),
        record("b.B.parameters_grad.0", "weight"),
    )
    assert text.startswith("the backward pass of a.act (Act) is wrong, ") and text.endswith(": output.0")


def test_code_between_two_modules() -> None:
    text = said(record("fc.Linear.backward.0"), record("act.Act.backward.0", "input.0", "output.0"))
    assert "what comes to act (Act) (net.py:3) is wrong and all before that is right" in text
    assert "by the code between it and fc (Linear)" in text


def test_parameters_are_asked_last() -> None:
    shared = record("fc.Linear.parameters_grad.0", "weight")
    assert said(shared, record("fc.Linear.backward.0"), record("act.Act.backward.0", "output.0")).startswith(
        "the backward pass of act (Act)"
    )
    assert said(shared, record("fc.Linear.backward.0")).startswith("those of the parameters of fc (Linear)")


def test_gradients_that_one_run_alone_has() -> None:
    gone = record("act.Act.backward.0", target=False)
    assert said(record("fc.Linear.backward.0"), gone, record("b.B.backward.0", "output.0")).startswith("none comes to act (Act) (net.py:3)")
    assert said(gone).startswith("there are none, the golden run has a backward pass")
    assert said(record("fc.Linear.backward.0"), record("act.Act.backward.0", golden=False)).startswith("there are some for act (Act)")
    assert said(record("act.Act.backward.0", golden=False)).startswith("there are some for act (Act)")
