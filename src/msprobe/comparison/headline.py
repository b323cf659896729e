"""The first difference in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.measure import Agreement

_SHOWN = 3
_WORDS = {Agreement.SAME: "equal", Agreement.ROUNDING: "equal up to rounding", Agreement.DIFFERENT: "different"}


def headline(difference: FirstDifference) -> str:
    """The sentence after `First difference: `."""
    text = _sentence(difference)
    if difference.dtypes is not None and difference.kind != "sequence":
        target, golden = difference.dtypes
        text += f"; the target computes in {target}, the golden run in {golden}{' from here on' if difference.dtypes_from_here else ''}"
    if difference.reordered:
        text += "; the same values in another order, and statistics may not have shown it where it began"
    return text


def _sentence(difference: FirstDifference) -> str:
    call = difference.call.name
    if difference.call.parts.direction == "debug":
        return _saved(difference)
    module = difference.module
    inside = f" in {module}" if module is not None else ""
    names = _keys(difference)
    keys, differ = listed(names), _verb(difference)
    if difference.kind == "parameter":
        return f"{_parameters(difference)} of {call} {differ} ({_inputs(difference)})"
    if difference.kind == "gradient":
        return f"the gradient of {keys} in {call} differs (everything before it agrees)"
    if difference.kind == "requires_grad":
        return _requires_grad(difference, inside)
    if difference.call.parts.direction == "backward" and difference.kind in ("first input", "input"):
        return f"{keys} of {call}{inside} {differ}; {_before_backward(difference)}"
    if difference.kind == "first input" and difference.of_weights:
        return f"{'weights' if len(difference.rows) > 1 else 'the weight'} {keys} of the first call, {call}{inside}, {differ}"
    if difference.kind == "first input":
        return f"inputs of the first call differ: {keys} of {call}{inside}"
    if difference.kind == "own code":
        follows = ": the code that follows that call in the forward" if difference.call.parts.direction == "backward" else ""
        return (
            f"{module}, before it calls {call} (its inputs agree{_as_far(difference)}, {keys} of that call {differ}, "
            f"and no call in between gave a difference){follows}{_cause(difference)}"
        )
    if difference.kind == "sequence":
        here, there = (name or "no module" for name in (module, difference.golden_module))
        return f"the sequence of calls: {call} is in {here}, in the golden run in {there}; a call was added or removed before it"
    if difference.kind == "argument":
        word, its = ("arguments", "their values") if len(difference.rows) > 1 else ("argument", "its value")
        tail = f"no call before it gave a difference: {its}, or a setting of the module, changed"
        return f"{word} {keys} of {call}{inside} {differ}; {tail}"
    if difference.kind == "input":
        why = "" if difference.by_dtype else ": the code before it changed"  # else the dtype is said to be the reason
        return f"{keys} of {call}{inside} {differ}; no recorded call before it gave a difference{_cause(difference) or why}"
    own = "; the calls inside it agree: its own code changed" if difference.last_inner is not None else ""
    if difference.unknown_inner:
        own = f"; the calls inside it agree as far as they could be compared, and {difference.unknown_inner} could not"
    if difference.other_calls:
        own = _cause(difference) or "; the calls inside it are not the same ones on both sides"
    return f"{call}{inside} ({_inputs(difference)}, output differs{own})"


def _cause(difference: FirstDifference) -> str:
    """The call that one side alone has, and that makes what differs; "" without one."""
    cause = difference.cause
    if cause is None:
        return ""
    side = "target" if cause.pair.target is not None else "golden run"
    more = f" (and {difference.cause_count - 1} more behind it)" if difference.cause_count > 1 else ""
    where = f"calls in place of {difference.cause_instead.name}" if difference.cause_instead is not None else "alone calls"
    return f"; the likely cause is {cause.name}{more}, which the {side} {where}"


def _before_backward(difference: FirstDifference) -> str:
    """What runs before a backward call is what follows it in the forward."""
    if difference.by_dtype:  # that is said to be the reason
        return "no recorded call before it gave a difference"
    if not difference.opens_backward:
        return (
            "no recorded call before it gave a difference: what comes into its backward pass is made by the code that follows it in the "
            "forward, up to the loss"
        )
    code = "code outside of modules" if difference.call.parts.is_module else "code that was not recorded"
    return (
        "it is the first recorded call of the backward pass, and no recorded call before it gave a difference: what follows it in the "
        f"forward up to the loss, {code}, changed"
    )


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 more`."""
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _keys(difference: FirstDifference) -> list[str]:
    base = difference.call.parts.base
    keys = [row.pair.target.key for row in difference.rows if row.pair.target is not None]
    if difference.kind in ("parameter", "gradient"):
        return [key.removeprefix("parameters.") for key in keys]
    named = [(key, argument_name(base, key)) for key in keys]
    return [f"{key} (`{name}`)" if name else key for key, name in named]


def _verb(difference: FirstDifference) -> str:
    return "differ" if len(difference.rows) > 1 else "differs"


def _parameters(difference: FirstDifference) -> str:
    return f"{'parameters' if len(difference.rows) > 1 else 'the parameter'} {listed(_keys(difference))}"


def _requires_grad(difference: FirstDifference, inside: str) -> str:
    target, golden = difference.rows[0].pair
    assert target is not None and golden is not None
    what = listed(_keys(difference))
    if all(row.pair.target is not None and row.pair.target.role == "parameters" for row in difference.rows):
        what = f"{'parameters' if len(difference.rows) > 1 else 'the parameter'} {what.replace('parameters.', '')}"
    same = "; that of its inputs agrees" if target.role == "output" else ""
    values = f"target {target.requires_grad}, golden {golden.requires_grad}"
    return f"requires_grad of {what} of {difference.call.name}{inside} differs: {values}{same}"


def _saved(difference: FirstDifference) -> str:
    """A value saved by hand: `saved value x2.0.debug differs`, `a and b.0 of saved value nest.0.debug differ`."""
    keys = [key for key in _keys(difference) if key]
    return f"{f'{listed(keys)} of ' if keys else ''}saved value {difference.call.name} {_verb(difference)}"


def _inputs(difference: FirstDifference) -> str:
    """`inputs equal, parameters equal`, leaving out what was not recorded."""
    words = ["no inputs recorded" if difference.call.inputs is Agreement.UNKNOWN else f"inputs {_WORDS[difference.call.inputs]}"]
    if difference.call.inputs is not Agreement.UNKNOWN:
        words[0] += _as_far(difference) + (" but for the one it overwrites" if difference.overwritten_differs else "")
    if difference.kind == "output" and difference.parameters is not Agreement.UNKNOWN:
        words.append(f"parameters {_WORDS[difference.parameters]}")
    return ", ".join(words)


def _as_far(difference: FirstDifference) -> str:
    return " as far as recorded" if difference.inputs_partly_unknown else ""
