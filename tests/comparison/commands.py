"""The command as a person runs it, in this process, and what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from msprobe.cli.main import main

from .dumps import read_csv


class Ran(NamedTuple):
    """What came of one `msprobe compare`."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def csvs(self) -> list[Path]:
        return sorted(self.output.rglob("*compare_result*.csv"))

    @property
    def rows(self) -> list[dict[str, str]]:
        return [row for path in self.csvs for row in read_csv(path)]

    def row(self, name: str) -> dict[str, str]:
        (found,) = (row for row in self.rows if name in (row["NPU Name"], row["Bench Name"]))
        return found

    def result(self, name: str) -> str:
        return self.row(name)["Result"]

    def messages(self, name: str) -> list[str]:
        found = json.loads(self.row(name)["Err_message"])
        assert isinstance(found, list)
        return found


def compare(capsys: pytest.CaptureFixture[str], target: Path, golden: Path, output: Path, *options: str) -> Ran:
    """Runs it; whatever happens ends in an exit code and never in a traceback."""
    capsys.readouterr()
    code = main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(output), *options])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return Ran(code, out, err, output)
