from __future__ import annotations

from msprobe.comparison.mapping.nearest import did_you_mean, hint, nearest, starred


def test_numbers_are_stars() -> None:
    known = [f"model.layers.{layer}.self_attn.{part}" for layer in range(40) for part in ("q_proj", "k_proj")]
    assert nearest("model.layer.*.self_attn.q_proj", known)[0] == "model.layers.*.self_attn.q_proj"
    assert starred("a.10.b2.3") == "a.*.b2.*"
    assert nearest("output.7", ["output.0"], stars=False) == ["output.0"]


def test_of_very_many_names_the_likely_ones_are_looked_at() -> None:
    known = [f"m{letter}{number}.x" for letter in "abcdefghij" for number in range(200)] + ["encoder.block.attention"]
    assert nearest("encoder.blocks.attention", known) == ["encoder.block.attention"]


def test_nothing_is_like_it() -> None:
    assert hint("zzz", ["aaa"]) == "" and hint("aab", ["aaa"]) == "; nearest: aaa"
    assert did_you_mean("zzz", ["sum"]) == "; allowed are sum" and did_you_mean("som", ["sum"]) == "; did you mean `sum`? allowed are sum"
