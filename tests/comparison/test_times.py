"""A forgotten step(): one side has every call several times as often."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.names import parse
from msprobe.comparison.rows import Call
from msprobe.comparison.times import Advice, advice, times

from .dumps import api, module, tensor, write_dump

NET, FC = "Module.net.Net", "Module.net.fc.Linear"


def calls(**counts: int) -> list[Call]:
    names = {"net": NET, "fc": FC, "relu": "Functional.relu", "add": "Torch.add"}
    return [Call(name, parse(name), ()) for key, count in counts.items() for n in range(count) for name in (f"{names[key]}.forward.{n}",)]


def apis(**counts: int) -> list[Call]:
    return [Call(name, parse(name), ()) for key, count in counts.items() for n in range(count) for name in (f"Torch.{key}.{n}.forward",)]


@pytest.mark.parametrize(
    "target, golden, found",
    [
        (calls(net=2, fc=2), calls(net=1, fc=1), (2, 1)),
        (calls(net=1, fc=2), calls(net=3, fc=6), (1, 3)),
        (calls(net=2, fc=2), calls(net=2, fc=2), (1, 1)),
        (calls(net=1, fc=2), calls(net=1, fc=1), (1, 1)),  # one module more often: another model
        (calls(net=3, fc=3), calls(net=2, fc=2), (1, 1)),
        (calls(fc=2), calls(fc=1), (1, 1)),  # one kind of call says nothing
        (calls(net=7, fc=7), calls(net=49, fc=49), (1, 7)),
        (apis(add=2, mul=4), apis(add=1, mul=2), (2, 1)),
        (apis(add=2, mul=3), apis(add=1, mul=2), (1, 1)),
        (calls(net=2, fc=2) + apis(add=2), calls(net=1, fc=1) + apis(add=1, mul=1), (2, 1)),
        ([], [], (1, 1)),
    ],
)
def test_how_often(target: list[Call], golden: list[Call], found: tuple[int, int]) -> None:
    assert times(target, golden) == found
    assert bool(advice(target, golden)) == (found != (1, 1))


def dump(directory: Path, iterations: int) -> Path:
    data, construct = {}, {}
    for n in range(iterations):
        value = tensor(1.0 + n)
        for name, entry, parent in (
            (f"Functional.linear.{n}.forward", api([value], [value]), f"{FC}.forward.{n}"),
            (f"{FC}.forward.{n}", module([value], [value], weight=tensor(3.0)), f"{NET}.forward.{n}"),
            (f"{NET}.forward.{n}", module([value], [value]), None),
        ):
            data[name], construct[name] = entry, parent
    return write_dump(directory, data, construct=construct, stack={})


def test_it_stands_below_the_headline(tmp_path: Path) -> None:
    outcome = compare(dump(tmp_path / "t", 1), dump(tmp_path / "g", 2), tmp_path / "o")
    lines = [line.text.strip() for line in describe(outcome)]
    (at,) = [place for place, text in enumerate(lines) if "debugger.step() is missing" in text]
    assert at <= 1
    assert lines[at].startswith("In this step the golden run makes every call twice as often as the target")
    assert isinstance(outcome.reports[0].notes[0], Advice) and not any(text.startswith("note: In this step") for text in lines)


def test_advice_travels() -> None:
    (said,) = advice(calls(net=2, fc=2), calls(net=1, fc=1))
    assert isinstance(pickle.loads(pickle.dumps(said)), Advice)
