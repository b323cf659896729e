from __future__ import annotations

import pytest

from msprobe.recording import unmatched
from msprobe.recording.selection import Selection
from msprobe.recording.unmatched import NamesSeen

NAMES = ["Functional.linear.0.forward", "Functional.linear.3.forward", "Torch.relu.0.forward", "Module.a.fc1.Linear.forward.0"]


def _told(selection: Selection, names: list[str] | None = None, ended: bool = False) -> list[str]:
    for name in NAMES if names is None else names:
        selection.enters(name)
    return selection.unmatched(ended)


@pytest.mark.parametrize(
    ("wanted", "advice"),
    [
        ("rellu", 'the nearest names that ran: "Torch.relu" (number 0)'),
        ("RELU", 'the nearest names that ran: "Torch.relu" (number 0)'),
        ("Functional.liner.0.forward", 'the nearest names that ran: "Functional.linear" (numbers 0 to 3)'),
        ("Functional.linear.7.forward", "Functional.linear ran with numbers 0 to 3 only"),
        ("Torch.relu.1.forward", "Torch.relu ran with number 0 only"),
        ("Module.a.fc2.Linear.forward.0", 'the nearest names that ran: "Module.a.fc1.Linear" (number 0)'),
        ("zzzzzz", 'no name that ran is like it, and a run with task "structure" writes all of them into its dump.json'),
    ],
)
def test_what_a_name_may_have_been_meant_to_be(wanted: str, advice: str) -> None:
    (text,) = _told(Selection(names=(wanted,)))
    assert text.startswith(f'"list": "{wanted}" has matched nothing so far; {advice}')


def test_names_that_matched_are_not_told() -> None:
    assert _told(Selection(names=("linear.3", "relu", "Module.a")), ended=True) == []
    assert _told(Selection()) == []


@pytest.mark.parametrize(
    ("level", "wanted", "advice"),
    [
        ("L1", "Module.a.fc1", 'level "L1" records no modules: use level "L0" or "mix"'),
        ("L0", "Functional.gelu", 'level "L0" records no APIs: use level "L1" or "mix"'),
        ("L0", "__main__.gelu.0.forward", 'level "L0" records no APIs: use level "L1" or "mix"'),
    ],
)
def test_names_that_the_level_excludes(level: str, wanted: str, advice: str) -> None:
    (text,) = _told(Selection(names=(wanted,), level=level), ["Torch.relu.0.forward"])
    assert text.endswith(f"; {advice}")


def test_each_name_is_told_once_in_a_process() -> None:
    seen = NamesSeen()
    assert len(_told(Selection(names=("gelu", "relu"), seen=seen))) == 1
    assert _told(Selection(names=("gelu", "relu"), seen=seen), ended=True) == []


def test_a_name_that_matched_in_an_earlier_step_is_not_told() -> None:
    seen = NamesSeen()
    assert _told(Selection(names=("relu",), seen=seen), ended=True) == []
    assert _told(Selection(names=("relu",), seen=seen), ["Torch.add.0.forward"], ended=True) == []


def test_what_may_come_with_the_backward_pass_waits_for_the_end() -> None:
    wanted = ("Torch.relu.0.backward", "Module.a.fc1.Linear.parameters_grad.0")
    selection = Selection(names=wanted)
    assert _told(selection) == []
    assert [text.partition("; ")[2] for text in selection.unmatched(ended=True)] == [
        "Torch.relu ran, but no gradients came for it",
        "Module.a.fc1.Linear ran, but no gradients came for it",
    ]


def test_nothing_ran_at_all() -> None:
    selection = Selection(names=("relu",))
    assert selection.unmatched() == []
    assert selection.unmatched(ended=True) == ['"list": "relu" has matched nothing so far; no call came by at all']


def test_both_ends_of_a_scope() -> None:
    selection = Selection(scope=("Torch.relu.1.forward", "Torch.gelu.0.forward"))
    assert _told(selection) == ['"scope": "Torch.relu.1.forward" has matched nothing so far; Torch.relu ran with number 0 only']
    (text,) = selection.unmatched(ended=True)
    assert text.startswith('"scope": "Torch.gelu.0.forward" has matched nothing so far; the nearest names that ran: ')


def test_a_scope_that_is_still_open_at_the_end_is_told_in_every_step() -> None:
    seen = NamesSeen()
    opened = '"scope": "Torch.gelu.0.forward" did not come: everything from "Torch.relu.0.forward" to the end of the step was recorded'
    for expected in (f'{opened}; the nearest names that ran: "Torch.relu" (number 0)', opened):
        selection = Selection(scope=("Torch.relu.0.forward", "Torch.gelu.0.forward"), seen=seen)
        assert _told(selection) == []
        assert [text.replace(', "Functional.linear" (numbers 0 to 3)', "") for text in selection.unmatched(ended=True)] == [expected]


def test_a_scope_whose_ends_are_in_the_wrong_order() -> None:
    selection = Selection(scope=("Torch.relu.0.forward", "Functional.linear.0.forward"))
    assert _told(selection, ended=True) == [
        '"scope": "Functional.linear.0.forward" came before the first name: '
        'everything from "Torch.relu.0.forward" to the end of the step was recorded'
    ]


def test_names_of_tensor_list_are_told_too() -> None:
    selection = Selection(tensor_names=("relu", "gelu"))
    assert selection.everything and selection.saves_tensors("Torch.relu.0.forward") and not selection.saves_tensors("Torch.selu.0.forward")
    (text,) = selection.unmatched()
    assert text.startswith('"tensor_list": "gelu" has matched nothing so far; the nearest names that ran: "Torch.selu" (number 0)')


def test_what_risk_level_leaves_out_is_told_as_such() -> None:
    selection = Selection(tensor_names=("Tensor.permute.1.forward", "cat"), risk_level="FOCUS")
    assert not selection.wants_api("Tensor", "permute") and not selection.wants_api("Torch", "cat")
    assert [text.partition("; ")[2] for text in selection.unmatched(ended=True)] == [
        f'"{api}" ran, but risk_level leaves it out: set "risk_level" to "ALL"' for api in ("Tensor.permute", "Torch.cat")
    ]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmatched, "MOST_NAMES", 3)
    seen = NamesSeen()
    for i in range(10):
        seen.note(f"Torch.f{i}.0.forward")
    seen.note("Torch.f1.9.forward")
    assert seen.calls == {"Torch.f0": 0, "Torch.f1": 9, "Torch.f2": 0}


def test_nothing_is_remembered_once_everything_has_matched() -> None:
    seen = NamesSeen()
    _told(Selection(names=("linear",), seen=seen))
    assert list(seen.calls) == ["Functional.linear"]
