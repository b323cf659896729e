"""The words of the line that ends a step."""

from __future__ import annotations

from typing import Any

from msprobe.recording.closing_line import closing_line


def line(**given: Any) -> str:
    plain: dict[str, Any] = {
        "tensors": 7, "calls": 5, "modules": None, "apis": None, "size": 1_230_000, "seconds": 0.0124,
        "lost": 0, "reasons": {}, "where": "dump_error_info.log", "late": 0,
    }  # fmt: skip
    return closing_line(3, **{**plain, **given})


def test_the_parts() -> None:
    assert line() == "[step 3] recorded 7 tensors of 5 calls, 1.2 MB, +12 ms"
    assert "5 calls (modules 2/3), " in line(modules=(2, 3))
    assert "5 calls (APIs 4), " in line(apis=(4, 4))
    assert "5 calls (modules 0/3, APIs 4/9), " in line(modules=(0, 3), apis=(4, 9))
    assert line(late=2).endswith("; 2 calls of earlier steps had their backward pass after their step had ended")


def test_reasons_are_grouped_the_frequent_ones_first() -> None:
    assert line(lost=3).endswith("; not recorded: 3 (see dump_error_info.log)")
    reasons = {"once": 1, "often": 5, "twice": 2}
    assert line(lost=8, reasons=reasons).endswith(
        "; not recorded: 8 (5 × often, 2 × twice, 1 × other reasons; see dump_error_info.log)"
    )  # fmt: skip
    assert line(lost=5, reasons={"often": 5}).endswith("; not recorded: 5 (5 × often; see dump_error_info.log)")


def test_a_reason_is_one_short_line() -> None:
    text = line(lost=1, reasons={"one\ntwo   three " + "x" * 500: 1})
    assert "1 × one two three xxx" in text and "...; see" in text and len(text) < 250 and "\n" not in text
