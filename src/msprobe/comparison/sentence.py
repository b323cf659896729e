"""The first difference in one short sentence, the first thing that a reader sees: what is equal, what differs, where in the code."""

from __future__ import annotations

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.beginnings import dtypes_of
from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.conclusion import conclusion
from msprobe.comparison.first_difference import Findings, FirstDifference
from msprobe.comparison.measure import Agreement
from msprobe.comparison.names import EntryName, parse
from msprobe.comparison.order import guilty_first, unmatched_first
from msprobe.comparison.outcome import Location, Outcome, PairReport
from msprobe.comparison.stacks import Frame

_EQUAL = {Agreement.SAME: "equal", Agreement.ROUNDING: "equal up to rounding", Agreement.DIFFERENT: "different"}


def lead(outcome: Outcome) -> str:
    """The sentence for a whole comparison; "" when nothing differs beyond rounding."""
    ranks = guilty_first(outcome)
    if not ranks:
        return ""
    text = sentence(ranks[0], with_rank=len(outcome.reports) > 1)
    changed = next((report for report in outcome.reports if report.findings.dtype_change is not None), None)
    if changed is None or changed.pair.step is None or ranks[0].pair.step is None or changed.pair.step >= ranks[0].pair.step:
        return text
    return f"{_other_dtype(changed)}. Beyond rounding, later: {text[0].lower()}{text[1:]}"


def opening(outcome: Outcome) -> str:
    """The sentence, or what is said instead of it when no value differs beyond rounding."""
    first = lead(outcome)
    if first:
        return first
    return next((line.text for line in conclusion(outcome) if line.style != "dim"), "No value could be compared.")


def sentence(report: PairReport, *, with_rank: bool = False) -> str:
    """`Inputs equal, weights equal, `layers.3.mlp` differs (forward, step 0): model.py:118`; "" when nothing differs.

    Args:
        report: of one pair of dumps.
        with_rank: whether the rank is named.
    """
    found = report.findings
    if unmatched_first(report) and found.unmatched is not None:
        has_it = "target" if found.unmatched.pair.target is not None else "golden dump"
        text, call, at, side = f"{_alone(found)} is in the {has_it} only", found.unmatched, report.unmatched, ""
    elif found.leading is not None:
        lines = report.location if found.leading is found.first else report.beyond
        text, call, at, side = (
            _text(found.leading, report.pair.step, found.unseeded and found.leading is found.first),
            found.leading.call,
            lines.at,
            _side(found.leading, lines),
        )
    else:
        return ""
    direction = "optimizer" if call.name in report.by_optimizer else call.parts.direction
    where = [direction.replace("parameters_grad", "gradients")] if direction not in ("", "debug") else []
    if report.pair.step is not None:
        where.append(f"step {report.pair.step}")
    if with_rank and report.pair.label.startswith("rank"):
        where.append(f"rank {report.pair.label[4:]}")
    aside = f" ({', '.join(where)})" if where else ""
    return f"{text[0].upper()}{text[1:]}{aside}{_line(at, side)}"


def _other_dtype(report: PairReport) -> str:
    """Where a dtype changed, in a step of which no value differs beyond rounding."""
    call = report.findings.dtype_change
    assert call is not None
    target, golden = dtypes_of(call)
    aside = f" ({call.parts.direction}, step {report.pair.step})"
    return f"The target computes in {target}, the golden run in {golden}, from `{place(call.parts)}` on{aside}"


def _side(first: FirstDifference, location: Location) -> str:
    """On which side of the line that is named the code at fault lies; "" where it is that line. A backward pass runs a forward's lines
    from the last to the first."""
    backward = first.call.parts.direction == "backward"
    if location.cause is not None:
        return ""
    if location.inner is not None:
        return "before " if backward else "behind "
    return "behind " if backward and first.kind in ("own code", "first input", "input") else ""


def place(parts: EntryName) -> str:
    """A module by its path in the model, an API by its bare name: `layers.3.mlp`, `linear`."""
    if not parts.is_module and parts.direction != "parameters_grad":
        return parts.own.partition(".")[2] or parts.api or parts.base
    path, _, _ = parts.base.removeprefix("Module.").removeprefix("Cell.").rpartition(".")
    return path or parts.base


def _alone(found: Findings) -> str:
    """The call that one side alone has; where it is part of a module that this side alone has, that module."""
    assert found.unmatched is not None
    if found.unmatched_whole:
        return f"`{place(parse(found.unmatched_in))}`"
    return _what(found.unmatched, found.unmatched_in or None)


def _left_over(step: int | None) -> str:
    """A gradient that alone differs, in a step that is not the first, is what zero_grad() would have removed, or lacks what came before."""
    return "; it may hold an earlier step's gradient (zero_grad)" if step else ""


def _text(difference: FirstDifference, step: int | None, unseeded: bool) -> str:
    what, kind = _what(difference.call, difference.module), difference.kind
    keys = _keys(difference)
    if difference.reordered and kind not in ("parameter", "gradient"):
        hold = "hold" if len(difference.rows) > 1 else "holds"
        return f"{keys} of {what} {hold} the same values in another order, from here or from before on"
    if difference.call.parts.direction == "debug":
        return f"saved value {what} differs"
    backward = difference.call.parts.direction == "backward"
    if kind == "own code":
        inner = place(difference.call.parts)
        if backward:
            around = place(parse(difference.module or ""))
            return f"incoming gradients equal{_as_far(difference)}, the code of `{around}` that follows `{inner}` in the forward differs"
        code = f"the code of `{place(parse(difference.module or ''))}` before it calls `{inner}` differs"
        return f"inputs equal{_as_far(difference)}, {code}{_cause(difference)}"
    if kind == "parameter":
        return f"{_inputs(difference)}, {'weights' if len(difference.rows) > 1 else 'weight'} {keys} of {what} {_verb(difference)}"
    if kind == "gradient":
        return f"everything before it equal, the gradient of {keys} in {what} differs{_left_over(step)}"
    if kind == "requires_grad":
        return f"requires_grad of {keys} of {what} differs"
    if backward and kind in ("first input", "input"):
        until = ", up to the loss" if difference.opens_backward else ""
        return f"what comes into the backward pass of {what} differs, by code that follows it in the forward{until}"
    if kind == "first input" and difference.of_weights:
        return f"{'weights' if len(difference.rows) > 1 else 'weight'} {keys} of the first call, {what}, {_verb(difference)}"
    if unseeded:
        differ = f"data and weights of the two runs differ from the first call on ({keys} of {what})"
        return f"{differ}: they look unseeded, or begin from other checkpoints"
    if kind == "first input":
        return f"the data {'differ' if len(difference.rows) > 1 else 'differs'}: {keys} of the first call, {what}"
    if kind == "sequence":
        return f"another sequence of calls, from {what} on"
    if kind == "argument":
        return f"{'arguments' if len(difference.rows) > 1 else 'argument'} {keys} of {what} {_verb(difference)}"
    if kind == "input":
        return f"{keys} of {what} {_verb(difference)}, nothing recorded before it does{_cause(difference)}"
    if difference.only_dtype and difference.dtypes is not None:
        return f"{_inputs(difference)}, {what} computes in {difference.dtypes[0]}, in the golden run in {difference.dtypes[1]}"
    own = " in its own code" if difference.last_inner is not None and not difference.unknown_inner else _cause(difference)
    return f"{_inputs(difference)}, {what} differs{own}"


def _cause(difference: FirstDifference) -> str:
    """The call that one side alone has, and that makes what differs; "" without one."""
    cause = difference.cause
    if cause is None:
        return ""
    more = f" and {difference.cause_count - 1} more" if difference.cause_count > 1 else ""
    return f" by what the {'target' if cause.pair.target is not None else 'golden run'} alone calls, `{place(cause.parts)}`{more}"


def _what(call: MeasuredCall, module: str | None) -> str:
    """`layers.3.mlp`; of an API the module around it, too."""
    name = f"`{place(call.parts)}`"
    if call.parts.is_module or module is None:
        return name
    around = parse(module)
    return f"{name} in `{place(around) if around.is_module else module}`"


def _inputs(difference: FirstDifference) -> str:
    backward = difference.call.parts.direction == "backward"
    what = "incoming gradients" if backward else "inputs"
    inputs = difference.call.inputs
    words = [f"no {what} recorded" if inputs is Agreement.UNKNOWN else f"{what} {_EQUAL[inputs]}"]
    if inputs is not Agreement.UNKNOWN:
        words[0] += _as_far(difference) + (" but for the one it overwrites" if difference.overwritten_differs else "")
    if difference.kind == "output" and difference.parameters is not Agreement.UNKNOWN:
        words.append(f"weights {_EQUAL[difference.parameters]}")
    return ", ".join(words)


def _as_far(difference: FirstDifference) -> str:
    return " as far as recorded" if difference.inputs_partly_unknown else ""


def _keys(difference: FirstDifference) -> str:
    keys = [row.pair.target.key for row in difference.rows if row.pair.target is not None]
    base = difference.call.parts.base
    names = [argument_name(base, key) or key.removeprefix("parameters.") for key in keys]
    shown = " and ".join(f"`{name}`" for name in names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown


def _verb(difference: FirstDifference) -> str:
    return "differ" if len(difference.rows) > 1 else "differs"


def _line(frame: Frame | None, side: str) -> str:
    if frame is None:
        return ""
    name = frame.path.replace("\\", "/").rpartition("/")[2]
    return f": {side}{name}:{frame.line}"
