"""The line that ends a step: what was recorded, of how much, at what cost, and what could not be, and why."""

from __future__ import annotations

from collections.abc import Mapping

_MOST_REASONS = 2
_LONGEST_REASON = 70


def closing_line(
    step: int,
    *,
    tensors: int,
    calls: int,
    modules: tuple[int, int] | None,
    apis: tuple[int, int] | None,
    size: int,
    seconds: float,
    lost: int,
    reasons: Mapping[str, int],
    where: str,
    late: int,
    verb: str = "recorded",
) -> str:
    """The line, without the warning that nothing was recorded.

    Args:
        step: its number.
        tensors, calls: recorded ones.
        modules: those recorded, and all that carried hooks; None where modules were not looked at.
        apis: calls recorded, and all that came by, those included that the configuration leaves out; None where APIs were not looked at.
        size: bytes written.
        seconds: time added.
        lost: how many things could not be recorded.
        reasons: why, with how often; the most frequent ones are named.
        where: the file with all reasons.
        late: calls of earlier steps whose gradients came after their step had ended.
        verb: `saved` where values are saved by hand.
    """
    parts = []
    if modules is not None:
        parts.append(f"modules {modules[0]}/{modules[1]}")
    if apis is not None:
        parts.append(f"APIs {apis[0]}" + (f"/{apis[1]}" if apis[1] > apis[0] else ""))
    of = f" ({', '.join(parts)})" if parts else ""
    text = f"[step {step}] {verb} {tensors} tensors of {calls} calls{of}, {size / 1e6:.1f} MB, +{seconds * 1e3:.0f} ms"
    if lost:
        text += f"; not recorded: {lost} ({_grouped(lost, reasons)}see {where})"
    if late:
        text += f"; {late} calls of earlier steps had their backward pass after their step had ended"
    return text


def _grouped(lost: int, reasons: Mapping[str, int]) -> str:
    """`10 × a fake tensor has no values, 2 × …, 3 × other reasons, `; empty where no reason is known."""
    if not reasons:
        return ""
    named = sorted(reasons.items(), key=lambda item: -item[1])[:_MOST_REASONS]
    texts = [f"{count} × {_short(reason)}" for reason, count in named]
    rest = lost - sum(count for _, count in named)
    if rest > 0:
        texts.append(f"{rest} × other reasons")
    return f"{', '.join(texts)}; "


def _short(reason: str) -> str:
    reason = " ".join(reason.split())
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 3]}..."
