"""Task nan_check: which call gave out NaN or an infinity, and whether it was the call's own doing.

Each entry gets `is_nan`, 0 or 1, instead of statistics. It is told from the values that a call took in and gave out, in the one pass that
statistics take:

- NaN in what it gave out is always 1;
- an infinity is 1 unless one of the same sign was among what it took in: a mask of -Infinity that is passed on is no overflow;
- what a call gave out is not its doing in the backward pass where the forward call took in or gave out NaN or an infinity;
- a value that could not be read or is left out leaves it null, unless another one decides; so does a call without output: it
  raised, or nobody has waited for its communication.

`non_finite` says which kinds were taken in, given out, and produced (given out but not taken in); it stands only where there are any. For a
backward call that would have produced some, had its forward call not met any, it says under `forward` which kinds that met. A record of a
tensor that holds some has the kinds under the same key.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

from msprobe.format import names
from msprobe.pytorch.dump.checks.entry_names import forward_of, kind_of
from msprobe.pytorch.dump.checks.held_tensors import HeldTensors
from msprobe.pytorch.dump.checks.unread import CheckedEncoder, PartsEncoder, UnreadPlaces

EXTRA_INFO = "extra-info"
"""The directory of values that `tensor_list` asks for, beside dump.json."""
FILE_KEY = "extra_info"
NAN, HIGH, LOW = "nan", "inf", "-inf"
MOST_NAMED = 1000
_TAKEN_IN = ("input_args", "input_kwargs", "input")
_UNKNOWN = "?"


def notice() -> str:
    """What the user is told when recording begins."""
    text = "nan_check looks at the values that calls take in and give out"
    if importlib.util.find_spec("torch_npu") is not None:
        text += (
            ". The status register of the NPU is not read: overflows inside an operator that its output does not show, and integers"
            " that saturate, are not found; that would need torch_npu's npu_nan_test and CANN 8.5 or later"
        )
    return text


class NanCheck:
    """The check of one step.

    Args:
        held: holds the values of the calls that `tensor_list` names, None where it names none.
        asked: whether `tensor_list` names this entry.
        keep_input: False leaves what was taken in out of the entries (`data_mode`).
    """

    def __init__(self, held: HeldTensors | None, asked: Callable[[str], bool], keep_input: bool) -> None:
        self.held = held
        self.encoder: type[CheckedEncoder] = PartsEncoder
        self.unread_places = UnreadPlaces()
        self._asked = asked
        self._keep_input = keep_input
        self.found = 0
        self.unread = 0
        self.produced: list[str] = []
        self._met: dict[str, set[str]] = {}
        """The kinds that forward calls took in or gave out."""
        self._first = ""
        """The first call that gave out what it did not produce, and where that came from."""

    def saves(self, name: str) -> bool:
        """See `Check.saves`."""
        return self.held is not None and self._asked(name)

    def called(self, name: str, parent: str | None) -> None:
        """See `Check.called`."""

    def begins(self, name: str, data: dict[str, Any]) -> None:
        """See `Check.begins`: statistics are never written."""
        _gather(data, set())

    def ends(self, name: str, data: dict[str, Any]) -> None:
        """See `Check.ends`."""
        taken: set[str] = set()
        given: set[str] = set()
        for key in _TAKEN_IN:
            if key in data:
                _gather(data[key], taken)
        _gather(data.get("output"), given)
        left_out = any(role == "output" for role, _ in self.unread_places.take(name))
        unread = _UNKNOWN in given or "output" not in data or left_out
        taken.discard(_UNKNOWN)
        given.discard(_UNKNOWN)
        produced = given - taken
        bad = bool(produced) or NAN in given
        before: set[str] = set()
        if taken or given:
            if kind_of(name) == names.FORWARD:
                self._met[name] = taken | given
            elif produced and (before := self._met.get(forward_of(name), before)):
                produced = set()
        if bad and not produced and not self._first:
            self._first = f"{name}, {_whence(data, before)}"
        if not self._keep_input:
            for key in _TAKEN_IN:
                data.pop(key, None)
        data["is_nan"] = 1 if bad else None if unread else 0
        if taken or given:
            data["non_finite"] = {"input": _sorted(taken), "output": _sorted(given), "produced": _sorted(produced)}
            if before:
                data["non_finite"]["forward"] = _sorted(before)
        if unread and not bad:
            self.unread += 1
        if bad:
            self.found += 1
            if produced:
                self.produced.append(name)
        if self.held is not None:
            if bad and self._asked(name):
                self.held.write(name, data, FILE_KEY)
            else:
                self.held.forget(name)

    def summary(self) -> str:
        """See `Check.summary`."""
        text = "no NaN, no overflow"
        if self.found:
            text = f"{self.found} calls gave out NaN or an infinity"
            if self.produced:
                text += f", {len(self.produced)} of them produced it, first {self.produced[0]}"
            else:
                text += f", none of them produced it; first {self._first}"
        return f"{text}; {self.unread} calls gave out what could not be read" if self.unread else text

    def facts(self) -> dict[str, Any]:
        """See `Check.facts`."""
        return {"nan_check": {"found": self.found, "produced": self.produced[:MOST_NAMED], "not_read": self.unread}}


def _gather(record: Any, found: set[str]) -> None:
    """Add the kinds of non-finite values in records of any nesting. Statistics go; what they said of infinities and NaN stays."""
    if type(record) is dict:
        # A dict of the user's may have any keys, but none of them leads to a text.
        if type(record.get("dtype")) is str:
            if "Max" in record:
                _mark(record)
            if "non_finite" in record:
                found.update(record["non_finite"] or (_UNKNOWN,))
        elif type(record.get("type")) is str:
            _gather_number(record.get("value"), record["type"], found)
        else:
            for item in record.values():
                _gather(item, found)
    elif type(record) is list:
        for item in record:
            _gather(item, found)


def _mark(record: dict[str, Any]) -> None:
    """Put `non_finite` in the place of a tensor's statistics: the kinds, null where they are not known, nothing where there are none."""
    high, low = record.pop("Max"), record.pop("Min")
    del record["Mean"], record["Norm"]
    if type(high) is float:
        if high < math.inf and low > -math.inf:
            return
        if math.isnan(high):
            record["non_finite"] = [NAN]  # infinities beside it cannot be told
        else:
            record["non_finite"] = [kind for kind, there in ((HIGH, high == math.inf), (LOW, low == -math.inf)) if there]
    elif high is None and 0 not in record["shape"] and _may_hold_some(record["dtype"]):
        record["non_finite"] = None


def _may_hold_some(dtype: str) -> bool:
    # Of numpy's, objects and records ("[('a', '<f4')]", "|V8") have no statistics.
    return "float" in dtype or "complex" in dtype or dtype == "object" or dtype.startswith(("[", "{", "(", "|V"))


def _gather_number(value: Any, kind: str, found: set[str]) -> None:
    parts = [value]
    if isinstance(value, str) and kind.startswith("complex"):
        number = complex(value)
        parts = [number.real, number.imag]
    for part in parts:
        if isinstance(part, float) and not math.isfinite(part):
            found.add(NAN if math.isnan(part) else HIGH if part > 0 else LOW)


def _whence(data: dict[str, Any], forward: set[str]) -> str:
    """How a call came to what it gave out without producing it: `which took it in (input.1)`."""
    if forward:
        return f"whose forward call took in or gave out {', '.join(_sorted(forward))}"
    places = ((role, data.get(key)) for key, role in (("input_args", "input"), ("input_kwargs", "kwargs"), ("input", "input")))
    return f"which took it in ({next((found for role, value in places if (found := _place(value, role))), 'input')})"


def _place(record: Any, path: str) -> str:
    """Where the first NaN is in records of any nesting, spelled as in names of tensor files; empty where there is none."""
    kinds: set[str] = set()
    _gather(record, kinds)
    if NAN not in kinds:
        return ""
    items: list[tuple[Any, Any]]
    if type(record) is list:
        items = list(enumerate(record))
    elif type(record) is dict and type(record.get("dtype")) is not str and type(record.get("type")) is not str:
        items = list(record.items())
    else:
        return path
    return next((found for key, item in items if (found := _place(item, f"{path}.{key}"))), path)


def _sorted(kinds: set[str]) -> list[str]:
    return [kind for kind in (NAN, HIGH, LOW) if kind in kinds]
