"""Whatever stands in the JSON files of a dump, the answer is a result or one clear sentence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, problems
from msprobe.errors import MsprobeException

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["NaN", "torch.float32", "int64", "cpu", "=1", "a\n", "\ud800", "../x.pt", "Torch.a.0.forward.input.0.pt", "1e999"]),
)
keys = st.sampled_from(
    [
        "type",
        "dtype",
        "shape",
        "Max",
        "Min",
        "Mean",
        "Norm",
        "requires_grad",
        "data_name",
        "value",
        "format",
        "group_ranks",
        "class_type",
        "0",
        "",
    ]
)
kinds = st.sampled_from(["torch.Tensor", "int", "slice", "torch.Size", "ellipsis", "torch.ProcessGroup", "torch.device", "x"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=5),
        st.builds(lambda rest, kind: {**rest, "type": kind}, st.dictionaries(keys, inner, max_size=8), kinds),
    ),
    max_leaves=12,
)
parts = st.sampled_from(["input_args", "input_kwargs", "input", "output", "parameters", "weight"])
names = st.sampled_from(
    [
        "Torch.a.0.forward",
        "Torch.a.0.backward",
        "Torch.a.0.backward.pass1",
        "Module.a.A.forward.0",
        "Module.a.A.backward.0",
        "Module.a.A.parameters_grad.0",
        "x.0.debug",
        "Torch.empty.0.forward",
        "Tensor.__setitem__.0.forward",
        "Torch.relu_.0.forward",
        "Functional.relu_.1.forward",
        "",
        "..",
        "\x1b[31m",
    ]
)
statistics = st.one_of(leaves, st.sampled_from([[1], {"a": 1}, 0.5]))
records = st.builds(
    lambda rest, fields: {**rest, "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **fields},
    st.dictionaries(keys, leaves, max_size=3),
    st.fixed_dictionaries({"Max": statistics, "Min": statistics, "Mean": statistics, "Norm": statistics}, optional={"md5": statistics}),
)
entries = st.dictionaries(parts, st.one_of(values, records, st.lists(records, max_size=2)), min_size=1, max_size=4)
dumps = st.dictionaries(names, entries, min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(dumps, dumps, st.sampled_from(["statistics", "tensor"]), values, values)
def test_any_json_gives_a_result_or_a_sentence(target: Any, golden: Any, task: str, construct: Any, stack: Any) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for side, data in (("t", target), ("g", golden)):
            folder = root / side
            folder.mkdir()
            (folder / "dump.json").write_text(json.dumps({"task": task, "data": data}))
            (folder / "construct.json").write_text(json.dumps(construct))
            (folder / "stack.json").write_text(json.dumps(stack))
        try:
            outcome = compare(root / "t", root / "g", root / "o")
        except MsprobeException as error:
            assert str(error) and "\n" not in str(error)
            return
        assert all(isinstance(line.text, str) for line in describe(outcome))
        assert all(isinstance(text, str) for text in problems(outcome))
        assert outcome.exit_code in (0, 1, 2)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=30)
@given(dumps)
@example({"Torch.a.0.forward": {"input_args": {"type": "torch.Tensor", "dtype": None, "value": [float("nan")]}}})
def test_a_dump_never_differs_from_itself(data: Any) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "dump.json"
        path.write_text(json.dumps({"task": "statistics", "data": data}))
        try:
            outcome = compare(path, path, Path(temporary) / "o")
        except MsprobeException:
            return
        report = outcome.reports[0]
        assert report.findings.first is None
        assert report.counts["error"] == report.counts["warning"] == report.counts["unmatched"] == 0
        assert report.counts["pass"] + report.counts["not compared"] == report.matched
