"""Which calls are recorded, and which sides of them."""

from __future__ import annotations

from msprobe.config.result import DataMode
from msprobe.recording.inside import Inside, Range, backward_of, is_gradient, is_module_forward
from msprobe.recording.risk import within_risk_level
from msprobe.recording.unmatched import MOST_SEARCHED, NamesSeen


class Selection:
    """The fields `list`, `scope`, `tensor_list`, `risk_level` and `data_mode`, asked by entry name.

    One object serves one step: scope opens and closes as names pass by.

    Args:
        names, scope, tensor_names: the fields `list`, `scope` and `tensor_list`.
        risk_level: ALL, FOCUS or CORE; without effect where `names` or `scope` is given.
        sides: the field `data_mode`.
        expand_modules: a module that `names` matches brings along all that runs inside it (level mix).
        ignore_case: for `tensor_names` (task nan_check).
        level: the level of recording, for what is said about names that never came.
        seen: what came by in earlier steps of the process.
    """

    def __init__(
        self,
        names: tuple[str, ...] = (),
        scope: tuple[str, ...] = (),
        tensor_names: tuple[str, ...] = (),
        risk_level: str = "FOCUS",
        sides: DataMode | None = None,
        expand_modules: bool = False,
        ignore_case: bool = False,
        level: str = "mix",
        seen: NamesSeen | None = None,
    ) -> None:
        self.sides = sides or DataMode()
        self._names = names
        self._tensor_names = tuple(name.casefold() for name in tensor_names) if ignore_case else tensor_names
        self._ignore_case = ignore_case
        self._risk_level = "ALL" if names or scope else risk_level
        self._within: dict[tuple[str, str], bool] = {}
        self._expand = expand_modules and bool(names)
        self._expanded, self._expanded_backward = Inside(), Inside()
        self._range = Range(*scope) if scope else None
        self._level = level
        self._seen = NamesSeen() if seen is None else seen
        asked = [("list", name) for name in names] + [("scope", name) for name in scope]
        self._waiting = self._still_waiting(asked)
        """Names of `list` and `scope` that nothing has matched so far, in this process."""
        self._waiting_tensors = self._still_waiting([("tensor_list", name) for name in tensor_names])
        self.everything = not names and not scope
        """True when no entry is refused by name: the hot path asks no further."""

    def wants_api(self, prefix: str, api: str) -> bool:
        """Whether the risk level lets this API through at all."""
        key = (prefix, api)
        known = self._within.get(key)
        if known is None:
            known = self._within[key] = within_risk_level(prefix, api, self._risk_level)
        return known

    def enters(self, name: str, parent: str | None = None) -> bool:
        """Say that the call `name` begins (a forward entry) or that its gradients have come (a backward entry); whether it is recorded.

        With `scope`, the first name opens it and the second closes it, both included with what runs inside them.

        Args:
            name: the entry's name.
            parent: the entry's parent in construct.json, the innermost module around the call.
        """
        if self.everything:
            return True
        if self._waiting:
            self._note(name)
        listed = self._listed(name, parent)  # before the scope: what it expands may begin outside
        return (self._range is None or self._range.enters(name, parent)) and listed

    def _listed(self, name: str, parent: str | None) -> bool:
        named = not self._names or any(item in name for item in self._names)
        if not self._expand:
            return named
        if is_module_forward(name):
            inside = self._expanded.begins(name, parent, named)
            self._expanded_backward.begins(name, parent, inside or any(item in backward_of(name) for item in self._names))
            return inside
        return named or self._inside(name, parent)

    def _inside(self, name: str, parent: str | None) -> bool:
        return (self._expanded_backward if is_gradient(name) else self._expanded).holds(name, parent)

    def matches(self, name: str, parent: str | None = None) -> bool:
        """Whether `list` asks for this entry; `scope` is not asked, nothing has happened yet."""
        return not self._names or any(item in name for item in self._names) or (self._expand and self._inside(name, parent))

    def may_want_gradients(self, prefix: str) -> bool:
        """Whether `list` may ask for gradients of the parameters of this module (`Module.{path}.{Class}`), of whatever number."""
        name = f"{prefix}.parameters_grad.0"
        return self.matches(name) or any("parameters_grad" in item for item in self._names)

    def ends_inside(self, name: str) -> bool:
        """Say that a module ends that was left out when it began; whether its end lies in the scope."""
        return self._range is not None and self._range.ends(name) and self.matches(name)

    def saves_tensors(self, name: str) -> bool:
        """Whether `tensor_list` asks for the values of this entry."""
        if self._waiting_tensors:
            self._note_tensors(name)
        if self._ignore_case:
            name = name.casefold()
        return any(item in name for item in self._tensor_names)

    # --- names that never came --------------------------------------------------------------------------------------------------------
    def unmatched(self, ended: bool = False) -> list[str]:
        """Messages about names in `list`, `scope` and `tensor_list` that nothing has matched, each name once in a process.

        Args:
            ended: False at stop(): what may still come with a backward pass waits. True when the step ends; then a scope that is still
                open is told too, in every step.
        """
        texts = []
        searched = 0
        open_range = self._range if ended and self._range is not None and self._range.is_open else None
        for where, name in dict.fromkeys((*self._waiting, *self._waiting_tensors)):
            if (where, name) in self._seen.told or (not ended and self._may_come(where, name)):
                continue
            self._seen.told.add((where, name))
            left_out = [f"{prefix}.{api}" for (prefix, api), within in self._within.items() if not within]
            advice = self._seen.advice(name, self._level, left_out, searched < MOST_SEARCHED)
            searched += 1
            text = f'"{where}": "{name}" has matched nothing so far'
            if open_range is not None and (where, name) == ("scope", open_range.last):
                text, open_range = self._left_open(open_range), None
            texts.append(f"{text}; {advice}" if advice else text)
        if open_range is not None:
            texts.append(self._left_open(open_range))
        return texts

    def _may_come(self, where: str, name: str) -> bool:
        """Whether a name can still match after stop(), or be told of better when the step ends."""
        last = self._range is not None and where == "scope" and name == self._range.last
        backward = "backward" in name or "parameters_grad" in name
        return last or backward or not (self._seen.calls or self._level_excludes(name))

    def _level_excludes(self, name: str) -> bool:
        return self._level == "L1" and name.startswith(("Module.", "Cell."))

    def _left_open(self, between: Range) -> str:
        why = "came before the first name" if between.last_came_early else "did not come"
        return f'"scope": "{between.last}" {why}: everything from "{between.first}" to the end of the step was recorded'

    def _still_waiting(self, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [one for one in asked if one not in self._seen.matched]

    def _note(self, name: str) -> None:
        self._seen.note(name)
        for where, wanted in self._waiting:
            if wanted == name if where == "scope" else wanted in name:
                self._seen.matched.add((where, wanted))
        self._waiting = self._still_waiting(self._waiting)

    def _note_tensors(self, name: str) -> None:
        self._seen.note(name)
        text = name.casefold() if self._ignore_case else name
        for where, wanted in self._waiting_tensors:
            if (wanted.casefold() if self._ignore_case else wanted) in text:
                self._seen.matched.add((where, wanted))
        self._waiting_tensors = self._still_waiting(self._waiting_tensors)
