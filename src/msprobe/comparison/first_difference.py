"""Where two runs part: the first call whose inputs agree and whose output does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from msprobe.comparison.calls import (
    Measured,
    MeasuredCall,
    dtypes_differ,
    execution_order,
    inputs_partly_unknown,
    is_overwritten,
    overwritten_input,
    requires_grad_differs,
)
from msprobe.comparison.cause import find_cause
from msprobe.comparison.findings import Findings, FirstDifference, Kind
from msprobe.comparison.judging.accepted import is_acceptable
from msprobe.comparison.judging.reordered import looks_reordered
from msprobe.comparison.levels import Levels, on_both
from msprobe.comparison.measure import Agreement


def find(
    calls: Sequence[MeasuredCall],
    parents: Mapping[str, str | None],
    golden_parents: Mapping[str, str | None] | None = None,
    may_be_exact: bool = True,
    again: tuple[Collection[str], Collection[str]] = ((), ()),
    accept_dtype: bool = False,
    levels: Levels = (None, None),
) -> Findings:
    """Searches the measured calls.

    Args:
        calls: in the order of dump.json.
        parents: construct.json of the target, name -> name of the module around it.
        golden_parents: that of the golden dump.
        may_be_exact: bits can be expected to agree at all; statistics of two tools do not, as each adds up in its own way.
        again: calls of each side that the backward pass ran once more.
        accept_dtype: a change from one floating-point dtype to another is no difference by itself.
        levels: those of the two dumps. A call that one of them could not record explains nothing.
    """
    order = execution_order(calls)
    exact = may_be_exact and _anything_identical(order) and not other_precision(order)
    search = _Search(order, parents, golden_parents or {}, accept_dtype, levels)
    bound = Agreement.ROUNDING if exact else Agreement.DIFFERENT
    first = search.run(bound)
    value = search.run(bound, attributes=False) if first is not None and first.kind == "requires_grad" else None
    of_value = first if value is None else value
    beyond = None
    if of_value is not None and of_value.within_rounding and (of_value.of_values or of_value.only_dtype):
        beyond = search.run(Agreement.DIFFERENT, attributes=False)
    position = next((i for i, call in enumerate(order) if not call.matched and call.rows), None)
    unmatched = order[position] if position is not None else None
    earlier = position is not None and (first is None or position < search.index[first.shows_at])
    harmless, around, whole = search.around_unmatched(unmatched, again) if unmatched is not None else (False, "", False)
    findings = Findings(exact, first, value, beyond, unmatched, earlier, harmless, around, whole)
    if findings.leading is beyond and beyond is not None and beyond.kind in ("output", "parameter", "argument"):
        return replace(findings, unmatched_is_harmless=True)
    return findings


def _anything_identical(calls: Sequence[MeasuredCall]) -> bool:
    for call in calls:
        for (ours, _), measure in call.rows:
            same = measure is not None and measure.agreement is Agreement.SAME
            if same and ours is not None and ours.kind == "tensor" and ours.value != 0 and _is_floating(ours.dtype):
                return True
    return False


def other_precision(calls: Sequence[MeasuredCall]) -> bool:
    """Whether one run as a whole computes in another dtype: more than half of the floating-point parameters and inputs that no recorded
    call put out have one."""
    if not any(call.dtype_differs for call in calls):
        return False
    put_out: set[object] = set()
    same = other = 0
    for call in calls:
        for (ours, theirs), _ in call.rows:
            if ours is None or theirs is None or ours.kind != "tensor" or not (_is_floating(ours.dtype) and _is_floating(theirs.dtype)):
                continue
            if ours.role in ("output", "parameters_grad"):
                put_out.add(ours.statistics)
            elif ours.statistics not in put_out and call.parts.direction == "forward":
                same, other = same + (ours.dtype == theirs.dtype), other + (ours.dtype != theirs.dtype)
    return other > same


def _is_floating(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


class _Search:
    def __init__(
        self,
        order: Sequence[MeasuredCall],
        parents: Mapping[str, str | None],
        golden_parents: Mapping[str, str | None],
        accept_dtype: bool,
        levels: Levels,
    ) -> None:
        self.order = order
        self.levels = levels
        self.accept_dtype = accept_dtype
        self.parents = parents
        self.golden_parents = golden_parents
        names = [call.name for call in order]
        self.by_name = dict(zip(names, order, strict=True))
        self.index = dict(zip(names, range(len(names)), strict=True))
        self.first_dtype = next((i for i, call in enumerate(order) if call.dtype_differs), len(order))

    def run(self, bound: Agreement, *, attributes: bool = True) -> FirstDifference | None:
        """The first difference when agreements of `bound` and worse count as differences, and with `attributes` requires_grad too."""
        some_before = False
        for call in self.order:
            if not call.matched:
                continue
            if max(call.inputs, call.parameters, call.outputs) >= bound:
                return self._explain(call, bound, some_before)
            if attributes and call.grad_differs:
                return self._requires_grad(call)
            some_before = some_before or bool(call.rows)
        return None

    def _explain(self, call: MeasuredCall, bound: Agreement, some_before: bool) -> FirstDifference:
        around = [self.by_name[name] for name in self._ancestors(call.name) if name in self.by_name and self.by_name[name].matched]
        if call.inputs < bound and call.parameters >= bound:
            return self._make("parameter", call, bound, ("parameters",))
        if call.inputs >= bound:
            if self._is_another_call(call):
                return self._make("sequence", call, bound, ("input",))
            if self._only_arguments(call, bound):
                return self._make("argument", call, bound, ("input",))
            owner = next((outer for outer in around if outer.inputs < bound), None)
            if owner is not None and owner.parameters >= bound:  # used by a call that was not recorded
                return self._make("parameter", owner, bound, ("parameters",))
            place = next((i for i, outer in enumerate(around) if outer.inputs < bound and outer.parameters < bound), len(around))
            # A module inside hands on what it was given itself: the code at fault makes the call whose input is the outermost to differ.
            given = next((outer for outer in reversed(around[:place]) if self._is_handed(outer, bound)), call)
            if place < len(around):
                return self._make("own code", given, bound, ("input",), module=around[place].name, shows_at=call)
            if not some_before:
                return self._make("first input", call, bound, ("input",))
            return self._make("input", given, bound, ("input",), shows_at=call)
        if call.parts.direction == "parameters_grad":
            return self._make("gradient", call, bound, ("parameters_grad",))
        inner = self._innermost(call, bound)
        return self._make("output", inner, bound, ("output",))

    def _requires_grad(self, call: MeasuredCall) -> FirstDifference:
        """Blames an input or a parameter where one differs, and the module that owns a parameter before the call that got it from there."""
        owner = self.by_name.get(next(self._ancestors(call.name), ""))
        if owner is not None and _of_grad(owner, "parameters") and not _of_grad(owner, "input"):
            call = owner
        for roles in (("input", "parameters"), ("output",)):
            if rows := _of_grad(call, *roles):
                break
        around = next(self._ancestors(call.name), None)
        return FirstDifference("requires_grad", call, rows, around, None, None, False, call.parameters, shows_at=call.name)

    def _innermost(self, call: MeasuredCall, bound: Agreement) -> MeasuredCall:
        """The first call inside a module that starts the difference. A backward entry of a module may stand before those inside it."""
        while call.parts.is_module:
            inside = (other for other in self.order if other.matched and self._is_inside(other.name, call.name))
            deeper = next((c for c in inside if c.inputs < bound and c.parameters < bound and c.outputs >= bound), None)
            if deeper is None:
                return call
            call = deeper
        return call

    def _is_another_call(self, call: MeasuredCall) -> bool:
        """A call that was added or removed before shifts the numbers in the names: the two then lie in different modules."""
        if call.parts.is_module or call.pair.golden is None:
            return False
        ours, theirs = call.name, call.pair.golden.name
        if ours not in self.parents or theirs not in self.golden_parents:
            return False
        # A module that one side alone has around the call is no other place: the next one that both have counts.
        golden_names = {other.pair.golden.name: name for name, other in self.by_name.items() if other.matched and other.pair.golden}
        outer = next((name for name in self._ancestors(ours) if name in self.by_name and self.by_name[name].matched), None)
        outer_there = next((name for name in _chain(theirs, self.golden_parents) if name in golden_names), None)
        if outer is None and outer_there is None:
            return self.parents[ours] != self.golden_parents[theirs]
        return outer != golden_names.get(outer_there or "")

    def around_unmatched(self, call: MeasuredCall, again: tuple[Collection[str], Collection[str]]) -> tuple[bool, str, bool]:
        """See `unmatched_is_harmless`, `unmatched_in` and `unmatched_whole` of Findings."""
        ours = call.pair.target is not None
        parents = self.parents if ours else self.golden_parents
        known = self.by_name if ours else {other.pair.golden.name: other for other in self.order if other.pair.golden is not None}
        names = list(_chain(call.name, parents))
        around = [known[name] for name in names if name in known]
        harmless = call.name in again[0 if ours else 1] or any(
            outer.matched and Agreement.UNKNOWN < outer.outputs < Agreement.DIFFERENT for outer in around
        )
        alone = [outer for outer in around if not outer.matched]
        return (harmless, alone[-1].name, True) if alone else (harmless, names[0] if names else "", False)

    def _inner(self, call: MeasuredCall) -> tuple[str | None, bool]:
        """The last call directly inside a module, and whether the two sides have other calls there; then the first is None."""
        golden = call.pair.golden
        last, others = None, False
        for other in on_both(self.order, self.levels):
            if other.pair.target is None:
                others = others or (golden is not None and self.golden_parents.get(other.name) == golden.name)
            elif self.parents.get(other.name) == call.name and other.name != call.name:
                last, others = other.name, others or not other.matched
        return (None, True) if others else (last, False)

    def _unknown_inner(self, call: MeasuredCall) -> str:
        """The first call directly inside a module with a value that was recorded and could not be compared."""
        inside = (other for other in self.order if self.parents.get(other.name) == call.name and other.name != call.name)
        return next((other.name for other in inside if any(row.measure is not None and row.measure.lost for row in other.rows)), "")

    def _make(
        self,
        kind: Kind,
        call: MeasuredCall,
        bound: Agreement,
        roles: tuple[str, ...],
        module: str | None = None,
        shows_at: MeasuredCall | None = None,
    ) -> FirstDifference:
        shown = call.name if shows_at is None else shows_at.name
        rows = tuple(_differing(call, bound, roles))
        container = module if module is not None else next(self._ancestors(call.name), None)
        around = self.by_name.get(container) if container is not None else None
        parameters = call.parameters if around is None else max(call.parameters, around.parameters)
        ours, theirs = rows[0].pair if rows else (None, None)
        dtypes = (ours.dtype, theirs.dtype) if ours is not None and theirs is not None and dtypes_differ(rows[0].pair) else None
        last_inner, other_calls = self._inner(call) if kind == "output" and call.parts.is_module else (None, False)
        accepted = self.accept_dtype and dtypes is not None and is_acceptable(*dtypes)
        code = call if kind == "output" else around
        inside = (call.name if kind == "output" else container, code.pair.golden.name if code is not None and code.pair.golden else None)
        before = on_both(self.order[: self.index[shown]], self.levels)
        made_by = find_cause(kind, call, rows, inside, before, (self.parents, self.golden_parents))
        return FirstDifference(
            kind,
            call,
            rows,
            container,
            last_inner,
            self.golden_parents.get(call.pair.golden.name) if kind == "sequence" and call.pair.golden is not None else None,
            all(row.measure is not None and row.measure.agreement < Agreement.DIFFERENT for row in rows),
            parameters,
            dtypes,
            self.index[shown] <= self.first_dtype,
            other_calls,
            bool(rows) and all(map(_is_reordered, rows)),
            shown,
            self._opens_backward(shown) if kind in ("input", "first input") else False,
            inputs_partly_unknown(around if kind == "own code" and around is not None else call),
            self._unknown_inner(call) if last_inner is not None else "",
            accepted,
            *made_by,
            overwritten_differs=_overwritten_differs(call, bound),
        )

    def _opens_backward(self, name: str) -> bool:
        """Whether it is a backward call, and none was recorded before it."""
        if self.by_name[name].parts.direction != "backward":
            return False
        return not any(call.matched and call.parts.direction == "backward" for call in self.order[: self.index[name]])

    @staticmethod
    def _is_handed(outer: MeasuredCall, bound: Agreement) -> bool:
        """Whether a tensor that a module is given differs; a plain argument alone need not have to do with what differs inside."""
        rows = _differing(outer, bound, ("input",))
        return any(row.pair.target is not None and row.pair.target.kind == "tensor" for row in rows)

    @staticmethod
    def _only_arguments(call: MeasuredCall, bound: Agreement) -> bool:
        return all(row.pair.target is not None and row.pair.target.kind != "tensor" for row in _differing(call, bound, ("input",)))

    def _is_inside(self, name: str, module: str) -> bool:
        return name != module and module in self._ancestors(name)

    def _ancestors(self, name: str) -> Iterator[str]:
        return _chain(name, self.parents)


def _chain(name: str, parents: Mapping[str, str | None]) -> Iterator[str]:
    seen = {name}
    parent = parents.get(name)
    while isinstance(parent, str) and parent not in seen:  # a damaged construct.json may hold a circle
        seen.add(parent)
        yield parent
        parent = parents.get(parent)


def _is_reordered(row: Measured) -> bool:
    (ours, theirs), measure = row
    return ours is not None and theirs is not None and measure is not None and looks_reordered(ours, theirs, measure)


def _of_grad(call: MeasuredCall, *roles: str) -> tuple[Measured, ...]:
    return tuple(
        row for row in call.rows if row.pair.target is not None and row.pair.target.role in roles and requires_grad_differs(row.pair)
    )


def _differing(call: MeasuredCall, bound: Agreement, roles: tuple[str, ...]) -> Iterator[Measured]:
    written = overwritten_input(call.parts)
    for row in call.rows:
        ours = row.pair.target
        if row.measure is None or ours is None or row.measure.agreement < bound or ours.role not in roles:
            continue
        if ours.role == "input" and written is not None and is_overwritten(ours, written):
            continue
        yield row


def _overwritten_differs(call: MeasuredCall, bound: Agreement) -> bool:
    """Whether the input that the call writes into differs; `inputs` of a call leaves it out."""
    written = overwritten_input(call.parts)
    if written is None:
        return False
    rows = ((row.pair.target, row.measure) for row in call.rows)
    return any(
        ours is not None and measure is not None and ours.role == "input" and is_overwritten(ours, written) and measure.agreement >= bound
        for ours, measure in rows
    )


__all__ = ["Findings", "FirstDifference", "Kind", "find"]
