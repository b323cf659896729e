"""Operators that extensions have registered with torch: under their own prefix, with what they write to as their output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, Step, configured, record, statistics

from msprobe.format import names
from msprobe.pytorch.dump.api_dump.ignoring import Ignored
from msprobe.pytorch.dump.api_dump.written import Written, written

DEFINITIONS = (
    "scale(Tensor x, float by) -> Tensor",
    "scale_into(Tensor! out, Tensor x, float by) -> ()",
    "turn(Tensor positions, Tensor! query, Tensor!? key) -> ()",
    "both(Tensor! x) -> (Tensor, Tensor)",
    "same(Tensor(a!) x) -> Tensor(a!)",
    "through(Tensor! c, Tensor x, Tensor handler_tensor) -> ()",
    "where(Tensor x, int my_ptr) -> Tensor",
)


def _turn(positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None) -> None:
    query.add_(1)
    if key is not None:
        key.add_(2)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


IMPLEMENTATIONS: dict[str, Any] = {
    "scale": lambda x, by: x * by,
    "scale_into": lambda out, x, by: (out.copy_(x * by), None)[1],
    "turn": _turn,
    "both": lambda x: (x.add_(1) * 2, x * 3),
    "same": _same,
    "through": lambda c, x, handler_tensor: (c.copy_(x), None)[1],
    "where": lambda x, my_ptr: x + 1,
}


@pytest.fixture(scope="module", autouse=True)
def libraries() -> Iterator[None]:
    """The same operators in a namespace that is recorded, and in one that is not."""
    made = []
    for namespace in ("sgl_kernel", "msprobe_mine"):
        library = torch.library.Library(namespace, "FRAGMENT")
        for definition in DEFINITIONS:
            library.define(definition)
        for name, function in IMPLEMENTATIONS.items():
            library.impl(name, function, "CompositeExplicitAutograd")
        made.append(library)
    yield
    for library in made:
        library._destroy()


KNOWN = torch.ops.sgl_kernel
X = torch.tensor([1.0, 2.0])


def outputs(step: Step, part: str) -> list[Any]:
    found = step.only(part)["output"]
    return [None if one is None else one["Max"] for one in found]


def test_what_is_written_to_is_the_output(tmp_path: Path) -> None:
    out, query, key = torch.full((2,), 99.0), X.clone(), X.clone()

    def body() -> None:
        KNOWN.scale(X, 3.0)
        KNOWN.scale_into(out, X, 3.0)
        KNOWN.turn(X, query, key)
        KNOWN.turn(X, query=query, key=None)
        KNOWN.both(X.clone())
        KNOWN.same(X.clone())

    step = record(tmp_path, body)
    assert [name for name in step.names if "sgl" in name] == [
        "sgl_kernel.scale.0.forward",
        "sgl_kernel.scale_into.0.forward",
        "sgl_kernel.turn.0.forward",
        "sgl_kernel.turn.1.forward",
        "sgl_kernel.both.0.forward",
        "sgl_kernel.same.0.forward",
    ]
    assert outputs(step, "scale.0") == [6.0]
    assert outputs(step, "scale_into.0") == [6.0] and out.tolist() == [3.0, 6.0]
    assert outputs(step, "turn.0") == [3.0, 4.0]
    assert outputs(step, "turn.1") == [4.0, None]
    assert outputs(step, "both.0") == [6.0, 9.0, 3.0]
    assert outputs(step, "same.0") == [3.0]  # once, though it is returned and written to
    assert statistics(step.only("turn.0")["input_args"][1])[0] == 2.0  # as it was before


def test_memory_that_holds_nothing_and_addresses_are_left_out(tmp_path: Path) -> None:
    def body() -> None:
        KNOWN.scale_into(torch.full((2,), torch.nan), X, 3.0)
        KNOWN.scale_into(out=torch.full((2,), torch.nan), x=X, by=3.0)
        KNOWN.through(torch.zeros(2), X, torch.tensor(12345))
        KNOWN.where(X, 12345)

    step = record(tmp_path, body)
    assert step.only("scale_into.0")["input_args"][0] is None and step.only("scale_into.0")["input_args"][2]["value"] == 3.0
    assert step.only("scale_into.1")["input_kwargs"]["out"] is None
    assert [one is None for one in step.only("through.0")["input_args"]] == [True, False, True]
    assert [one is None for one in step.only("where.0")["input_args"]] == [False, True]
    assert "sgl_kernel.through.0.forward" in str((step.directory / "meta.json").read_text())


def test_files_hold_what_was_written(tmp_path: Path) -> None:
    step = record(tmp_path, lambda: KNOWN.scale_into(torch.zeros(2), X, 3.0), task="tensor")
    stored = torch.load(step.directory / "dump_tensor_data" / "sgl_kernel.scale_into.0.forward.output.0.pt", weights_only=True)
    assert stored.tolist() == [3.0, 6.0]


def test_another_namespace_is_recorded_when_asked_for(tmp_path: Path) -> None:
    def body() -> None:
        torch.ops.msprobe_mine.scale(X, 2.0)
        torch.ops.msprobe_mine.scale_into.default(torch.zeros(2), X, 2.0)
        torch.ops.aten.add(X, X)

    def steps(path: Path, **config: Any) -> list[str]:
        path.mkdir()
        return [name for name in record(path, body, **config).names if "mine" in name]

    assert steps(tmp_path / "a") == []
    operations = tmp_path / "ops"
    operations.mkdir()
    (operations / "support_wrap_ops.yaml").write_text('operators: ["+msprobe_mine.scale*"]\n')
    (operations / "builtin_ignore_ops.yaml").write_text("msprobe_mine:\n  scale: {input: [0]}\n")
    from capturing import forget_debugger

    forget_debugger()
    (tmp_path / "b").mkdir()
    step = record(tmp_path / "b", body, ops_dir=str(operations))
    assert [name for name in step.names if "mine" in name] == ["msprobe_mine.scale.0.forward", "msprobe_mine.scale_into.0.forward"]
    assert step.only("scale.0")["input_args"][0] is None
    assert outputs(step, "scale_into.0") == [4.0]


def test_they_run_as_ever(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="L1")
    debugger.start()
    with torch.inference_mode():
        out = torch.empty(2)
        assert KNOWN.scale_into(out, X, 3.0) is None
        assert torch.equal(out, X * 3)
        changed = X.clone()
        assert KNOWN.same(changed).data_ptr() == changed.data_ptr()
    with pytest.raises(RuntimeError):
        KNOWN.scale_into(X)  # an argument is missing
    debugger.stop()
    debugger.step()
    assert "sgl_kernel.scale_into.0.forward" in Run(tmp_path / "dump").step().names


def test_their_names_are_read_back() -> None:
    for text in ("_C.onednn_mm.12.forward", "vllm.unified_attention_with_output.0.forward"):
        parsed = names.parse(text)
        assert isinstance(parsed, names.ApiName) and str(parsed) == text and parsed.prefix == text.split(".")[0]


def test_schemas() -> None:
    assert written(KNOWN.scale) == (None, None)
    assert written(KNOWN.turn) == (Written(((1, "query"), (2, "key")), False), None)
    assert written(KNOWN.scale_into)[1] == Ignored(inputs=frozenset([0]), keywords=frozenset(["out"]))
    assert written(KNOWN.where) == (None, Ignored(inputs=frozenset([1]), keywords=frozenset(["my_ptr"])))
    assert written(torch.ops.aten.add) == (None, None)
