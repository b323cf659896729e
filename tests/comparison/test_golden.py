"""The CSV of the existing tool and ours, cell by cell; every cell that differs is listed here with the reason."""

from __future__ import annotations

import csv
import json
import math
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.mapping.files import read_names
from msprobe.comparison.mapping.names import Names
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "analysis"
METRICS = ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
RATIOS = METRICS[4:]
BESIDES = ("size: ", "hint: ", "follows: ", "warning: follows: ")
RELATIVE = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
DIFFERENCES = ("Max diff", "Min diff", "Mean diff", "L2norm diff")


class Deviation(NamedTuple):
    """Our Result, and the other columns in which a row differs (Err_message goes with Result)."""

    result: str
    columns: tuple[str, ...] = ()
    same_message: bool = False


F4_UNMATCHED = Deviation("unmatched")
F7_SMALL = Deviation("error", ("Cosine", "EucDist", *RATIOS))
VALUE = Deviation("error")  # F13, F14: only the Norm of outputs was judged
FOLLOWS = Deviation("warning")  # F13: inputs are judged, and what only follows from them is a warning
IGNORED = Deviation("error")  # a list of APIs of which every difference was passed over
SIX = Deviation("error")  # F10: 0.6 as the text says, not 0.1

_FSDP = {"_fsdp_wrapped_module.model.layers.*._fsdp_wrapped_module": "model.layers.*"}
OPTIONS = {"fuzzy_ok_t": Options(fuzzy=True), "consistent": Options(names=Names(modules=_FSDP))}

DEVIATIONS: dict[str, dict[str, Deviation]] = {
    "stats_edge": {
        "Torch.diff.0.forward.output.0": VALUE,
        "Torch.num_nan.0.forward.output.0": VALUE,
        "Torch.inf_nan.0.forward.output.0": VALUE,
        "Torch.null_null.0.forward.output.0": Deviation("not compared"),
        "Torch.null_num.0.forward.output.0": Deviation("not compared"),
        "Torch.bool.0.forward.output.0": VALUE,
        "Torch.negzero.0.forward.output.0": Deviation("pass", RELATIVE),  # -0.0 is 0.0
        "Torch.negbench.0.forward.output.0": VALUE,
        "Torch.huge.0.forward.output.0": Deviation("error", RELATIVE, same_message=True),  # 200 %, not inf
        "Torch.bigint.0.forward.output.0": Deviation("pass", DIFFERENCES + RELATIVE),  # F9; the dtype of this sample is float32
        "Torch.str.0.forward.output.0": VALUE,
    },
    "stats_rules": {
        "Torch.in0_out0p5.0.forward.output.0": VALUE,
        "Torch.in0_out0p11.0.forward.output.0": VALUE,
        "Torch.in0_out0p1.0.forward.output.0": VALUE,
        "Torch.in0p099_out0p6.0.forward.input.0": FOLLOWS,
        "Torch.in0p11_out0p6.0.forward.input.0": FOLLOWS,
        "Torch.in0p11_out0p6.0.forward.output.0": FOLLOWS,
        "Torch.in0p01_out0p11.0.forward.input.0": FOLLOWS,
        "Torch.in0p01_out0p1.0.forward.input.0": FOLLOWS,
        "Torch.in0p01_out0p1.0.forward.output.0": FOLLOWS,
        "Tensor.to.0.forward.output.0": IGNORED,
        "Distributed.all_to_all_single.0.forward.output.0": IGNORED,
    },
    "scalars_statistics": {"Torch.sc.0.forward.input.7": VALUE},  # a slice
    "layer_added": {
        "Module.blocks.1.fc.Linear.forward.0.input.0": VALUE,
        "Module.blocks.1.fc.Linear.forward.0.output.0": FOLLOWS,
        "Module.blocks.2.fc.Linear.forward.0.input.0": F4_UNMATCHED,
        "Module.blocks.2.fc.Linear.forward.0.output.0": F4_UNMATCHED,
    },
    "match_extra_target": {f"Torch.mul.0.forward.{place}": F4_UNMATCHED for place in ("input.0", "output.0")},
    "dict_output": {},
    "fuzzy_ok_t": {},  # made with -fm
    "consistent": {},  # made with --consistent_check --backend fsdp; here with a mapping file
    "tensor_rules": {
        "Torch.r10.0.forward.output.0": SIX,
        "Torch.r11.0.forward.output.0": SIX,
        "Torch.r50.0.forward.output.0": SIX,
        "Torch.r59.0.forward.output.0": SIX,
        "Torch.r90.0.forward.output.0": Deviation("warning"),
        "Torch.in89.0.forward.input.0": FOLLOWS,
        "Torch.in89.0.forward.output.0": FOLLOWS,
        "Torch.in90.0.forward.input.0": FOLLOWS,
        "Torch.in90.0.forward.output.0": FOLLOWS,
        "Torch.in91.0.forward.input.0": FOLLOWS,
        "Torch.two.0.forward.output.0": Deviation("pass"),  # F11: the mark belongs to the next row
        "Torch.two.0.forward.output.1": VALUE,
        "Module.output.Linear.forward.0.input.0": FOLLOWS,  # F12: an input of a module called `output`
        "Module.output.Linear.forward.0.output.0": FOLLOWS,
        "Tensor.__setitem__.0.forward.output.0": IGNORED,
    },
    "tensor_edge": {
        "Torch.nan_diffpos.0.forward.output.0": VALUE,  # F6
        "Torch.nan_bench_only.0.forward.output.0": VALUE,  # F6
        "Torch.inf_opposite_sign.0.forward.output.0": Deviation("error", METRICS),  # F5
        "Torch.scalar0d.0.forward.output.0": F7_SMALL,
        "Torch.scalar0d_nan.0.forward.output.0": Deviation("pass", METRICS, same_message=True),
        "Torch.scalar0d_bool.0.forward.output.0": F7_SMALL,
        "Torch.scalar0d_int.0.forward.output.0": F7_SMALL,
        "Torch.one_elem.0.forward.output.0": F7_SMALL,
        "Torch.one_by_one.0.forward.output.0": F7_SMALL,
        "Torch.int64.0.forward.output.0": VALUE,
        "Torch.int64_big.0.forward.output.0": Deviation("error", ("EucDist", "MaxAbsErr")),  # F9
        "Torch.bool.0.forward.output.0": VALUE,
        "Torch.shape_squeeze.0.forward.output.0": Deviation("error", METRICS, same_message=True),  # no squeeze
        "Torch.dtype_f32_int32.0.forward.output.0": Deviation(
            "error",
            (
                "Bench Name",
                "Bench Dtype",
                "Bench Tensor Shape",
                "Bench Requires_grad",
                *METRICS,
                "Bench max",
                "Bench min",
                "Bench mean",
                "Bench l2norm",
                "Requires_grad Consistent",
                "Data_name",
            ),
        ),  # stays a pair
        "Torch.fp16_big.0.forward.output.0": SIX,
        "Torch.f32_huge.0.forward.output.0": SIX,
        "Torch.f64_huge.0.forward.output.0": Deviation("error", ("Cosine", "MaxRelativeErr")),
        "Torch.complex.0.forward.output.0": Deviation("error", METRICS),  # F8
        "Torch.half_within.0.forward.output.0": SIX,
    },
}


def unpacked(name: str, directory: Path) -> Path:
    archive = GOLDEN / name / "dumps.tgz"
    if not archive.exists():
        return GOLDEN / name
    with tarfile.open(archive) as content:
        content.extractall(directory, filter="data")
    return directory


def rows_of(path: Path) -> tuple[list[str], dict[str, dict[str, str]]]:
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        return list(reader.fieldnames or ()), {row["NPU Name"]: row for row in reader}


def equal_cells(theirs: str, ours: str) -> bool:
    if theirs == ours:
        return True
    if theirs.startswith("[") and ours.startswith('["'):  # Err_message: what we say besides stands behind
        there, here = json.loads(theirs), json.loads(ours)
        return bool(there) and here[: len(there)] == there and all(text.startswith(BESIDES) for text in here[len(there) :])
    try:
        # The existing tool computes relative errors in float32.
        return math.isclose(float(theirs), float(ours), rel_tol=1e-6, abs_tol=1e-12)
    except ValueError:
        return False


@pytest.mark.parametrize("name", DEVIATIONS)
def test_columns_and_values_are_those_of_the_existing_tool_but_for_its_faults(name: str, tmp_path: Path) -> None:
    sample = unpacked(name, tmp_path)
    outcome = compare(sample / "target" / "dump.json", sample / "golden" / "dump.json", tmp_path / "out", OPTIONS.get(name, DEFAULTS))
    header, theirs = rows_of(GOLDEN / name / "expected.csv")
    our_header, ours = rows_of(outcome.reports[0].csv)
    assert our_header == header
    assert list(ours) == list(theirs)
    for row, expected in theirs.items():
        differing = [column for column in header if not equal_cells(expected[column], ours[row][column])]
        deviation = DEVIATIONS[name].get(row)
        if deviation is None:
            assert differing == [], row
            continue
        allowed = {"Result", "Err_message", *deviation.columns}
        assert ours[row]["Result"] == deviation.result, row
        assert set(deviation.columns) <= set(differing) <= allowed, row
        assert ("Err_message" not in differing) == (deviation.same_message or deviation.result == expected["Result"] == "pass"), row


def test_backward_calls_are_paired_by_name_where_the_existing_tool_pairs_them_by_position(tmp_path: Path) -> None:
    """F15: the two backward calls stand in another order in the golden dump, and all values agree."""
    sample = GOLDEN / "match_backward"
    outcome = compare(sample / "target" / "dump.json", sample / "golden" / "dump.json", tmp_path)
    _, ours = rows_of(outcome.reports[0].csv)
    assert all(row["NPU Name"] == row["Bench Name"] for row in ours.values())
    assert outcome.reports[0].counts["pass"] == 8
    assert outcome.exit_code == 0


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_are_paired_by_hand(mapped: bool, tmp_path: Path) -> None:
    """F4: without `-dm` nothing has a partner, which is no pass."""
    sample = GOLDEN / "match_none"
    mapping = read_names(sample / "dm.yaml", "data mapping", "target: golden") if mapped else {}
    paths = sample / "target" / "dump.json", sample / "golden" / "dump.json"
    if not mapped:
        with pytest.raises(UsageError, match="has a partner"):
            compare(*paths, tmp_path)
        return
    _, ours = rows_of(compare(*paths, tmp_path, Options(data_mapping=mapping)).reports[0].csv)
    assert [(name, row["Bench Name"], row["Result"]) for name, row in ours.items()] == [
        (f"Torch.a.0.forward.{place}", f"Torch.b.0.forward.{place}", "pass") for place in ("input.0", "output.0")
    ]


@pytest.mark.parametrize("file", ["cm.yaml", "cm2.yaml"])
def test_modules_are_paired_by_a_cell_mapping(file: str, tmp_path: Path) -> None:
    """By whole names, and by parts of them."""
    sample = GOLDEN / "cellmap"
    names = Names(cells=read_names(sample / file, "cell mapping", "fc1.MyLinear: fc2.Linear"))
    outcome = compare(sample / "target" / "dump.json", sample / "golden" / "dump.json", tmp_path, Options(names=names))
    _, ours = rows_of(outcome.reports[0].csv)
    assert [(name, row["Bench Name"], row["Result"]) for name, row in ours.items()] == [
        (f"Module.fc1.MyLinear.forward.0.{place}", f"Module.fc2.Linear.forward.0.{place}", "pass") for place in ("input.0", "output.0")
    ]


def test_debug_json_gives_one_row_per_value(tmp_path: Path) -> None:
    sample = unpacked("debugjson", tmp_path)
    outcome = compare(sample / "target" / "debug.json", sample / "golden" / "debug.json", tmp_path / "out")
    report = outcome.reports[0]
    assert report.csv.name.startswith("debug_compare_result_")
    _, theirs = rows_of(GOLDEN / "debugjson" / "expected.csv")
    _, ours = rows_of(report.csv)
    assert list(ours) == ["x2.0.debug", "x2_grad.0.debug.a.0"]
    for column in METRICS:
        assert equal_cells(theirs["x2.0.debug"][column], ours["x2.0.debug"][column])


@pytest.mark.parametrize("rank", [0, 1])
def test_the_sample_of_two_ranks(rank: int, tmp_path: Path) -> None:
    """Its results are workbooks, in which a number has 16 digits and a bool is 0 or 1; what follows from the fault is a warning in ours."""
    from comparison.test_merge import sheets

    compare(GOLDEN / "multirank" / "target", GOLDEN / "multirank" / "golden", tmp_path)
    (workbook,) = (GOLDEN / "multirank" / "result").glob(f"compare_result_rank{rank}_*.xlsx")
    (written,) = tmp_path.glob(f"compare_result_rank{rank}_*.csv")
    header, *lines = sheets(workbook)["Sheet1"]
    with open(written, encoding="utf-8", newline="") as stream:
        ours = list(csv.DictReader(stream))
    assert list(ours[0]) == header and len(ours) == len(lines)
    follow = {0: ["Torch.sub.0"], 1: ["Distributed.all_reduce.1", "Torch.sub.0"]}[rank]
    for line, row in zip(lines, ours, strict=True):
        theirs = dict(zip(header, line, strict=True))
        follows = row["Result"] != theirs["Result"]
        assert not follows or (row["Result"] == "warning" and row["NPU Name"].startswith(tuple(follow)))
        for column in header:
            assert _alike(row[column], theirs[column]) or (column in ("Result", "Err_message") and follows), (row["NPU Name"], column)


def _alike(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if ours in ("True", "False"):
        return theirs == str(int(ours == "True"))
    if ours.startswith("["):  # messages of theirs, and behind them those of ours
        return [text for text in json.loads(ours) if not text.startswith(BESIDES)] == json.loads(theirs)
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-15)
    except ValueError:
        return False
