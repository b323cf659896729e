"""The sample names_L1_all: what each way to write a call is recorded as."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from against_golden import differences, entry_differences
from capturing import Run, golden
from sample_calls import sample_calls
from sample_runs import sample_debugger

# operation -> how often ours has it more than the reference (fewer: negative), and why.
DIFFERENT_COUNTS = {
    # shared callables: one object under two spellings has the name of the first category that lists it
    "Torch.relu_": (-1, "torch.relu_ is F.relu_"),
    "Functional.relu_": (+1, "torch.relu_ is F.relu_"),
    "Functional.gelu": (+1, "torch._C._nn.gelu is F.gelu"),
    "Torch.relu": (+1, "torch._VF.relu is torch.relu"),
    # F27: the reference lets them share a counter with torch.norm, torch.inv
    "Torch.norm": (-1, "torch.linalg.norm"),
    "Torch.linalg.norm": (+1, "torch.linalg.norm"),
    "Torch.inv": (-1, "torch.linalg.inv"),
    "Torch.linalg.inv": (+1, "torch.linalg.inv"),
    # what the reference misses
    "Tensor.__neg__": (+1, "unary minus"),
    "Tensor.__abs__": (+1, "abs()"),
    "Tensor.__invert__": (+1, "~x"),
    "Tensor.__getitem__": (+31, "indexing"),
    "Tensor.copy_": (+1, "in-place copy"),
    "Tensor.zero_": (+5, "one written out, four in the construction of modules"),
    "Tensor.uniform_": (+23, "one written out, the others in the construction of modules"),
    "Torch.randn": (+2, "random creation"),
    "Torch.randn_like": (+1, "random creation"),
    "Torch.fft.fft": (+1, "torch.fft"),
    "Torch.special.expit": (+1, "torch.special"),
    "Functional.rms_norm": (+1, "nn.RMSNorm"),
    "Aten.add": (+2, "torch.ops.aten, with and without overload"),
    "Aten.relu": (+2, "torch.ops.aten, with and without overload"),
    "VF.lstm": (+1, "nn.LSTM"),
    "VF.gru": (+1, "nn.GRU"),
    "VF.rnn_tanh": (+1, "nn.RNN"),
    "VF.lstm_cell": (+1, "nn.LSTMCell"),
}
# Entries whose numbers ours shifts: their name there -> here.
SHIFTED = {"Functional.gelu.1.forward": "Functional.gelu.2.forward", "Torch.norm.1.forward": "Torch.linalg.norm.0.forward"}
SHIFTED |= {"Torch.relu_.0.forward": "Functional.relu_.0.forward", "Functional.relu_.0.forward": "Functional.relu_.1.forward"}
SHIFTED |= {"Torch.inv.0.forward": "Torch.linalg.inv.0.forward"}
# Entries that hold memory nobody has written to: torch.empty inside the construction of modules, and an `out=`.
UNWRITTEN = ("Tensor.fill_.", "Tensor.normal_.", "Torch.add.2.")
# Positions that differ, and why.
F23 = {"Tensor.to.0.forward": "positional torch.dtype: {} there, type and value here"}


# What is drawn: older versions of torch draw other numbers from the same seed.
DRAWN = ("Functional.dropout.", "Torch.multinomial.", "Functional.embedding_bag.")
NEWEST = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    directory = tmp_path_factory.mktemp("names_L1_all")
    debugger = sample_debugger("names_L1_all", directory)
    make_calls = sample_calls()
    debugger.start()
    for call in make_calls().values():
        call()
    debugger.stop()
    debugger.step()
    return Run(directory / "dump").step().data


def operation(name: str) -> str:
    return name.rsplit(".", 2)[0]


def test_each_operation_is_counted_as_there(recorded: dict[str, object]) -> None:
    theirs = Counter(map(operation, golden("names_L1_all")["steps"]["0"]["data"]))
    ours = Counter(map(operation, recorded))
    more = {name: ours[name] - theirs[name] for name in theirs | ours if ours[name] != theirs[name]}
    assert more == {name: count for name, (count, _) in DIFFERENT_COUNTS.items()}


def test_each_entry_is_as_there(recorded: dict[str, dict[str, object]]) -> None:
    """Positional and keyword form, nesting, which leaves are null, and the values."""
    wrong = []
    for name, theirs in golden("names_L1_all")["steps"]["0"]["data"].items():
        ours = recorded.get(SHIFTED.get(name, name))
        if ours is None:
            wrong.append(f"{name} is missing")
        elif name not in F23:
            unlike = UNWRITTEN if NEWEST else UNWRITTEN + DRAWN
            wrong += [f"{name} {text}" for text in entry_differences(theirs, ours, values=not name.startswith(unlike))]
    assert wrong == []


def test_a_positional_dtype_keeps_its_value(recorded: dict[str, dict[str, list[object]]]) -> None:
    theirs, ours = golden("names_L1_all")["steps"]["0"]["data"]["Tensor.to.0.forward"], recorded["Tensor.to.0.forward"]
    assert theirs["input_args"][1] == {} and ours["input_args"][1] == {"type": "torch.dtype", "value": "torch.float64"}
    assert differences(theirs["output"], ours["output"], "", True) == []


def test_the_order_is_that_of_the_calls(recorded: dict[str, object]) -> None:
    theirs = [SHIFTED.get(name, name) for name in golden("names_L1_all")["steps"]["0"]["data"]]
    assert [name for name in recorded if name in theirs] == [name for name in theirs if name in recorded]
