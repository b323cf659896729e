"""What stands in the page, without a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import api, backward, frame, module, save_array, tensor, write_dump
from comparison.net import BLOCK, Net
from msprobe.comparison.inputs import make_plan
from msprobe.comparison.one_pair import compare_pair, examine
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome
from msprobe.comparison.reports import report_html
from msprobe.comparison.reports.report_html import pictures, values
from msprobe.comparison.reports.report_html.packing import plain
from msprobe.comparison.reports.report_html.source_lines import context
from msprobe.comparison.reports.report_html.tree import tree

from .made import HOSTILE, hostile, outcome_of, roots


def page_of(outcome: Outcome) -> str:
    assert outcome.html is not None
    return outcome.html.read_text(encoding="utf-8")


def data_of(page: str, name: str) -> Any:
    found = re.search(rf'<script type="application/gzip" id="{name}">([^<]*)</script>', page)
    assert found is not None, name
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def index_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="index">([^<]*)</script>', page)
    assert found is not None
    return json.loads(found[1])


def tree_of(target: Path, golden: Path) -> dict[str, Any]:
    return tree(examine(make_plan(target, golden).pairs[0]))


def test_one_file_for_all_steps_and_ranks(tmp_path: Path) -> None:
    outcome = outcome_of(*roots(tmp_path), tmp_path / "out", "html")
    page = page_of(outcome)
    index = index_of(page)
    assert [(pair["step"], pair["label"]) for pair in index["pairs"]] == [(0, "rank0"), (0, "rank1"), (1, "rank0"), (1, "rank1")]
    assert index["start"] == 1 and not index["clean"]
    for number, report in enumerate(outcome.reports):
        held = data_of(page, f"tree-{number}")
        assert len(held["results"]) == sum(report.counts.values()) == sum(held["rows"])
        assert held["names"][index["pairs"][1]["first"]] == "Functional.relu.0.forward"
    assert list((tmp_path / "out").glob("*.html")) == [outcome.html]
    assert page.count("http") == page.count("http-equiv") + page.count("http://www.w3.org/2000/svg")  # nothing is fetched


def test_only_its_own_scripts_may_run(tmp_path: Path) -> None:
    page = page_of(outcome_of(*hostile(tmp_path), tmp_path / "out", "html"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode() in policy[1]
    assert not any(text in page for text in HOSTILE)
    assert "\u2028" not in page and "\x00" not in page


def test_the_values_are_those_of_the_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "BLOCK", 4)
    compared = examine(make_plan(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g")).pairs[0])
    blocks = list(values.blocks(compared, {}))
    assert len(blocks) == -(-len(compared.calls) // 4)
    header = tree(compared)["header"]
    for number, block in enumerate(blocks):
        expected = [row for call in compared.calls[4 * number : 4 * number + 4] for row in call.rows]
        assert {len(column) for column in block["cells"]} == {len(expected)}
        names = block["cells"][header.index("NPU Name")]
        assert names == [row.pair.target.name for row in expected if row.pair.target is not None]


def test_numbers_survive_javascript() -> None:
    assert [plain(value) for value in (1 << 60, 7, 2.0, 0.1, float("nan"), float("-inf"), None, True, "x")] == [
        str(1 << 60), 7, "2.0", 0.1, "NaN", "-Inf", None, True, "x",
    ]  # fmt: skip


def test_a_part_travels_between_processes(tmp_path: Path) -> None:
    pair = make_plan(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g")).pairs[0]
    report = compare_pair(pair, tmp_path / "o", "1", Options(reports=frozenset({"html"})))
    assert pickle.loads(pickle.dumps(report)).page == report.page


def test_nothing_is_made_that_was_not_asked_for(tmp_path: Path) -> None:
    path = Net().write(tmp_path / "t")
    outcome = outcome_of(path, path, tmp_path / "o")
    assert outcome.html is None and outcome.reports[0].page is None
    assert [file.suffix for file in (tmp_path / "o").iterdir()] == [".csv"]


def test_parents(tmp_path: Path) -> None:
    held = tree_of(*(Net().write(tmp_path / side) for side in "tg"))
    parent = {name: held["names"][at] if at >= 0 else None for name, at in zip(held["names"], held["parents"], strict=True)}
    assert parent["Functional.relu.0.forward"] == BLOCK
    assert parent["Module.head.Linear.parameters_grad.0"] == "Module.head.Linear.backward.0"
    assert parent[BLOCK] is None


def test_what_is_around_a_call_may_have_no_entry(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([tensor()], [tensor()]), "Torch.a.1.forward": api([tensor()], [tensor()])}
    construct = {
        "Torch.a.0.forward": "optimizer",
        "Torch.a.1.forward": "Module.x.X.forward.0",
        "Module.x.X.forward.0": "Module.y.Y.forward.0",
    }
    path = write_dump(tmp_path / "t", data, construct=construct)
    held = tree_of(path, path)
    assert held["recorded"] == 2
    assert set(held["names"][2:]) == {"optimizer", "Module.x.X.forward.0", "Module.y.Y.forward.0"}
    assert held["names"][held["parents"][held["parents"][1]]] == "Module.y.Y.forward.0"


def test_a_circle_of_parents_is_cut(tmp_path: Path) -> None:
    data = {f"Module.{name}.X.forward.0": module([tensor()], [tensor()]) for name in "abc"}
    names = list(data)
    path = write_dump(tmp_path / "t", data, construct={names[0]: names[1], names[1]: names[2], names[2]: names[0]})
    parents = tree_of(path, path)["parents"]
    for node in range(3):
        seen = set()
        while node >= 0:
            assert node not in seen
            seen.add(node)
            node = parents[node]


def test_a_call_of_the_golden_run_only_stands_in_its_module(tmp_path: Path) -> None:
    held = tree_of(Net(dropped=("Functional.relu.0.forward",)).write(tmp_path / "t"), Net().write(tmp_path / "g"))
    at = held["names"].index("Functional.relu.0.forward")
    assert held["sides"][at] == "g"
    assert held["names"][held["parents"][at]] == BLOCK


def test_code_around_a_line(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text("".join(f"line_{number} = {number}\n" for number in range(1, 31)))
    found = context(str(script), 10, "line_10 = 10")
    assert found is not None and found[0] == 6 and found[1] == [f"line_{number} = {number}" for number in range(6, 15)]
    assert context(str(script), 11, "line_10 = 10") is None  # the file has changed since
    assert context(str(script), 99, "line_10 = 10") is None
    assert context(str(tmp_path / "gone.py"), 1, "x") is None
    assert context("/etc/passwd", 1, "root:x:0:0:root:/root:/bin/bash") is None
    assert context("/dev/stdin", 1, "x") is None and context("a\0.py", 1, "x") is None


def test_code_is_in_the_page_where_the_file_is_here(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text("before = 1\ny = torch.a(x)  # </script>\nafter = 2\n")
    stack = {"Torch.a.0.forward": [frame(str(script), 2, "forward", "y = torch.a(x)  # </script>")]}
    sides = [
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([tensor()], [tensor(value)])}, stack=stack)
        for side, value in (("t", 1.0), ("g", 2.0))
    ]
    code = data_of(page_of(outcome_of(sides[0], sides[1], tmp_path / "o", "html")), "code-0")
    assert code["contexts"] == [[1, ["before = 1", "y = torch.a(x)  # </script>", "after = 2"]]]
    assert code["frames"][code["stacks"][code["target"][0]][0]][1] == 2


def test_a_file_that_has_changed_since_is_told(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text("y = torch.a(x)\n")
    stack = {
        "Torch.a.0.forward": [
            frame(str(script), 2, "forward", "y = torch.a(x)"),
            frame(str(tmp_path / "gone.py"), 2, "main", "model(x)"),
            frame("/etc/passwd", 1, "root", "x"),
        ]
    }
    sides = [
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([tensor()], [tensor(value)])}, stack=stack)
        for side, value in (("t", 1.0), ("g", 2.0))
    ]
    page = page_of(outcome_of(sides[0], sides[1], tmp_path / "o", "html"))
    assert [one[-1] for one in data_of(page, "code-0")["frames"]] == [-2, -1, -1]
    assert "The file has changed since" in page


def test_pictures_are_those_of_the_largest_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "LIMIT", 2)
    sides = []
    for side in "tg":
        data = {}
        for number, factor in enumerate((1.0, 1.5, 3.0, 9.0)):
            name = f"Torch.a.{number}.forward"
            held = [1.0, 2.0 * (factor if side == "t" else 1.0)]
            data[name] = api([], [save_array(tmp_path / side, f"{name}.output.0.pt", held)])
        sides.append(write_dump(tmp_path / side, data, task="tensor"))
    compared = examine(make_plan(sides[0], sides[1]).pairs[0])
    assert list(pictures.pictures(compared)) == [1, 3]  # the first difference, then the largest
    (tmp_path / "t/dump_tensor_data/Torch.a.3.forward.output.0.pt").unlink()
    assert list(pictures.pictures(compared)) == [1, 2]
    monkeypatch.setattr(pictures, "ELEMENTS", 3)
    assert list(pictures.pictures(compared)) == [1]


@pytest.mark.parametrize("kind", ["md5", "debug"])
def test_other_kinds_of_dumps(kind: str, tmp_path: Path) -> None:
    sides = []
    for side, value in (("t", 1.0), ("g", 2.0)):
        if kind == "md5":
            sides.append(write_dump(tmp_path / side, {"Torch.a.0.backward": backward([tensor()], [tensor(value, md5=f"{value}")])}))
        else:
            sides.append(write_dump(tmp_path / side, {"loss.0.debug": tensor(value)}, name="debug.json", level="debug"))
    page = page_of(outcome_of(sides[0], sides[1], tmp_path / "o", "html"))
    assert len(data_of(page, "tree-0")["results"]) >= 1


def test_an_outcome_without_pairs(tmp_path: Path) -> None:
    outcome = outcome_of(*roots(tmp_path), tmp_path / "out", "html")
    empty = Outcome(outcome.plan, (), ())
    page = report_html.write(empty, tmp_path, "20260101000000").read_text()
    assert index_of(page)["pairs"] == []
