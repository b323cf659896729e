from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.aliases import ALIASES, canonical
from msprobe.comparison.compare import compare
from msprobe.comparison.match import match
from msprobe.comparison.rows import calls_of

from .dumps import Json, api, backward, module, tensor, write_dump


def pairs_of(target: list[str], golden: list[str]) -> list[tuple[str | None, str | None]]:
    def data(names: list[str]) -> Json:
        return {name: backward([tensor()], []) if "backward" in name else api([tensor()], []) for name in names}

    found = match(calls_of(data(target), ""), calls_of(data(golden), ""))
    return [(pair.target.name if pair.target else None, pair.golden.name if pair.golden else None) for pair in found]


def test_order_is_the_target_s_and_golden_only_calls_stand_behind_their_predecessor() -> None:
    target = ["Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward"]
    golden = ["Torch.x.0.forward", "Torch.c.0.forward", "Torch.y.0.forward", "Torch.a.0.forward"]
    assert pairs_of(target, golden) == [
        (None, "Torch.x.0.forward"),
        ("Torch.a.0.forward", "Torch.a.0.forward"),
        ("Torch.b.0.forward", None),
        ("Torch.c.0.forward", "Torch.c.0.forward"),
        (None, "Torch.y.0.forward"),
    ]


def test_backward_is_paired_by_name() -> None:
    target = ["Torch.a.1.backward", "Torch.a.0.backward"]
    assert pairs_of(target, target[::-1]) == [(name, name) for name in target]


def test_a_shared_callable_lines_up_whatever_name_it_was_called_by() -> None:
    """torch.relu_ and F.relu_ are one object: one name and one counter for us, two for the existing tool."""
    ours = ["Functional.relu_.0.forward", "Functional.relu_.1.forward", "Functional.relu_.2.forward"]
    theirs = ["Torch.relu_.0.forward", "Functional.relu_.0.forward", "Torch.relu_.1.forward"]
    assert pairs_of(ours, theirs) == list(zip(ours, theirs, strict=True))
    assert pairs_of(theirs, ours) == list(zip(theirs, ours, strict=True))
    assert pairs_of(theirs, theirs) == list(zip(theirs, theirs, strict=True))


def test_linear_algebra_lines_up() -> None:
    ours = ["Torch.linalg.norm.0.forward", "Torch.norm.0.forward", "Torch.linalg.norm.1.forward"]
    theirs = ["Torch.norm.0.forward", "Torch.norm.1.forward", "Torch.norm.2.forward"]
    assert pairs_of(ours, theirs) == list(zip(ours, theirs, strict=True))


def test_backward_of_an_aliased_call_follows_its_forward() -> None:
    ours = ["Functional.prelu.0.forward", "Functional.prelu.1.forward", "Functional.prelu.1.backward", "Functional.prelu.0.backward"]
    theirs = ["Torch.prelu.0.forward", "Functional.prelu.0.forward", "Functional.prelu.0.backward", "Torch.prelu.0.backward"]
    assert pairs_of(ours, theirs) == list(zip(ours, theirs, strict=True))


def test_an_aliased_call_that_one_side_lacks() -> None:
    assert pairs_of(["Torch.conv1d.0.forward"], ["Functional.conv1d.0.forward", "Functional.conv1d.1.forward"]) == [
        ("Torch.conv1d.0.forward", "Functional.conv1d.0.forward"),
        (None, "Functional.conv1d.1.forward"),
    ]


def test_every_alias_has_one_canonical_name() -> None:
    for theirs, ours in ALIASES:
        assert canonical(theirs) == canonical(ours)
    assert canonical("Torch.add") == "Torch.add"


def test_the_alias_table_covers_the_installed_torch() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    shared = {
        name
        for name in dir(functional)
        if not name.startswith("_") and callable(getattr(functional, name)) and getattr(torch, name, None) is getattr(functional, name)
    }
    for name in shared - {"Tensor"}:
        assert canonical(f"Torch.{name}") == canonical(f"Functional.{name}"), name
    linalg = {name for name in dir(torch.linalg) if not name.startswith("_") and callable(getattr(torch.linalg, name))}
    for name in linalg - {"LinAlgError", "Tensor", "polar"}:  # torch.polar is another function than torch.linalg.polar
        assert canonical(f"Torch.{name}") == canonical(f"Torch.linalg.{name}"), name


def test_rows_of_other_places_do_not_pair() -> None:
    target = calls_of({"Torch.a.0.forward": api([tensor(), tensor()], [tensor()])}, "")
    golden = calls_of({"Torch.a.0.forward": api([tensor()], [tensor(), tensor()])}, "")
    (pair,) = match(target, golden)
    assert [(row.target and row.target.key, row.golden and row.golden.key) for row in pair.rows] == [
        ("input.0", "input.0"),
        ("input.1", None),
        ("output.0", "output.0"),
        (None, "output.1"),
    ]


def test_a_mapping_pairs_rows_by_hand() -> None:
    target = calls_of({"Torch.a.0.forward": api([tensor()], [tensor()])}, "")
    golden = calls_of({"Torch.b.0.forward": api([tensor()], [tensor()]), "Torch.c.0.forward": api([], [tensor()])}, "")
    mapping = {
        "Torch.a.0.forward.input.0": "Torch.b.0.forward.input.0",
        "Torch.a.0.forward.output.0": "Torch.c.0.forward.output.0",
        "Torch.nobody.0.forward.output.0": "Torch.b.0.forward.output.0",
    }
    pairs = match(target, golden, mapping)
    named = [(row.target and row.target.name, row.golden and row.golden.name) for pair in pairs for row in pair.rows]
    assert pairs[0].golden is golden[0]
    assert named == [
        ("Torch.a.0.forward.input.0", "Torch.b.0.forward.input.0"),
        ("Torch.a.0.forward.output.0", "Torch.c.0.forward.output.0"),
        (None, "Torch.b.0.forward.output.0"),
    ]


def test_a_module_whose_class_is_called_otherwise_is_compared(tmp_path: Path) -> None:
    def data(name: str, out: float) -> tuple[dict[str, object], dict[str, str | None]]:
        entries = {
            "Torch.rsqrt.0.forward": api([tensor(1.0), tensor(out)], [tensor(out)]),
            f"Module.n.{name}.forward.0": module([tensor(1.0)], [tensor(out)], w=tensor()),
            f"Module.n.{name}.backward.0": backward([tensor()], [tensor()]),
            f"Module.n.{name}.parameters_grad.0": {"w": [tensor()]},
        }
        return entries, {"Torch.rsqrt.0.forward": f"Module.n.{name}.forward.0", f"Module.n.{name}.forward.0": None}

    for number, out in enumerate((2.0, 3.0)):
        (ours, our_parents), (theirs, their_parents) = data("MyRMS", out), data("RMS", 2.0)
        outcome = compare(
            write_dump(tmp_path / f"t{number}", ours, construct=our_parents, stack={}),
            write_dump(tmp_path / f"g{number}", theirs, construct=their_parents, stack={}),
            tmp_path / "o",
        )
        report = outcome.reports[0]
        assert report.counts["unmatched"] == 0
        assert report.notes == (
            "Module.n is of class MyRMS in the target and of class RMS in the golden run; compared with each other all the same",
        )
        first = report.findings.first
        assert outcome.exit_code == (0 if out == 2.0 else 1)
        assert (first is None) if out == 2.0 else (first is not None and first.kind == "own code")
