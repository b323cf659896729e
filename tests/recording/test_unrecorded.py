"""What could not be recorded is counted, told once, and grouped by its reason."""

from __future__ import annotations

import pytest

from msprobe.recording.unrecorded import Unrecorded, of_call, of_saved_value


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("input 0.1: no values", "no values"),
        ("parameters_grad weight: no values", "no values"),
        ("output: too deep", "too deep"),
        ("call could not be recorded: KeyError(1)", "call could not be recorded: KeyError(1)"),
        (" weight: no values", " weight: no values"),
    ],
)
def test_the_place_in_a_call_is_no_part_of_why(reason: str, why: str) -> None:
    assert of_call(reason) == (why, reason)


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        (" key2.1: no: values", ("no: values", "key2.1: no: values")),
        (": no values", ("no values", "no values")),
        ("it could not be saved: KeyError(1)", ("it could not be saved: KeyError(1)",) * 2),
    ],
)
def test_the_place_in_a_saved_value_is_no_part_of_why(reason: str, parts: tuple[str, str]) -> None:
    assert of_saved_value(reason) == parts


def test_each_text_is_written_once_and_every_report_counts() -> None:
    lines: list[str] = []
    unrecorded = Unrecorded(lines.append)
    for place in ("input 0", "input 0", "input 1"):
        unrecorded.report("Torch.relu.0.forward", f"{place}: no values")
    assert lines == ["Torch.relu.0.forward: input 0: no values", "Torch.relu.0.forward: input 1: no values"]
    assert (unrecorded.count, unrecorded.reasons) == (3, {"no values": 3})
    assert unrecorded.lines == {lines[0]: 2, lines[1]: 1}


def test_memory_has_an_end_and_counting_has_none() -> None:
    lines: list[str] = []
    unrecorded = Unrecorded(lines.append)
    for number in range(12_000):
        unrecorded.report("x", f"reason {number}")
    unrecorded.report("x", "reason 0")
    assert (unrecorded.count, len(unrecorded.reasons), len(lines)) == (12_001, 1000, 10_000)
    assert unrecorded.reasons["reason 0"] == 2


def test_an_error_in_telling_is_counted_and_goes_no_further() -> None:
    def full(line: str) -> None:
        raise OSError("no space")

    unrecorded = Unrecorded(full)
    unrecorded.report("x", "why")
    assert (unrecorded.count, unrecorded.reasons) == (1, {"why": 1})


def test_nothing_is_written_once_the_step_has_ended() -> None:
    lines: list[str] = []
    unrecorded = Unrecorded(lines.append)
    unrecorded.let_go()
    unrecorded.report("x", "why")
    assert (lines, unrecorded.count) == ([], 1)
