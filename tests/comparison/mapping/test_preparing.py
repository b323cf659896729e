"""What a mapping file says of one side alone: the request of an engine's step, sums, what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
import yaml

from comparison.dumps import tensor
from msprobe.api import compare
from msprobe.comparison.mapping.files import packaged, read_mapping
from msprobe.errors import UsageError
from msprobe.format import layout, tensor_file

WIDTH = 4
A, B = [3, 1, 4, 1, 5], [9, 2]
GENERATOR = np.random.default_rng(0)
HIDDEN = {"a": GENERATOR.normal(size=(len(A), WIDTH)).astype("f4"), "b": GENERATOR.normal(size=(len(B), WIDTH)).astype("f4")}
RESIDUAL = {"a": GENERATOR.normal(size=(len(A), WIDTH)).astype("f4"), "b": GENERATOR.normal(size=(len(B), WIDTH)).astype("f4")}
MAPPING: dict[str, Any] = {
    "prepare": {
        "target": {
            "request": "same",
            "modules_only": True,
            "values": {"layer": {"output.0": ["output.0", "output.1"], "parameters.weight": None}, "engine": None},
        },
        "golden": {"sequence": True, "modules_only": True, "values": {"layer": {"output.0": None, "parameters.weight": None}}},
    }
}


class Writer:
    """Writes a dump with the values of its tensors."""

    def __init__(self, directory: Path, task: str) -> None:
        self.directory, self.task = directory, task
        self.files = directory / layout.TENSORS
        self.files.mkdir(parents=True)

    def tensor(self, name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        dtype = {"f": "float32", "i": "int64"}[array.dtype.kind]
        values = array.astype("f8")
        record = tensor(0.0, dtype, array.shape)
        if array.size:
            record.update(
                Max=float(values.max()), Min=float(values.min()), Mean=float(values.mean()), Norm=float(np.sqrt((values**2).sum()))
            )
        if self.task == "tensor" and array.size:
            record["data_name"] = f"{name}.pt"
            tensor_file.write(str(self.files / f"{name}.pt"), dtype, array.shape, memoryview(np.ascontiguousarray(array).tobytes()))
        return record

    def close(self, data: dict[str, Any], **meta: Any) -> Path:
        head = {"task": self.task, "level": "L0", "framework": "pytorch", "dump_data_dir": str(self.files), "data": data}
        (self.directory / layout.DUMP).write_text(json.dumps(head))
        (self.directory / layout.CONSTRUCT).write_text(json.dumps(dict.fromkeys(data)))
        (self.directory / layout.META).write_text(json.dumps(meta))
        return self.directory


def entry(inputs: list[Any], outputs: list[Any], **parameters: Any) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": {}, "output": outputs, "parameters": parameters}


def fingerprint(tokens: list[int]) -> str:
    return xxhash.xxh64_hexdigest(np.array(tokens, "<i4").tobytes())


def batch(**changes: Any) -> dict[str, Any]:
    requests = [
        {"id": "0-x", "rows": [0, 5], "positions": [0, 5], "prompt_tokens": 5, "prompt": fingerprint(A)},
        {"id": "1-y", "rows": [5, 7], "positions": [0, 2], "prompt_tokens": 2, "prompt": fingerprint(B)},
    ]
    return {"tokens": 7, "requests": requests, **changes}


def engine(path: Path, task: str = "tensor", order: str = "ab", weight: Any = None, **meta: Any) -> Path:
    """Both requests in one tensor, hidden states and residual apart, a weight that cannot be read, a module of its own, an API call."""
    writer = Writer(path, task)
    hidden, residual = (np.concatenate([of[name] for name in order]) for of in (HIDDEN, RESIDUAL))
    weight = np.zeros((0,), "f4") if weight is None else weight
    data = {
        "Torch.index_select.0.forward": entry(
            [writer.tensor("noise", np.zeros((7,), "f4"))], [writer.tensor("noise2", np.ones((7,), "f4"))]
        ),
        "Module.layer.Fused.forward.0": entry(
            [writer.tensor("p", np.arange(7))],
            [writer.tensor("h", hidden), writer.tensor("r", residual)],
            weight=writer.tensor("w", weight),
        ),
        "Module.engine.Cache.forward.0": entry([writer.tensor("c", hidden)], [writer.tensor("d", hidden)]),
    }
    return writer.close(data, **{"batch": batch(), **meta})


def model(path: Path, name: str, tokens: list[int], task: str = "tensor", fault: float = 0.0, more: int = 0) -> Path:
    """One prompt; `more` positions follow it."""
    writer = Writer(path, task)
    whole = HIDDEN[name].astype("f8") + RESIDUAL[name] + fault
    whole = np.concatenate([whole, np.full((more, WIDTH), 7.0)]).astype("f4")[None]
    weight = writer.tensor("w", GENERATOR.normal(size=(WIDTH, WIDTH)).astype("f4"))
    weight["requires_grad"] = True
    ids = writer.tensor("ids", np.array([[*tokens, *range(more)]]))
    data = {
        "Module.embed.Embedding.forward.0": entry([ids], []),
        "Module.layer.Layer.forward.0": entry([writer.tensor("x", whole)], [writer.tensor("y", whole)], weight=weight),
    }
    return writer.close(data)


def mapping(path: Path, **target: Any) -> Path:
    content = json.loads(json.dumps(MAPPING))
    content["prepare"]["target"].update(target)
    content["prepare"]["golden"]["values"]["embed"] = None
    file = path / "mapping.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("name, tokens", [("a", A), ("b", B)])
def test_the_request_with_the_same_prompt(tmp_path: Path, name: str, tokens: list[int]) -> None:
    golden = model(tmp_path / "golden", name, tokens, more=2)
    target = engine(tmp_path / "target")
    content = yaml.safe_load(mapping(tmp_path).read_text())
    content["prepare"]["golden"]["values"]["embed"] = {"input.0": None}
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UsageError, match=r"none has the prompt of the other side.*0: 0-x, 5 tokens; 1: 1-y, 2 tokens"):
        compare(target, model(tmp_path / "other", name, [8] * len(tokens)), mapping=tmp_path / "mapping.yaml")
    found = compare(target, golden, mapping=mapping(tmp_path))
    assert found.passed, found.problems
    ours = [row for call in found.compared[0].calls for row in call.rows if row.pair.target is not None and row.pair.golden is not None]
    assert [
        (row.pair.target.key, row.measure.agreement.name) for row in ours if row.measure is not None and row.pair.target is not None
    ] == [
        ("output.0", "ROUNDING"),
        ("parameters.weight", "UNKNOWN"),
    ]


def _decoding(tmp_path: Path, *requests: dict[str, Any]) -> Path:
    """A step with one token of each request, at position 5; of "a" for the first, of "b" for the second."""
    known = [{"id": str(number), "rows": [number, number + 1], "positions": [5, 6], **one} for number, one in enumerate(requests)]
    writer = Writer(tmp_path / "target", "tensor")
    hidden = np.concatenate([HIDDEN["a"][:1], HIDDEN["b"][:1]])
    return writer.close({"Module.layer.Layer.forward.0": entry([], [writer.tensor("h", hidden)])}, batch={"tokens": 2, "requests": known})


def _whole(tmp_path: Path, tokens: list[int], name: str) -> Path:
    """A forward of these tokens, whose last position has the values of "a" or "b"."""
    writer = Writer(tmp_path / "golden", "tensor")
    ids = writer.tensor("ids", np.array([tokens]))
    hidden = np.concatenate([np.zeros((len(tokens) - 1, WIDTH), "f4"), HIDDEN[name][:1]])[None]
    return writer.close(
        {"Module.embed.Embedding.forward.0": entry([ids], []), "Module.layer.Layer.forward.0": entry([], [writer.tensor("y", hidden)])}
    )


def _plain(tmp_path: Path) -> Path:
    file = tmp_path / "mapping.yaml"
    values = {"layer": {"output.0": None}, "embed": None}
    file.write_text(
        yaml.safe_dump({"prepare": {"target": {"request": "same", "values": values}, "golden": {"sequence": True, "values": values}}})
    )
    return file


def _of(prompt: list[int], *generated: int) -> dict[str, Any]:
    return {"prompt_tokens": len(prompt), "prompt": fingerprint(prompt), "sequence": fingerprint([*prompt, *generated])}


@pytest.mark.parametrize("name, number, last", [("a", 0, 7), ("b", 1, 8)])
def test_of_several_samples_of_one_prompt_that_with_the_same_tokens(tmp_path: Path, name: str, number: int, last: int) -> None:
    target = _decoding(tmp_path, _of(A, 7), _of(A, 8))
    found = compare(target, _whole(tmp_path, [*A, last], name), mapping=_plain(tmp_path))
    assert found.passed, str(found)
    assert f"number {number} is compared" in found.compared[0].notes[0]


def test_a_prompt_that_is_the_beginning_of_another(tmp_path: Path) -> None:
    target = _decoding(tmp_path, _of(A[:2], 6, 6, 6, 6), _of(A[:4], 5, 8))
    found = compare(target, _whole(tmp_path, [*A[:4], 5, 8], "b"), mapping=_plain(tmp_path))
    assert found.passed and "number 1 is compared" in found.compared[0].notes[0]


@pytest.mark.parametrize("known", [True, False])
def test_samples_that_cannot_be_told_apart(tmp_path: Path, known: bool) -> None:
    """The golden run has other tokens than any of them, or what they have was not known when they were recorded."""
    one = _of(A, 9)
    if not known:
        del one["sequence"]
    with pytest.raises(UsageError, match=r"the requests 0, 1 have this prompt, and none is known to have the tokens.*name one"):
        compare(_decoding(tmp_path, one, one), _whole(tmp_path, [*A, 8], "a"), mapping=_plain(tmp_path))


def test_other_tokens_after_the_prompt_are_told(tmp_path: Path) -> None:
    target = _decoding(tmp_path, _of(A, 7), _of([2, 2], 1, 1, 1, 1))
    found = compare(target, _whole(tmp_path, [*A, 9], "a"), mapping=_plain(tmp_path))
    assert any("the two sides have other tokens up to position 5" in note for note in found.compared[0].notes)


def test_a_golden_run_that_ends_before_the_request(tmp_path: Path) -> None:
    target = _decoding(tmp_path, _of(A, 7), _of(A, 8))
    with pytest.raises(UsageError, match="at the positions 5 to 5, and the other side has 5 tokens: record it with the prompt"):
        compare(target, _whole(tmp_path, A, "a"), mapping=_plain(tmp_path))


def test_a_golden_run_of_several_sequences(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "golden", "tensor")
    data = {
        "Module.embed.Embedding.forward.0": entry([writer.tensor("ids", np.array([[*A, 7], [*A, 8]]))], []),
        "Module.rotary.Rotary.forward.0": entry([writer.tensor("positions", np.arange(6)[None])], []),
    }
    golden = writer.close(data)
    with pytest.raises(UsageError, match=r"is \[2, ?6\], several sequences in one forward"):
        compare(_decoding(tmp_path, _of(A, 7), _of(A, 8)), golden, mapping=_plain(tmp_path))


def test_a_fault_in_one_request_alone(tmp_path: Path) -> None:
    """It would be seen in neither side's mean of the whole batch."""
    target = engine(tmp_path / "target")
    for name, tokens, fault in (("a", A, 0.0), ("b", B, 0.01)):
        found = compare(target, model(tmp_path / name, name, tokens, fault=fault), mapping=mapping(tmp_path))
        assert found.passed is (not fault)
    assert "`layer` differs" in str(found)


@pytest.mark.parametrize("wanted", [1, "1-y"])
def test_a_request_by_number_or_id(tmp_path: Path, wanted: int | str) -> None:
    found = compare(engine(tmp_path / "target"), model(tmp_path / "golden", "b", B), mapping=mapping(tmp_path, request=wanted))
    assert found.passed
    assert any("of the 2 requests of the target's step, number 1 is compared: rows 5 to 6" in note for note in found.compared[0].notes)


@pytest.mark.parametrize("wanted", [2, -1, "2-z"])
def test_a_request_that_is_not_there(tmp_path: Path, wanted: int | str) -> None:
    with pytest.raises(UsageError, match=f"there is no request {wanted!r}; name one in the mapping file"):
        compare(engine(tmp_path / "target"), model(tmp_path / "golden", "b", B), mapping=mapping(tmp_path, request=wanted))


@pytest.mark.parametrize(
    "meta",
    [
        {"batch": None},
        {"batch": {}},
        {"batch": {"tokens": 7, "requests": []}},
        *({"batch": {"requests": [{"rows": rows}], "tokens": 1}} for rows in (1, ["0", 1], "01", {"0": 0, "1": 1})),
        *({"batch": {"requests": [{"rows": [0, 1], "positions": at}], "tokens": 1}} for at in (1, ["0", 1], [0])),
        {"batch": {"requests": [{"rows": [0, 1]}], "tokens": "1"}},
    ],
)
def test_a_dump_without_requests(tmp_path: Path, meta: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="does not say which rows belong to which request"):
        compare(engine(tmp_path / "target", **meta), model(tmp_path / "golden", "b", B), mapping=mapping(tmp_path))


def test_from_statistics_only_what_follows_is_compared(tmp_path: Path) -> None:
    """Rows of one request of several do not follow from the statistics of all."""
    target, golden = engine(tmp_path / "target", "statistics"), model(tmp_path / "golden", "b", B, "statistics")
    found = compare(target, golden, mapping=mapping(tmp_path))
    assert not found.passed and not any(
        row.measure.agreement.name == "SAME" for call in found.compared[0].calls for row in call.rows if row.measure
    )


def test_statistics_of_a_step_with_one_request(tmp_path: Path) -> None:
    one = [{"id": "0", "rows": [0, 5], "positions": [0, 5]}]
    target = engine(tmp_path / "target", "statistics", order="a", batch={"tokens": 5, "requests": one})
    content = yaml.safe_load(mapping(tmp_path).read_text())
    for side in ("target", "golden"):
        content["prepare"][side]["values"]["layer"] = {"output.0": "output.0"}
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump(content))
    writer = Writer(tmp_path / "golden", "statistics")
    ids = writer.tensor("ids", np.array([A]))
    golden = writer.close(
        {
            "Module.embed.Embedding.forward.0": entry([ids], []),
            "Module.layer.Layer.forward.0": entry([], [writer.tensor("y", HIDDEN["a"][None])]),
        }
    )
    assert compare(target, golden, mapping=tmp_path / "mapping.yaml").passed


def test_a_weight_that_can_be_read_is_compared(tmp_path: Path) -> None:
    target = engine(tmp_path / "target", weight=np.ones((WIDTH, WIDTH), "f4"))
    found = compare(target, model(tmp_path / "golden", "a", A), mapping=mapping(tmp_path))
    assert not found.passed and "weight" in str(found)


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    found = compare(engine(tmp_path / "target"), model(tmp_path / "golden", "a", A), mapping=mapping(tmp_path))
    notes = " ".join(found.compared[0].notes)
    assert "leaves out 6 values of the target: Torch.index_select.0.forward, Module.layer.Fused.forward.0 ..." in notes
    assert "leaves out 2 values of the golden run" in notes


@pytest.mark.parametrize(
    "values, said",
    [
        ({"layer": {"output.0": ["output.0", "output.7"]}}, "layer has no output.7; nearest: output.1, output.0"),
        ({"layer": {"output.0": None, "outptu.0": None}}, "layer has no outptu.0; nearest: output.0, output.1"),
        ({"layer": {"output.0": None}, "layr": {"output.0": None}}, "no module layr; nearest: layer"),
        ({"layr.*": {"output.0": None}, "x": {"output.0": None}}, "no module layr.*; nearest: layer (and 1 more)"),
        ({"layer": {"output.0": ["output.0", "output.1"], "parameters.bias": None}, "nowhere": None}, ""),
    ],
)
def test_names_that_the_side_does_not_have_are_told(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    """Not parameters and what is left out: one file serves several models."""
    found = compare(engine(tmp_path / "target"), model(tmp_path / "golden", "a", A), mapping=mapping(tmp_path, values=values))
    told = [note for note in found.compared[0].notes if "prepares" in note]
    assert told == ([f"the mapping file prepares what the target does not have: {said}"] if said else [])


@pytest.mark.parametrize("parallel, refused", [({"tensor": 2}, True), ({"tensor": 1, "pipeline": 2}, False), (None, False), (3, False)])
def test_parts_of_values_are_refused(tmp_path: Path, parallel: Any, refused: bool) -> None:
    """Their shapes differ from those of the other side, which would name the wrong culprit."""
    target, golden = engine(tmp_path / "target", parallel=parallel), model(tmp_path / "golden", "a", A)
    assert compare(target, golden, mapping=mapping(tmp_path)).passed
    file = mapping(tmp_path, whole=True)
    if refused:
        with pytest.raises(UsageError, match=r"one of 2 tensor-parallel ranks, which holds parts of values.*hf_llama_tp"):
            compare(target, golden, mapping=file)
    else:
        assert compare(target, golden, mapping=file).passed


def test_a_reference_is_refused(tmp_path: Path) -> None:
    golden = model(tmp_path / "golden", "a", A)
    with pytest.raises(UsageError, match="does not go with --reference"):
        compare(engine(tmp_path / "target"), golden, mapping=mapping(tmp_path), reference=str(golden))


def test_only_one_side_has_requests(tmp_path: Path) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text("prepare: {target: {request: 0}, golden: {request: same}}")
    with pytest.raises(UsageError, match="only one of the two sides can have a `request`"):
        read_mapping(file)


def test_the_packaged_mapping() -> None:
    path = packaged(Path("hf_llama"))
    assert path.is_file() and path.name == "hf_llama.yaml"
    names, tensors = read_mapping(Path("hf_llama"))
    assert names.modules == {"logits_processor": "lm_head"} and tensors.prepare is not None and len(tensors.rules) == 5
    assert tensors.prepare[0].whole
    _, tensors = read_mapping(Path("hf_llama_tp"))
    assert tensors.prepare is not None and not tensors.prepare[0].whole and len(tensors.rules) == 1
    assert packaged(Path("no_such_mapping")) == Path("no_such_mapping")
    with pytest.raises(UsageError, match="does not exist"):
        read_mapping(Path("no_such_mapping"))


def test_a_file_of_the_users_goes_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hf_llama").write_text("classes: {A: B}")
    monkeypatch.chdir(tmp_path)
    assert read_mapping(Path("hf_llama"))[0].classes == {"A": "B"}
