"""Which reports one pair of dumps gets beside its CSV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msprobe.comparison.compared import Compared
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import PairReport

KINDS = ("xlsx", "jsonl", "html")
"""What Options.reports may hold."""


def write_reports(report: PairReport, compared: Compared, output: Path, stem: str, stamp: str, options: Options) -> PairReport:
    """Writes what `options.reports` asks for; returns the report with the paths, and with its part of the HTML page.

    Raises OSError; then the file at fault is not left behind.
    """
    name = f"{stem}_{stamp}"
    if "jsonl" in options.reports:
        from msprobe.comparison.reports import json_lines

        report = replace(report, jsonl=json_lines.write(compared, output, name))
    if "xlsx" in options.reports:
        from msprobe.comparison.reports import xlsx

        report = replace(report, xlsx=xlsx.write(report, compared, output, name))
    if "html" in options.reports:
        from msprobe.comparison.reports import report_html

        report = replace(report, page=report_html.part(compared))
    return report
