from __future__ import annotations

import pytest

from msprobe.config.result import DataMode
from msprobe.recording.selection import Selection


def test_without_wishes_everything_is_wanted() -> None:
    selection = Selection(risk_level="ALL")
    assert selection.everything and selection.enters("Torch.relu.0.forward")
    assert selection.sides == DataMode()
    assert not selection.saves_tensors("Torch.relu.0.forward")


def test_a_list_sets_the_risk_level_aside() -> None:
    assert Selection(names=("cat",), risk_level="CORE").wants_api("Torch", "cat")
    assert Selection(scope=("a", "b"), risk_level="CORE").wants_api("Torch", "cat")
    assert not Selection(risk_level="CORE").wants_api("Torch", "cat")


def test_names_are_parts_of_names() -> None:
    selection = Selection(names=("relu.0", "Linear"))
    assert not selection.everything
    wanted = ("Torch.relu.0.forward", "Module.0.Linear.forward.0")
    assert all(selection.enters(name) for name in wanted)
    assert not any(selection.enters(name) for name in ("Torch.relu.1.forward", "Functional.linear.0.forward"))


def test_an_empty_text_matches_everything() -> None:
    assert Selection(names=("",)).enters("Torch.relu.0.forward")


def test_a_scope_includes_both_ends() -> None:
    selection = Selection(scope=("b", "d"))
    assert [selection.enters(name) for name in "abcde"] == [False, True, True, True, False]


def test_a_scope_opens_again() -> None:
    selection = Selection(scope=("b", "c"))
    assert [selection.enters(name) for name in "abcdbcd"] == [False, True, True, False, True, True, False]


def test_a_scope_of_one_name() -> None:
    selection = Selection(scope=("b", "b"))
    assert [selection.enters(name) for name in "abc"] == [False, True, False]


def test_a_scope_that_never_closes_stays_open_for_its_step() -> None:
    selection = Selection(scope=("b", "x"))
    assert [selection.enters(name) for name in "abcd"] == [False, True, True, True]


def test_a_module_s_parameter_gradients_belong_to_its_backward() -> None:
    selection = Selection(scope=("Module.a.Linear.forward.0", "Module.a.Linear.backward.0"))
    names = ["Module.a.Linear.forward.0", "Module.a.Linear.backward.0", "Module.a.Linear.parameters_grad.0", "Module.b.Linear.backward.0"]
    assert [selection.enters(name) for name in names] == [True, True, True, False]


def test_scope_and_list_both_hold() -> None:
    selection = Selection(names=("relu",), scope=("b", "relu2"))
    assert [selection.enters(name) for name in ("relu0", "b", "relu1", "relu2", "relu3")] == [False, False, True, True, False]


def test_modules_named_by_a_list_expand_at_mix_only() -> None:
    for expand in (True, False):
        selection = Selection(names=("a.Mlp",), expand_modules=expand)
        assert selection.enters("Module.a.Mlp.forward.0") and not selection.enters("Module.b.Mlp.forward.0")
        assert selection.enters("Functional.relu.0.forward", "Module.a.Mlp.forward.0") is expand
        assert not selection.enters("Functional.relu.1.forward", "Module.b.Mlp.forward.0")


def test_tensor_names() -> None:
    selection = Selection(tensor_names=("relu", "Linear.forward"))
    assert selection.saves_tensors("Torch.relu.0.backward") and selection.saves_tensors("Module.a.Linear.forward.0")
    assert not selection.saves_tensors("Module.a.Linear.backward.0")
    assert selection.everything


MLP, FC, B = "Module.a.Mlp", "Module.a.fc.Linear", "Module.b.Linear"
CALLS = [
    (f"{MLP}.forward.0", None),
    (f"{FC}.forward.0", f"{MLP}.forward.0"),
    ("Functional.linear.0.forward", f"{FC}.forward.0"),
    (f"{B}.forward.0", None),
    ("Functional.linear.1.forward", f"{B}.forward.0"),
    (f"{B}.parameters_grad.0", None),
    (f"{MLP}.backward.0", None),
    ("Functional.linear.0.backward", f"{FC}.backward.0"),
    (f"{FC}.backward.0.pass1", f"{MLP}.backward.0.pass1"),
    (f"{FC}.parameters_grad.0", None),
]
INSIDE_FORWARD = [f"{MLP}.forward.0", f"{FC}.forward.0", "Functional.linear.0.forward"]
INSIDE_BACKWARD = [f"{MLP}.backward.0", "Functional.linear.0.backward", f"{FC}.backward.0.pass1", f"{FC}.parameters_grad.0"]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ((f"{MLP}.forward.0",), INSIDE_FORWARD + INSIDE_BACKWARD),
        (("Mlp",), INSIDE_FORWARD + INSIDE_BACKWARD),
        ((f"{MLP}.backward.0",), INSIDE_BACKWARD),
        ((f"{MLP}.forward.1",), []),
        ((f"{FC}.forward.0",), [*INSIDE_FORWARD[1:], *INSIDE_BACKWARD[1:]]),
    ],
)
def test_a_module_in_list_brings_its_inside_along(names: tuple[str, ...], kept: list[str]) -> None:
    selection = Selection(names=names, expand_modules=True)
    assert [name for name, parent in CALLS if selection.enters(name, parent)] == kept
    assert [name for name, parent in CALLS if selection.matches(name, parent)] == kept
    assert not any(Selection(names=names).enters(name, parent) for name, parent in CALLS if name.startswith("Functional"))


def test_what_a_module_brings_along_lies_in_the_scope_too() -> None:
    selection = Selection(names=("Mlp",), scope=(f"{FC}.forward.0", "Functional.linear.1.forward"), expand_modules=True)
    assert [name for name, parent in CALLS if selection.enters(name, parent)] == [f"{FC}.forward.0", "Functional.linear.0.forward"]


def test_gradients_of_parameters_are_watched_where_list_may_ask_for_them() -> None:
    for names in ((B,), (f"{B}.parameters_grad.3",), ("parameters_grad",), ()):
        assert Selection(names=names).may_want_gradients(B)
    assert not Selection(names=(f"{B}.forward.0", "relu")).may_want_gradients(B)


def test_case_of_tensor_names_counts_unless_it_is_to_be_ignored() -> None:
    assert not Selection(tensor_names=("TrueDiv",)).saves_tensors("Tensor.__truediv__.0.forward")
    selection = Selection(tensor_names=("TrueDiv",), ignore_case=True)
    assert selection.saves_tensors("Tensor.__truediv__.0.forward") and selection.unmatched(ended=True) == []
