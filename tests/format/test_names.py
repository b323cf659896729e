"""Taking entry names apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.format import names
from msprobe.format.names import ApiName, DebugName, ModuleName, parse

GOLDEN = Path(__file__).parent.parent / "golden"
KNOWN = [
    ("Torch.add.0.forward", ApiName("Torch", "add", 0, "forward")),
    ("Torch.linalg.norm.12.backward", ApiName("Torch", "linalg.norm", 12, "backward")),
    ("Tensor.__add__.1.backward.pass2", ApiName("Tensor", "__add__", 1, "backward", 2)),
    ("Functional.forward.0.forward", ApiName("Functional", "forward", 0, "forward")),
    ("Module.blocks.0.fc.Linear.forward.0", ModuleName("blocks.0.fc", "Linear", "forward", 0)),
    ("Module.0.fc.Linear.backward.1.pass1", ModuleName("0.fc", "Linear", "backward", 1, 1)),
    ("Module.fc.Linear.parameters_grad.3", ModuleName("fc", "Linear", "parameters_grad", 3)),
    ("Cell.fc.Dense.forward.0", ModuleName("fc", "Dense", "forward", 0, root="Cell")),
    ("Module.Net.forward.0", ModuleName("", "Net", "forward", 0)),
    ("Module.forward.0.forward", ApiName("Module", "forward", 0, "forward")),
    ("Module.a.forward.0.Linear.backward.1", ModuleName("a.forward.0", "Linear", "backward", 1)),
    ("loss.0.debug", DebugName("loss", 0)),
    ("my.value_grad.2.debug", DebugName("my.value_grad", 2)),
    ("y_grad.0.debug.pass1", DebugName("y_grad", 0, 1)),
    (".0.debug", DebugName("", 0)),
    ("x.0.debug.0.debug", DebugName("x.0.debug", 0)),
    ("fc.forward.0.debug", DebugName("fc.forward", 0)),
]


@pytest.mark.parametrize(("text", "name"), KNOWN)
def test_known(text: str, name: names.EntryName) -> None:
    assert parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "...", "forward", "optimizer", "Torch.add.forward", "Torch.add.x.forward", "Torch.add.01.forward", "Torch.add.-1.forward",
        "Torch.add.².forward", "Module.forward.0", "Module.fc.Linear.sideways.0",
        "Other.fc.Linear.forward.0", "Torch.add.0.forward.pass0",
        "Torch.add.0.forward.pass", "Torch.add.0.forward.pass01", "x.debug", "0.debug", "x.01.debug",
        ".add.0.forward", "Torch..0.forward",
        "Module..Linear.forward.0", "Module.fc..forward.0",
    ],
)  # fmt: skip
def test_no_names(text: str) -> None:
    assert parse(text) is None


def test_operation() -> None:
    assert [name.operation for _, name in KNOWN[:5]] == [
        "Torch.add", "Torch.linalg.norm", "Tensor.__add__", "Functional.forward", "Module.blocks.0.fc.Linear"
    ]  # fmt: skip
    assert DebugName("loss", 0).direction == "debug"


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("reference_*/d*.json")), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_name_of_the_existing_tool(file: Path) -> None:
    entries = json.loads(file.read_text())["data"]
    assert entries
    for text in entries:
        name = parse(text)
        assert name is not None
        assert str(name) == text


PART = st.text(st.characters(exclude_characters="."), min_size=1, max_size=8)
DOTTED = st.lists(PART, min_size=1, max_size=4).map(".".join)
COUNT = st.integers(0, 10**20)
NAMES = st.one_of(
    st.builds(ApiName, PART, DOTTED, COUNT, st.sampled_from(["forward", "backward"]), st.integers(0, 30)),
    st.builds(
        ModuleName,
        st.one_of(st.just(""), DOTTED),
        PART,
        st.sampled_from(["forward", "backward", "parameters_grad"]),
        COUNT,
        st.integers(0, 30),
        st.sampled_from(["Module", "Cell"]),
    ),
    st.builds(DebugName, DOTTED, COUNT),
)


@given(NAMES)
def test_names_survive_the_text(name: names.EntryName) -> None:
    assert parse(str(name)) == name


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(["Module", "a", "", "0", "7", "forward", "debug", "pass1"])).map(".".join)))
def test_texts_survive_the_name(text: str) -> None:
    name = parse(text)
    assert name is None or str(name) == text
