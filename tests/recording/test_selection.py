from __future__ import annotations

import pytest

from msprobe.config.result import DataMode
from msprobe.recording.selection import CORE, LOW_RISK, Selection, within_risk_level


def _words(text: str) -> list[str]:
    return text.split()


# What the existing tool leaves out at FOCUS, and keeps at CORE, as its notes list it.
DOCUMENTED_LOW = _words("""
    squeeze unsqueeze reshape reshape_as view view_as flatten unflatten expand expand_as repeat repeat_interleave tile transpose permute
    moveaxis movedim swapaxes swapdims chunk unsafe_chunk split unbind stack cat concat concatenate hstack vstack dstack column_stack
    row_stack align_to atleast_1d atleast_2d atleast_3d ravel clamp unfold type_as to float double int long half bfloat16 byte char bool
    cfloat numpy empty zeros ones full arange linspace logspace eye identity diag triu tril clone __bool__ stride
""")
DOCUMENTED_CORE = _words("""
    matmul __matmul__ bmm addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ mm mv addmv addmv_ addr addr_ conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d conv_tbc convolution bilinear multi_dot batch_norm instance_norm layer_norm group_norm
    local_response_norm embedding embedding_bag multi_head_attention_forward scaled_dot_product_attention
""")


def test_without_wishes_everything_is_wanted() -> None:
    selection = Selection(risk_level="ALL")
    assert selection.everything and selection.enters("Torch.relu.0.forward")
    assert selection.sides == DataMode()
    assert not selection.saves_tensors("Torch.relu.0.forward") and not selection.expands("Module.a.Mlp.forward.0")


@pytest.mark.parametrize("api", DOCUMENTED_LOW)
def test_focus_leaves_out_what_only_moves_data(api: str) -> None:
    assert api in LOW_RISK
    for prefix in ("Tensor", "Torch"):
        assert not within_risk_level(prefix, api, "FOCUS") and not within_risk_level(prefix, api, "CORE")
        assert within_risk_level(prefix, api, "ALL")


@pytest.mark.parametrize("api", _words("t meshgrid contiguous relu add __add__ sum linear masked_fill fill_ normal_ max"))
def test_focus_keeps_everything_else(api: str) -> None:
    assert within_risk_level("Tensor", api, "FOCUS")


@pytest.mark.parametrize("api", [*DOCUMENTED_CORE, "linear", "chain_matmul"])
def test_core_keeps_where_precision_is_lost(api: str) -> None:
    """F29: `linear` and `chain_matmul` too."""
    assert within_risk_level("Torch", api, "CORE") and within_risk_level("Torch", api, "FOCUS")


@pytest.mark.parametrize("api", ["relu", "add", "sum", "dropout", "reshape"])
def test_core_leaves_out_the_rest(api: str) -> None:
    assert not within_risk_level("Functional", api, "CORE")


@pytest.mark.parametrize("level", ["ALL", "FOCUS", "CORE"])
def test_communication_is_always_kept(level: str) -> None:
    assert within_risk_level("Distributed", "all_reduce", level)


def test_no_api_is_in_both_lists() -> None:
    assert not CORE & LOW_RISK


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
    assert Selection(names=("a.Mlp",), expand_modules=True).expands("Module.a.Mlp.forward.0")
    assert not Selection(names=("a.Mlp",), expand_modules=True).expands("Module.b.Mlp.forward.0")
    assert not Selection(names=("a.Mlp",)).expands("Module.a.Mlp.forward.0")


def test_tensor_names() -> None:
    selection = Selection(tensor_names=("relu", "Linear.forward"))
    assert selection.saves_tensors("Torch.relu.0.backward") and selection.saves_tensors("Module.a.Linear.forward.0")
    assert not selection.saves_tensors("Module.a.Linear.backward.0")
    assert selection.everything
