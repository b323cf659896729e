"""The same net with the same weights, trained in MindSpore and in PyTorch: msprobe compare finds a planted difference, and none beyond
rounding where there is none."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli.main import main

pytestmark = pytest.mark.mindspore
HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"


@pytest.fixture(scope="module")
def dumps(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("across")
    run_mindspore("across/in_mindspore.py", directory)
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent}"}
    done = subprocess.run(
        [sys.executable, str(HERE / "in_pytorch.py")], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return directory


def compared(dumps: Path, name: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, Counter[str]]:
    """Exit code, output, and how many rows have which result."""
    output = dumps / f"out_{name}_{len(options)}"
    capsys.readouterr()
    code = main(["compare", "-tp", str(dumps / f"ms_{name}"), "-gp", str(dumps / f"pt_{name}"), "-o", str(output), *options])
    text = capsys.readouterr().out
    results: Counter[str] = Counter()
    for path in output.glob("step*/compare_result*.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            results.update(row["Result"] for row in csv.DictReader(file))
    return code, text, results


@pytest.mark.parametrize("name", ["statistics", "tensor", "mix"])
def test_nothing_beyond_rounding(name: str, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, results = compared(dumps, name, capsys)
    assert code == 0, text
    assert set(results) == {"pass"} and results["pass"] >= 3 * 57
    assert "No difference beyond rounding" in text
    assert "Cell.conv.Conv2d.forward.0 (inputs equal, parameters equal, output differs)" in text


@pytest.mark.parametrize("name", ["planted", "planted_tensor"])
def test_a_planted_difference(name: str, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, results = compared(dumps, name, capsys)
    assert code == 1, text
    assert results["error"] and not results["unmatched"] and not results["not compared"]
    first = text[text.index("First difference beyond rounding") :]
    if name == "planted":  # level L0 shows the layers alone
        assert "input.0 of Cell.head.Dense.forward.0 differs; no recorded call before it gave a difference" in first
    else:
        assert "argument input.1 of Tensor.__mul__.0.forward" in first or "Tensor.__mul__.0.forward" in first
        assert "in_mindspore.py" in first and "self.factor" in first


def test_level_l1_alone(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What MindSpore's layers are built of is compared with what PyTorch calls."""
    code, text, results = compared(dumps, "calls", capsys)
    assert code == 0, text
    assert set(results) == {"pass"} and results["pass"] >= 3 * 70
    assert "pairs of calls such as Primitive.conv2d.Conv2D.0.forward and Primitive.bias_add.BiasAdd.0.forward" in text
    code, text, results = compared(dumps, "planted_calls", capsys)
    assert code == 1 and results["error"] and not results["unmatched"]
    assert "argument input.1 of Tensor.__mul__.0.forward differs" in text


@pytest.mark.parametrize("name", ["attention", "attention_mix"])
def test_attention(name: str, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Square weights, three dimensions, and an input that nothing asks a gradient of."""
    code, text, results = compared(dumps, name, capsys)
    assert code == 0, text
    assert set(results) == {"pass"} and results["pass"] >= 60, text
    assert ("makes of both: 4" in text) is (name == "attention")


def test_the_calls_alone(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, results = compared(dumps, "structure", capsys)
    assert code == 0, text
    assert set(results) == {"pass"}
