"""The page: one file, from the parts of all pairs of dumps."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from msprobe import __version__
from msprobe.comparison.block import Line
from msprobe.comparison.describe import describe, problems
from msprobe.comparison.inputs import Plan
from msprobe.comparison.order import guilty_first, unmatched_first
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.reports.new_file import new_file
from msprobe.comparison.reports.report_html.packing import inline
from msprobe.comparison.reports.report_html.pictures import ELEMENTS, LIMIT
from msprobe.comparison.sentence import opening

STYLES = ("colours.css", "layout.css", "tree.css", "details.css")
SCRIPTS = tuple(
    f"{name}.js" for name in ("dom", "data", "names", "model", "tree", "numbers", "pictures", "code", "details", "header", "app")
)
"""In the order in which they stand in the page: each may use what those before it define."""

_MARKS = {
    "first": "first that differs",
    "value": "first value that differs",
    "beyond": "first beyond rounding",
    "unmatched": "first without partner",
}


def write(outcome: Outcome, directory: Path, stamp: str) -> Path:
    """Writes `compare_report_{stamp}.html` from the parts in the outcome's reports; returns its path. Raises OSError."""
    with new_file(directory, f"compare_report_{stamp}", "html") as (path, stream):
        for text in document(outcome, stamp):
            stream.write(text.encode("utf-8", "backslashreplace"))
    return path


def document(outcome: Outcome, stamp: str) -> Iterator[str]:
    """The text of the page, piece by piece."""
    style = "\n".join(map(_asset, STYLES))
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    # Only these styles and scripts run, whatever else a dump may have brought into the page; nothing is fetched or sent.
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    before, after = _asset("page.html").split("<!-- data -->")
    yield before.replace("<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">').replace(
        "<!-- style -->", f"<style>{style}</style>"
    )
    yield f'<script type="application/json" id="index">{inline(_index(outcome, stamp))}</script>\n'
    for number, report in enumerate(outcome.reports):
        page = report.page
        if page is None:
            continue
        yield _packed(f"tree-{number}", page.tree)
        yield _packed(f"code-{number}", page.code)
        for place, block in enumerate(page.blocks):
            yield _packed(f"values-{number}-{place}", block)
        for place, picture in enumerate(page.pictures):
            yield _packed(f"picture-{number}-{place}", picture)
    yield after.replace("<!-- script -->", f"<script>{script}</script>")


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(name: str, data: bytes) -> str:
    return f'<script type="application/gzip" id="{name}">{base64.b64encode(data).decode()}</script>\n'


def _index(outcome: Outcome, stamp: str) -> dict[str, Any]:
    """What the page knows before it unpacks anything."""
    shown = [report for report in outcome.reports if report.page is not None]
    guilty = guilty_first(outcome)
    interesting = guilty[:1] or [report for report in shown if report.counts["error"] or report.counts["unmatched"]]
    start = next((i for i, report in enumerate(shown) if interesting and report is interesting[0]), 0)
    return {
        "version": 1,
        "msprobe": __version__,
        "made": f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}",
        "sentence": opening(outcome),
        "clean": outcome.exit_code == 0,
        "start": start,
        "pairs": [_pair(report, number, outcome.plan) for number, report in enumerate(outcome.reports) if report.page is not None],
        "apart": [*outcome.plan.one_sided],
        "problems": list(problems(outcome)),
        "limits": {"pictures": LIMIT, "elements": ELEMENTS},
    }


def _pair(report: PairReport, number: int, plan: Plan) -> dict[str, Any]:
    pair, page = report.pair, report.page
    assert page is not None
    alone = Outcome(Plan("file", (pair,), (), ()), (report,), ())
    start = "unmatched" if unmatched_first(report) else "first"
    return {
        "number": number,
        "step": pair.step,
        "label": pair.label,
        "target": str(pair.target),
        "golden": str(pair.golden),
        "mode": report.mode,
        "matched": report.matched,
        "counts": dict(report.counts),
        "sentence": opening(alone),
        "lines": [[line.text, line.style] for line in describe(alone) if not _is_elsewhere(line)],
        "notes": [*plan.notes, *report.notes],
        "first": page.first.get(start),
        "marks": {str(call): _MARKS[word] for word, call in page.first.items()} | {str(page.first.get(start)): "first difference"},
        "blocks": len(page.blocks),
        "pictures": len(page.pictures),
    }


def _is_elsewhere(line: Line) -> bool:
    """Whether the page shows a line of the terminal in a place of its own."""
    return line.style == "lead" or line.text.startswith(("result: ", "note: "))
