"""From the lines that the processes left to the words at the end: what was taken as model and as step, or why nothing was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]

_PAGE = "more in docs/run.md of msprobe's repository: Nothing was recorded"
_AT_MOST = 6
_SHOWN = 12
_STEPS = {
    "optimizer": "a step began with the first call of a model and ended before the first call after an optimizer's step",
    "forward": "no optimizer was made: every call of a model by the script was a step",
}


def summary(events: Sequence[Event]) -> list[str]:
    """Lines for the user.

    Args:
        events: of all processes, in the order in which they came.
    """
    reports = [event for event in events if event["event"] == "report"]
    good = [report for report in reports if report["steps"]]
    cut_off = _cut_off(events)
    lines: list[str] = []
    if good:
        for report, processes in _grouped(good):
            lines += _recorded(report, processes)
        lines += [f"process {report['pid']}: {_unwritten(report)}" for report in reports if report["unwritten"] and not report["steps"]]
    lines += cut_off
    for kind, text in (("made way", "the script has a PrecisionDebugger of its own, which recorded as the script says"),):
        count = len({event["pid"] for event in events if event["event"] == kind})
        if count:
            lines.append(f"{text} ({count} process{'es' if count > 1 else ''})")
    lines += _late(events)
    for event in events:
        if event["event"] == "failed":
            lines.append(f"recording failed in process {event['pid']}: {event.get('reason', 'see the message above')}")
    if not lines:
        lines = _nothing(events, reports)
    elif not good and reports and not cut_off:
        lines += _nothing(events, reports)
    return lines


def of_one(report: Event) -> list[str]:
    """The lines of one process, which has no parent to tell."""
    return _recorded(report, 1) if report["steps"] else _nothing([report], [report])


def too_late(calls: int, optimizers: int, steps: int, order: Sequence[int] = ()) -> str:
    """What is said of calls whose backward pass came in a later step.

    Args:
        calls: how many.
        optimizers: how many the script has made.
        steps: of optimizers, in one step.
        order: the optimizers in the order of their steps, numbered in the order in which they were made.
    """
    text = (
        f"{_calls(calls)} of earlier steps had their backward pass after their step had ended, so their gradients are not in the dump "
        "(dump_error_info.log of each step names them)"
    )
    repeats = _period(order, optimizers)
    once = len(set(order)) == len(order)  # too short a run to say
    number = repeats or (optimizers if once else 0)
    if number and steps % number:
        how = f"each of the {optimizers} optimizers steps once"
        if number > optimizers:
            how = f"the {optimizers} optimizers step in the order {', '.join(map(str, order[:number]))}"
        text += f": --step-on optimizer:{number} makes one step of an iteration in which {how}"
    elif not number and optimizers > 1:
        shown = ", ".join(map(str, order[:_SHOWN])) + (", ..." if len(order) > _SHOWN else "")
        text += (
            f"; the {optimizers} optimizers stepped in the order {shown}, in which no iteration of them all was seen to repeat, so no "
            "--step-on optimizer:N is known to hold one: msprobe enable puts a step around it"
        )
    return text


def _period(order: Sequence[int], optimizers: int) -> int:
    """After how many steps of optimizers their order repeats, seen twice at least and with all of them in it; 0 where it does not."""
    for number in range(optimizers, len(order) // 2 + 1):
        if len(set(order[:number])) == optimizers and all(one == other for one, other in zip(order, order[number:], strict=False)):
            return number
    return 0


def _late(events: Iterable[Event]) -> list[str]:
    told = [event for event in events if event["event"] == "late"]
    if not told:
        return []
    order = max((event["order"] for event in told), key=len)
    return [too_late(sum(event["calls"] for event in told), max(event["optimizers"] for event in told), told[0]["optimizer_steps"], order)]


def _grouped(reports: Iterable[Event]) -> list[tuple[Event, int]]:
    """Processes of one run say the same: once is enough."""
    groups: dict[str, list[Event]] = {}
    for report in reports:
        key = repr([report[name] for name in ("models", "steps", "incomplete", "unwritten", "step_on", "left_out", "plain", "roots")])
        groups.setdefault(key, []).append(report)
    return [(group[0], len(group)) for group in groups.values()]


def _recorded(report: Event, processes: int) -> list[str]:
    steps = report["steps"]
    where = f" in each of {processes} processes" if processes > 1 else ""
    many = f"{len(steps)} step{'s' if len(steps) > 1 else ''} ({_ranges(steps)})"
    lines = [f"recorded {many}{where}: {', '.join(report['roots'])}"]
    if report["incomplete"]:
        where = "the lines above, and in dump_error_info.log where that could be written"
        lines.append(f"not complete: {_named(report['incomplete'])}; what is missing is told in {where}")
    if report["unwritten"]:
        lines.append(f"not written: {_named(report['unwritten'])}; why is told in the lines above")
    for named, (first, last) in report["models"].items():
        span = "" if len(report["models"]) == 1 else (f" (step {first})" if first == last else f" (steps {first} to {last})")
        several = "models" if ", " in named else "model"
        lines.append(f"taken as {several}: {named}{span}")
    how = _STEPS[report["step_on"]]
    if report["step_on"] == "optimizer" and report["optimizer_steps"] > 1:
        how = how.replace("an optimizer's step", f"{report['optimizer_steps']} steps of optimizers")
    if report["forwards"]:
        how = (
            f"every {report['forwards'] if report['forwards'] > 1 else ''} call{'s' if report['forwards'] > 1 else ''} of a model".replace(
                "  ", " "
            )
        )
        how += " by the script were a step" if report["forwards"] > 1 else " by the script was a step"
    lines.append(how)
    return lines + _left_out(report)


def _left_out(report: Event) -> list[str]:
    lines = [f"not recorded as a model: {name}, {_calls(calls)} ({why})" for name, calls, why in report["left_out"]]
    plain = report["plain"]
    if plain:
        lines.append(f"not taken as a model: {_plain(plain)} (without parameters; their APIs are recorded like others)")
    if len(lines) > _AT_MOST:
        lines = [*lines[: _AT_MOST - 1], f"and {len(lines) - _AT_MOST + 1} more of these"]
    return lines


def _plain(plain: Mapping[str, int]) -> str:
    named = [f"{name} ({_calls(calls)})" for name, calls in list(plain.items())[:_AT_MOST]]
    return ", ".join(named) + (", ..." if len(plain) > _AT_MOST else "")


def _calls(number: int) -> str:
    return f"{number} call{'s' if number > 1 else ''}"


def _cut_off(events: Sequence[Event]) -> list[str]:
    """Processes that recorded, and ended without a word: killed, or by os._exit."""
    told = {event["pid"] for event in events if event["event"] in ("report", "made way", "failed")}
    lines = []
    for event in events:
        if event["event"] == "recording" and event["pid"] not in told:
            steps = sorted({other["step"] for other in events if other["event"] == "ended" and other["pid"] == event["pid"]})
            by_then = _named(steps) if steps else "no step"
            lines.append(
                f"process {event['pid']} was cut off while it recorded {event['models']} into {event['root']}: "
                f"{by_then} had ended by then; its files are valid and hold all but the last second"
            )
    return lines


def _nothing(events: Sequence[Event], reports: Sequence[Event]) -> list[str]:
    """Nothing was recorded: why, and what to do."""
    kinds = {event["event"] for event in events}
    if reports:
        return [f"nothing was recorded: {_why(reports[0])}"]
    if "plain" in kinds:
        plain, unseen = (_added(events, name) for name in ("plain", "unseen"))
        if plain:
            return [
                f"nothing was recorded: only modules without parameters were called: {_plain(plain)}; "
                f"if one of them is the model, give --models all ({_PAGE}){_hint(unseen)}"
            ]
        return [f"nothing was recorded: the script called no nn.Module{_hint(unseen)} ({_PAGE})"]
    if "torch" in kinds:
        return [f"nothing was recorded: torch was imported, but the script called no nn.Module ({_PAGE})"]
    if "python" in kinds:
        return [f"nothing was recorded: Python ran, but torch was never imported ({_PAGE})"]
    return [
        "nothing was recorded: no Python process below the command could be reached; is it a program that runs no Python, "
        "that runs it with -I, -E or -S, that clears the environment, or that sets PYTHONPATH without what it was (as a shell script may: "
        f"export PYTHONPATH=.:$PYTHONPATH keeps it)? ({_PAGE})"
    ]


def _added(events: Iterable[Event], name: str) -> dict[str, int]:
    """Calls of all processes together."""
    total: dict[str, int] = {}
    for event in events:
        for one, calls in event.get(name, {}).items():
            total[one] = total.get(one, 0) + calls
    return total


def _hint(unseen: Mapping[str, int]) -> str:
    """What may be hidden in compiled functions."""
    if not unseen:
        return ""
    return (
        f"; no model was found in what these compiled functions are given and name: {_plain(unseen)}; one that they call is not seen, "
        "unless TORCHDYNAMO_DISABLE=1 is set"
    )


def _why(report: Event) -> str:
    if report["unwritten"]:
        return _unwritten(report)
    counted = report["counted"]
    if report["unselected"] is not None:
        return f'"rank" does not select rank {report["unselected"]}'
    if counted and report["selected"] and min(report["selected"]) >= counted:
        return f'the script made {counted} steps, 0 to {counted - 1}, and none of them is selected by --step or "step"'
    if report["left_out"]:
        calls_of = (f"{name} was called {calls} times {_because(why)}" for name, calls, why in report["left_out"][:_AT_MOST])
        return "; ".join(calls_of) + _hint(report["unseen"])
    return report["why_nothing"] or f"no step was begun ({_PAGE})"


def _unwritten(report: Event) -> str:
    return f"no file of {_named(report['unwritten'])} could be written; why is told in the lines above"


def _because(why: str) -> str:
    return f"({why})"


def _named(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {_ranges(steps)}"


def _ranges(steps: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for step in steps:
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    return ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")
