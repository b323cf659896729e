from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from msprobe.recording import risk
from msprobe.recording.risk import risk_of, within_risk_level

PAGE = Path(__file__).parent.parent.parent / "docs" / "risk_levels.md"
WATCH_LISTS = PAGE.parent.parent / "src" / "msprobe" / "pytorch" / "dump" / "api_dump"
CHINESE = PAGE.parent / "zh" / "risk_levels.md"
NAMES = [name for group in risk.GROUPS for name in group.names]


def _words(text: str) -> list[str]:
    return text.split()


# What the existing tool leaves out at FOCUS, and keeps at CORE, as its notes list it; but for `clamp`, which computes (F28).
DOCUMENTED_LOW = _words("""
    squeeze unsqueeze reshape reshape_as view view_as flatten unflatten expand expand_as repeat repeat_interleave tile transpose permute
    moveaxis movedim swapaxes swapdims chunk unsafe_chunk split unbind stack cat concat concatenate hstack vstack dstack column_stack
    row_stack atleast_1d atleast_2d atleast_3d ravel unfold type_as to float double int long half bfloat16 byte char bool cfloat numpy
    empty zeros ones full arange linspace logspace eye diag triu tril clone __bool__ stride
""")
DOCUMENTED_CORE = _words("""
    matmul __matmul__ bmm addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ mm mv addmv addmv_ addr addr_ conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d conv_tbc convolution bilinear linalg.multi_dot batch_norm instance_norm layer_norm group_norm
    local_response_norm embedding embedding_bag multi_head_attention_forward scaled_dot_product_attention _fused_adam_
""")


@pytest.mark.parametrize("api", [*DOCUMENTED_LOW, *_words("t t_ narrow transpose_ flip pad copy_ zero_ fill_ normal_ uniform_ rand_like")])
def test_low_only_views_moves_creates_or_converts(api: str) -> None:
    for prefix in ("Tensor", "Torch"):
        assert risk_of(prefix, api) == "LOW"
        assert not within_risk_level(prefix, api, "FOCUS") and not within_risk_level(prefix, api, "CORE")
        assert within_risk_level(prefix, api, "ALL")


@pytest.mark.parametrize("api", _words("relu relu_ add __add__ __iadd__ sum clamp clamp_ where gather index_select scatter_ max"))
def test_focus_computes_or_lets_tensors_decide(api: str) -> None:
    assert risk_of("Tensor", api) == "FOCUS"
    assert within_risk_level("Tensor", api, "FOCUS") and not within_risk_level("Tensor", api, "CORE")


@pytest.mark.parametrize("api", [*DOCUMENTED_CORE, *_words("linear chain_matmul cross_entropy mse_loss softmax rms_norm normalize")])
def test_core_keeps_where_precision_is_lost(api: str) -> None:
    """F29: `linear` and `chain_matmul` too."""
    assert risk_of("Torch", api) == "CORE"
    assert within_risk_level("Torch", api, "CORE") and within_risk_level("Torch", api, "FOCUS")


@pytest.mark.parametrize("prefix", ["Distributed", "NPU", "MindSpeed", "Triton"])
@pytest.mark.parametrize("level", ["ALL", "FOCUS", "CORE"])
def test_communication_and_fused_kernels_are_always_kept(prefix: str, level: str) -> None:
    assert within_risk_level(prefix, "scatter", level) and within_risk_level(prefix, "anything", level)


@pytest.mark.parametrize("api", ["lstm", "gru_cell", "rnn_tanh"])
def test_recurrent_layers_are_core(api: str) -> None:
    assert risk_of("VF", api) == "CORE"


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("mm", "CORE"),
        ("_softmax", "CORE"),
        ("_softmax_backward_data", "CORE"),
        ("convolution_backward", "CORE"),
        ("_scaled_dot_product_flash_attention_for_cpu", "CORE"),
        ("native_layer_norm_backward", "CORE"),
        ("embedding_dense_backward", "CORE"),
        ("view", "LOW"),
        ("view_copy", "LOW"),
        ("_to_copy", "LOW"),
        ("_unsafe_view", "LOW"),
        ("index_copy", "FOCUS"),
        ("threshold_backward", "FOCUS"),
        ("something_new", "FOCUS"),
    ],
)
def test_operators_have_the_class_of_what_they_are_a_form_of(api: str, expected: str) -> None:
    assert risk_of("Aten", api) == expected


@pytest.mark.parametrize(("api", "expected"), [("_foreach_mul_", "FOCUS"), ("_foreach_mm", "CORE"), ("_foreach_copy_", "LOW")])
def test_foreach_has_the_class_of_one(api: str, expected: str) -> None:
    assert risk_of("Torch", api) == expected


def test_an_api_of_the_user_s_is_focus() -> None:
    assert risk_of("__main__", "fused_gelu") == "FOCUS" and risk_of("Torch", "no_such_function") == "FOCUS"


def test_every_name_stands_once_in_a_known_class() -> None:
    assert [name for name, times in Counter(NAMES).items() if times > 1] == []
    assert {group.risk for group in (*risk.GROUPS, *risk.ATEN)} == {"CORE", "FOCUS", "LOW"}


def test_the_page_marks_what_no_watch_list_has() -> None:
    """As functions and methods; `clone` is watched as `_foreach_clone` alone."""
    lists = yaml.safe_load((WATCH_LISTS / "support_wrap_ops.yaml").read_text(encoding="utf-8"))
    watched = {name for names in lists.values() for name in names}
    spellings = {name: {name, f"{name}_"} | ({f"_foreach_{name}"} if name != "clone" else set()) for name in NAMES}
    assert {name for name in NAMES if watched.isdisjoint(spellings[name])} == risk.UNWATCHED
    for page in (PAGE, CHINESE):
        assert set(re.findall(r"`(\w+)`†", page.read_text(encoding="utf-8"))) == risk.UNWATCHED


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == risk.page(), "run: python -m msprobe.recording.risk docs/risk_levels.md"


def test_the_chinese_page_is_up_to_date() -> None:
    """Its titles and remarks are its own, the names are those of the table."""
    text = CHINESE.read_text(encoding="utf-8")
    assert text == risk.translated(text), "run: python -m msprobe.recording.risk docs/zh/risk_levels.md"
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_names_are_renewed_and_words_stay(tmp_path: Path) -> None:
    text = CHINESE.read_text(encoding="utf-8")
    (tmp_path / "zh").mkdir()
    page = tmp_path / "zh" / "page.md"
    page.write_text(text.replace("`conv1d`, ", "").replace("`__pos__`", "`gone`"), encoding="utf-8")
    assert risk.main([str(page)]) == 0
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: [*rows, rows[-1]]])
def test_a_table_of_another_length_is_refused(change: Callable[[list[str]], list[str]]) -> None:
    rows = [line for line in CHINESE.read_text(encoding="utf-8").split("\n") if line.startswith(("| CORE |", "| FOCUS |", "| LOW |"))]
    with pytest.raises(ValueError, match="the table has too "):
        risk.translated("\n".join(change(rows)))


def test_the_script_writes_the_page(tmp_path: Path) -> None:
    assert risk.main([str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in NAMES)
