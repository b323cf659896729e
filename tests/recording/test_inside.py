from __future__ import annotations

import pytest

from msprobe.recording.inside import Inside, Range, backward_of, forward_of, is_gradient, is_module_forward

MLP, FC, B = "Module.a.Mlp", "Module.a.fc.Linear", "Module.b.Linear"


@pytest.mark.parametrize(
    ("name", "module_forward", "gradient"),
    [
        ("Module.a.Mlp.forward.0", True, False),
        ("Module.backward.Mlp.forward.0", True, False),
        ("Cell.a.Dense.forward.3", True, False),
        ("Module.a.Mlp.backward.0", False, True),
        ("Module.a.Mlp.backward.0.pass1", False, True),
        ("Module.a.Mlp.parameters_grad.1", False, True),
        ("Torch.relu.0.forward", False, False),
        ("Tensor.backward.0.forward", False, False),
        ("Torch.relu.0.backward", False, True),
        ("Torch.relu.0.backward.pass2", False, True),
    ],
)
def test_kinds_of_names(name: str, module_forward: bool, gradient: bool) -> None:
    assert is_module_forward(name) == module_forward and is_gradient(name) == gradient


def test_forward_and_backward_mirror_each_other() -> None:
    assert backward_of("Module.a.Mlp.forward.2") == "Module.a.Mlp.backward.2"
    assert forward_of("Module.a.Mlp.backward.2") == forward_of("Module.a.Mlp.backward.2.pass1") == "Module.a.Mlp.forward.2"
    assert forward_of("Module.backward.Mlp.backward.2") == "Module.backward.Mlp.forward.2"
    assert forward_of("Module.a.Mlp.forward.2") == "Module.a.Mlp.forward.2"


def test_what_is_inside() -> None:
    inside = Inside()
    assert inside.begins(f"{MLP}.forward.0", None, True)
    assert inside.begins(f"{FC}.forward.0", f"{MLP}.forward.0", False)
    assert not inside.begins(f"{B}.forward.0", None, False)
    within = [(f"{MLP}.forward.0", None), (f"{FC}.backward.0.pass1", None), ("Torch.relu.0.forward", f"{FC}.forward.0")]
    within += [("Torch.relu.0.backward", f"{FC}.backward.0"), (f"{FC}.parameters_grad.4", None)]
    assert all(inside.holds(*one) for one in within)
    outside = [(f"{MLP}.forward.1", None), ("Torch.relu.1.forward", f"{B}.forward.0"), (f"{B}.parameters_grad.0", None), ("a", None)]
    assert not any(inside.holds(*one) for one in outside)


FORWARD = [
    ("Torch.a.0.forward", None),
    (f"{MLP}.forward.0", None),
    ("Torch.b.0.forward", f"{MLP}.forward.0"),
    (f"{FC}.forward.0", f"{MLP}.forward.0"),
    ("Torch.c.0.forward", f"{FC}.forward.0"),
    ("Torch.d.0.forward", f"{MLP}.forward.0"),
    (f"{B}.forward.0", None),
    ("Torch.e.0.forward", f"{B}.forward.0"),
    ("Torch.f.0.forward", None),
]
BACKWARD = [
    ("Torch.f.0.backward", None),
    ("Torch.e.0.backward", f"{B}.backward.0"),
    (f"{B}.backward.0", None),
    (f"{B}.parameters_grad.0", None),
    ("Torch.d.0.backward", f"{MLP}.backward.0"),
    (f"{MLP}.backward.0", None),  # its input needs no gradient: complete before its inside
    ("Torch.c.0.backward", f"{FC}.backward.0"),
    (f"{FC}.backward.0", f"{MLP}.backward.0"),
    (f"{FC}.parameters_grad.0", None),
    ("Torch.b.0.backward", f"{MLP}.backward.0"),
    ("Torch.a.0.backward", None),
]


def _recorded(first: str, last: str) -> list[str]:
    scope = Range(first, last)
    return [name for name, parent in [*FORWARD, *BACKWARD] if scope.enters(name, parent)]


def test_a_module_that_closes_the_range_belongs_to_it_with_its_inside() -> None:
    assert _recorded("Torch.a.0.forward", f"{MLP}.forward.0") == [name for name, _ in FORWARD[:6]]
    assert _recorded(f"{MLP}.forward.0", f"{B}.forward.0") == [name for name, _ in FORWARD[1:8]]
    assert _recorded(f"{FC}.forward.0", f"{FC}.forward.0") == [name for name, _ in FORWARD[3:5]]


def test_a_module_s_backward_begins_with_that_of_its_inside() -> None:
    assert _recorded(f"{B}.backward.0", f"{B}.backward.0") == [name for name, _ in BACKWARD[1:4]]
    assert _recorded(f"{B}.backward.0", f"{MLP}.backward.0") == [name for name, _ in BACKWARD[1:10]]
    assert _recorded(f"{MLP}.backward.0", f"{MLP}.backward.0") == [name for name, _ in BACKWARD[4:10]]


def test_from_forward_to_backward() -> None:
    both = [name for name, _ in [*FORWARD, *BACKWARD]]
    assert _recorded("Torch.f.0.forward", "Torch.e.0.backward") == both[8:11]


def test_a_call_that_began_before_the_range_may_close_it() -> None:
    scope = Range("Torch.b.0.forward", f"{MLP}.forward.0")
    entered = [scope.enters(*one) for one in FORWARD[:6]]
    assert entered == [False, False, True, True, True, True] and scope.is_open
    assert scope.ends(f"{MLP}.forward.0") and scope.closed
    assert not any(scope.enters(*one) for one in FORWARD[6:])
    assert not scope.ends("Module.outer.Mlp.forward.0")


def test_a_later_accumulation_lies_outside() -> None:
    scope = Range("Torch.e.0.forward", f"{B}.backward.0")
    for one in [*FORWARD, *BACKWARD]:
        scope.enters(*one)
    assert scope.closed
    assert not scope.enters(f"{B}.parameters_grad.1", None)
    assert not scope.enters(f"{B}.backward.0.pass1", None)
    assert not scope.enters("Torch.e.0.backward.pass1", f"{B}.backward.0.pass1")


def test_a_repeated_last_call_takes_the_place_of_the_one_that_raised() -> None:
    scope = Range("Torch.a.0.forward", "Torch.f.0.forward")
    assert [scope.enters(name, None) for name in ("Torch.a.0.forward", "Torch.f.0.forward", "Torch.f.0.forward", "Torch.g.0.forward")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_the_ends_in_the_wrong_order() -> None:
    scope = Range("Torch.f.0.forward", "Torch.a.0.forward")
    assert not scope.enters("Torch.a.0.forward", None) and scope.last_came_early
    assert scope.enters("Torch.f.0.forward", None) and scope.is_open
