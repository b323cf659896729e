"""The first difference in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, headline

from .dumps import api, tensor, write_dump
from .net import Net


def test_another_dtype_is_said_in_words_and_that_there_is_nothing_else(tmp_path: Path) -> None:
    def data(dtype: str, noise: float) -> dict[str, object]:
        return {
            "Functional.linear.0.forward": api([tensor()], [tensor(2.0 + noise, dtype)]),
            "Functional.gelu.0.forward": api([tensor(2.0 + noise, dtype)], [tensor(2.0 + noise, dtype)]),
        }

    outcome = compare(write_dump(tmp_path / "t", data("bfloat16", 1e-3)), write_dump(tmp_path / "g", data("float32", 0.0)), tmp_path / "o")
    text = "\n".join(line.text for line in describe(outcome))
    assert (
        "First difference: Functional.linear.0.forward (inputs equal, output differs);"
        " the target computes in torch.bfloat16, the golden run in torch.float32 from here on\n"
    ) in text
    assert text.splitlines()[0] == ("Inputs equal, `linear` computes in torch.bfloat16, in the golden run in torch.float32 (forward)")
    assert "This difference is within rounding" not in text
    assert (
        "Nothing but the dtype differs by more than rounding; if that is meant, --accept-dtype (accept_dtype=True) makes it no error."
        in text
    )


def test_from_here_on_is_not_said_when_dtypes_differ_before(tmp_path: Path) -> None:
    def data(dtype: str, second: float) -> dict[str, object]:
        return {
            "Torch.a.0.forward": api([tensor(1.0, dtype)], [tensor(2.0, dtype)]),
            "Torch.b.0.forward": api([tensor(2.0, dtype)], [tensor(second, dtype)]),
        }

    paths = write_dump(tmp_path / "t", data("float64", 9.0)), write_dump(tmp_path / "g", data("float32", 3.0))
    first = compare(*paths, tmp_path / "o").reports[0].findings.first
    assert first is not None and first.call.name == "Torch.b.0.forward"
    assert headline(first).endswith("; the target computes in torch.float64, the golden run in torch.float32")


def test_statistics_name_what_they_cannot_see(tmp_path: Path) -> None:
    outcome = compare(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert sum("statistics cannot see a reordering" in line.text for line in describe(outcome)) == 1
    outcome = compare(Net(between=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert not any("reordering" in line.text for line in describe(outcome))


_DRAWS = "it draws random numbers, and that alone explains the difference if the two runs drew others"


@pytest.mark.parametrize(
    ("name", "more", "draws"),
    [
        ("Functional.dropout.0.forward", {}, True),
        ("Functional.dropout.0.forward", {"training": False}, False),
        ("Tensor.normal_.0.forward", {}, True),
        ("Functional.scaled_dot_product_attention.0.forward", {"dropout_p": 0.1}, True),
        ("Functional.scaled_dot_product_attention.0.forward", {"dropout_p": 0.0}, False),
        ("Functional.multi_head_attention_forward.0.forward", {"dropout_p": 0.1, "training": True}, True),
        ("Functional.multi_head_attention_forward.0.forward", {"dropout_p": 0.1, "training": False}, False),
        ("Functional.linear.0.forward", {}, False),
        ("Module.drop.Dropout.forward.0", {}, True),
        ("Module.dropout.Linear.forward.0", {}, False),
    ],
)
def test_random_numbers_are_named_where_they_explain_it(tmp_path: Path, name: str, more: dict[str, object], draws: bool) -> None:
    def data(result: float) -> dict[str, object]:
        call = api([tensor()], [tensor(result)])
        call["input_kwargs"] = {key: {"type": type(value).__name__, "value": value} for key, value in more.items()}
        return {name: call}

    outcome = compare(write_dump(tmp_path / "t", data(2.0)), write_dump(tmp_path / "g", data(3.0)), tmp_path / "o")
    said = [line.text for line in describe(outcome)]
    assert sum(_DRAWS in line for line in said) == draws
    assert sum("statistics cannot see a reordering" in line for line in said) == (not draws)


def test_an_operation_whose_inputs_differ_is_not_said_to_draw(tmp_path: Path) -> None:
    def data(value: float) -> dict[str, object]:
        return {"Functional.dropout.0.forward": api([tensor(value)], [tensor(value)])}

    outcome = compare(write_dump(tmp_path / "t", data(2.0)), write_dump(tmp_path / "g", data(3.0)), tmp_path / "o")
    assert not any(_DRAWS in line.text for line in describe(outcome))


def test_several_differing_inputs_are_listed_as_words(tmp_path: Path) -> None:
    def data(*values: float) -> dict[str, object]:
        return {"Torch.z.0.forward": api([tensor()], [tensor()]), "Torch.a.0.forward": api([*map(tensor, values)], [tensor()])}

    for number, (count, expected) in enumerate(
        ((2, "input.0 and input.1 of"), (3, "input.0, input.1 and input.2 of"), (5, "input.0, input.1, input.2 and 2 more of"))
    ):
        target = write_dump(tmp_path / f"t{number}", data(*[5.0] * count))
        golden = write_dump(tmp_path / f"g{number}", data(*[6.0] * count))
        first = compare(target, golden, tmp_path / "o").reports[0].findings.first
        assert first is not None
        assert headline(first).startswith(f"{expected} Torch.a.0.forward differ; ")


def test_a_hidden_cast_is_not_called_changed_code(tmp_path: Path) -> None:
    def data(dtype: str, value: float) -> dict[str, object]:
        return {"Torch.z.0.forward": api([tensor()], [tensor()]), "Torch.a.0.forward": api([tensor(value, dtype)], [tensor(3.0)])}

    paths = write_dump(tmp_path / "t", data("bfloat16", 2.1)), write_dump(tmp_path / "g", data("float32", 2.0))
    first = compare(*paths, tmp_path / "o").reports[0].findings.first
    assert first is not None
    assert headline(first) == (
        "input.0 of Torch.a.0.forward differs; no recorded call before it gave a difference;"
        " the target computes in torch.bfloat16, the golden run in torch.float32 from here on"
    )
