from __future__ import annotations

from typing import Any

import pytest

from msprobe.comparison.rows import Row, calls_of
from msprobe.errors import DumpFormatError

from .dumps import api, backward, module, tensor


def rows_of(name: str, entry: Any) -> list[Row]:
    return list(calls_of({name: entry}, "dump.json")[0].rows)


def test_names_of_nested_values() -> None:
    entry = api(
        [tensor(), [tensor(), {"b": tensor()}], None, [], {}],
        [{"h": tensor(), "aux": [tensor(), {"type": "int", "value": 3}]}],
        mask=tensor(),
        scale={"type": "float", "value": 0.5},
    )
    assert [row.name.removeprefix("Torch.op.0.forward.") for row in rows_of("Torch.op.0.forward", entry)] == [
        "input.0",
        "input.1.0",
        "input.1.1.b",
        "input.2",
        "input.mask",
        "input.scale",
        "output.0.h",
        "output.0.aux.0",
        "output.0.aux.1",
    ]


def test_roles_come_from_the_place_and_not_from_the_name() -> None:
    """F12: a module called `output` has inputs all the same."""
    rows = rows_of("Module.output.Linear.forward.0", module([tensor()], [tensor()], weight=tensor()))
    assert [row.role for row in rows] == ["input", "output", "parameters"]


def test_an_output_that_is_a_dictionary() -> None:
    rows = rows_of("Torch.a.0.forward", {"input_args": [], "input_kwargs": {}, "output": {"x": tensor(), "y": [tensor()]}})
    assert [row.key for row in rows] == ["output.x", "output.y.0"]


def test_backward_and_gradients() -> None:
    assert [row.key for row in rows_of("Torch.a.0.backward", backward([tensor()], [None]))] == ["input.0", "output.0"]
    rows = rows_of("Module.fc.Linear.parameters_grad.0", {"bias": [tensor()], "weight": [tensor()]})
    assert [(row.name, row.role) for row in rows] == [
        ("Module.fc.Linear.parameters_grad.0.bias", "parameters_grad"),
        ("Module.fc.Linear.parameters_grad.0.weight", "parameters_grad"),
    ]


def test_values_saved_by_hand() -> None:
    assert [row.name for row in rows_of("loss.0.debug", tensor())] == ["loss.0.debug"]
    assert [row.name for row in rows_of("nest.0.debug", {"a": [tensor(), tensor()]})] == ["nest.0.debug.a.0", "nest.0.debug.a.1"]


@pytest.mark.parametrize(
    ("data_name", "name"),
    [
        ("Torch.op.0.forward.kwargs.mask.pt", "Torch.op.0.forward.kwargs.mask"),
        ("Torch.op.0.forward.input.0.npy", "Torch.op.0.forward.input.0"),
        ("../../etc/passwd.pt", "Torch.op.0.forward.input.0"),
        ("Torch.op.0.forward.x/../../y.pt", "Torch.op.0.forward.input.0"),
        ("0123456789abcdef.pt", "Torch.op.0.forward.input.0"),
    ],
)
def test_the_file_name_gives_the_row_name_unless_it_says_something_else(data_name: str, name: str) -> None:
    """F20: a file name with `..` in it does not become the name of a row."""
    rows = rows_of("Torch.op.0.forward", api([tensor(data_name=data_name)], []))
    assert (rows[0].name, rows[0].key) == (name, "input.0")


@pytest.mark.parametrize(
    ("item", "dtype", "shape", "shown"),
    [
        ({"type": "int", "value": 3}, "<class 'int'>", "[]", 3),
        ({"type": "bool", "value": True}, "<class 'bool'>", "[]", True),
        ({"type": "str", "value": "a"}, "<class 'str'>", "[]", "a"),
        ({"type": "torch.device", "value": "cpu"}, "<class 'str'>", "[]", "cpu"),
        ({"type": "torch.Size", "value": [2, 3]}, "torch.Size", "[2, 3]", None),
        ({"type": "slice", "value": [1, None, 2]}, "slice", "(3,)", None),
        ({"type": "ellipsis", "value": "..."}, "ellipsis", "[]", "..."),
        ({"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "a"}, "torch.ProcessGroup", "[]", "[0, 1]"),
        ({"type": "torch.memory_format", "format": "channels_last"}, "<class 'str'>", "[]", "channels_last"),
        (None, "N/A", "N/A", None),
    ],
)
def test_values_that_are_no_tensors(item: Any, dtype: str, shape: str, shown: Any) -> None:
    row = rows_of("Torch.op.0.forward", api([item], []))[0]
    assert (row.dtype, row.shape, row.statistics, row.requires_grad) == (dtype, shape, (shown,) * 4, "N/A")


def test_a_peer_is_text() -> None:
    row = rows_of("Distributed.send.0.forward", api([], [], dst={"type": "int", "value": 1}))[0]
    assert row.statistics == ("1",) * 4


def test_bare_values_inside_an_operation_object_are_rows() -> None:
    item = {"class_type": "torch.distributed.P2POp", "tensor": tensor(), "op": "isend", "peer": 0}
    rows = rows_of("Distributed.batch_isend_irecv.0.forward", api([[item]], []))
    assert [row.key for row in rows] == ["input.0.0.tensor", "input.0.0.op", "input.0.0.peer"]


def test_names_of_no_known_pattern_are_kept() -> None:
    assert [row.name for row in rows_of("something else", api([tensor()], []))] == ["something else.input.0"]


def test_statistics_of_a_damaged_record_are_texts() -> None:
    """They can be hashed: values are looked up by them."""
    (row,) = rows_of("Torch.a.0.forward", api([tensor(Max=[1], Min={"a": 1}, Mean="NaN", md5=[2])], []))
    assert row.statistics[:2] == ("[1]", "{'a': 1}") and row.statistics[2] != row.statistics[2]
    assert row.md5 == "[2]" and isinstance(hash(row), int)


def test_a_damaged_entry_is_an_error_that_names_it() -> None:
    with pytest.raises(DumpFormatError, match=r"d/dump\.json: the entry 'Torch\.a\.0\.forward' is no JSON object"):
        calls_of({"Torch.a.0.forward": 3}, "d/dump.json")


def test_deep_nesting() -> None:
    deep: Any = tensor()
    for _ in range(400):
        deep = [deep]
    assert len(rows_of("Torch.a.0.forward", api([deep], []))) == 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DumpFormatError, match="nested too deep"):
        rows_of("Torch.a.0.forward", api([deep], []))
    while isinstance(deep, list):  # taken apart by hand: freeing it in one go would overflow the stack
        deep = deep[0]
