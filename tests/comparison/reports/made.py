"""Comparisons for the tests of reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comparison.dumps import api, tensor, write_dump
from comparison.net import Net
from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compare import compare
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import find
from msprobe.comparison.inputs import DumpPair, Plan
from msprobe.comparison.judge import judge
from msprobe.comparison.match import CallPair, RowPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import parse
from msprobe.comparison.one_pair import report_of
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome
from msprobe.comparison.reports import report_html
from msprobe.comparison.rows import Call, Role, Row

HOSTILE = (
    "</script><script>document.title='broken into'</script>",
    "<img src=x onerror=\"document.title='broken into'\">",
    "--><!--<svg onload=document.title='broken into'>",
    "\u2028\u2029\x00\x1b[31m&lt;&quot;",
    '=HYPERLINK("http://example.com")',
)


def outcome_of(target: Path, golden: Path, output: Path, *reports: str) -> Outcome:
    return compare(target, golden, output, Options(reports=frozenset(reports)))


def roots(directory: Path) -> tuple[Path, Path]:
    """Two steps of two ranks; of step 0 only rank 1 differs."""
    for step in (0, 1):
        for rank in (0, 1):
            Net(relu_gain=1.5 if step or rank else 1.0).write(directory / f"t/step{step}/rank{rank}")
            Net().write(directory / f"g/step{step}/rank{rank}")
    return directory / "t", directory / "g"


def hostile(directory: Path) -> tuple[Path, Path]:
    """Names, keys, values, parents and lines of code that a page or a spreadsheet might take for more than text."""
    sides = []
    for side, value in (("t", 1.0), ("g", 2.0)):
        data, construct, stack = {}, {}, {}
        for number, text in enumerate(HOSTILE):
            name = f"Functional.{text}.{number}.forward"
            data[name] = api([tensor(1.0), {"type": "str", "value": text}], [tensor(value)], **{text: tensor(3.0)})
            construct[name] = f"Module.{text}.{text}.forward.0"
            stack[name] = [f"File /home/{text}.py, line 3, in {text}, \n {text}"]
        sides.append(write_dump(directory / side, data, construct=construct, stack=stack))
    return sides[0], sides[1]


def structure(directory: Path) -> tuple[Path, Path]:
    """Two dumps without values; the line of one call reads otherwise."""
    sides = []
    for side, line in (("t", "y = relu(x)"), ("g", "y = relu(x + 1)")):
        module = "Module.a.A.forward.0"
        stack = {name: [f"File /home/me/model.py, line 3, in forward, \n {line if 'relu' in name else 'a(x)'}"] for name in (_RELU, module)}
        sides.append(write_dump(directory / side, {}, task="structure", construct={_RELU: module, module: None}, stack=stack))
    return sides[0], sides[1]


_RELU = "Functional.relu.0.forward"
_KEYS: tuple[tuple[str, Role], ...] = (("input.0", "input"), ("input.1", "input"), ("output.0", "output"))
_METRICS = ("Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")


def large(layers: int, calls: int) -> Outcome:
    """An outcome with the part of a page for `layers` modules of `calls` calls each, three rows a call; the middle one differs first."""
    parents: dict[str, str | None] = {}
    measured: list[MeasuredCall] = []
    same = Measure(("0",) * 8, Agreement.SAME)
    apart = Measure(("0.5",) * 4 + ("25.0%",) * 4, Agreement.DIFFERENT, 0.5, norm_relative=0.5, max_abs=0.5)

    def add(name: str, output: Measure) -> None:
        rows = tuple(
            Row(f"{name}.{key}", key, role, "tensor", "torch.float32", "[2, 3]", "False", (2.5, 0.5, 1.5, 4.25), 6, None, None)
            for key, role in _KEYS
        )
        parts = parse(name)
        call = Call(name, parts, rows)
        pairs = tuple(RowPair(row, row) for row in rows)
        found = tuple(map(Measured, pairs, (same, same, output)))
        measured.append(MeasuredCall(CallPair(call, call, pairs), parts, found, Agreement.SAME, Agreement.UNKNOWN, output.agreement))

    for layer in range(layers):
        module = f"Module.model.layers.{layer}.Block.forward.0"
        for number in range(calls):
            name = f"Functional.linear.{layer * calls + number}.forward"
            add(name, apart if layer == layers // 2 and number >= calls // 2 else same)
            parents[name] = module
        add(module, apart if layer == layers // 2 else same)
        parents[module] = None
    findings = find(measured, parents)
    pair = DumpPair(Path("t/dump.json"), Path("g/dump.json"), None, "")
    compared = Compared(
        pair=pair,
        mode="statistics",
        metrics=_METRICS,
        matched=3 * len(measured),
        calls=measured,
        verdicts=judge(measured, "statistics", set()),
        findings=findings,
        stacks={},
        golden_stacks={},
        parents=parents,
        golden_parents=parents,
        other_calls=False,
        notes=(),
    )
    report = replace(report_of(compared, Path("none.csv")), page=report_html.part(compared))
    return Outcome(Plan("file", (pair,), (), ()), (report,), ())
