"""The mapping file: what it may hold. docs/compare.md shows it by example."""

from __future__ import annotations

import reprlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from msprobe.comparison.mapping import rules
from msprobe.comparison.mapping.names import Names
from msprobe.comparison.mapping.nearest import did_you_mean


def _name(text: str) -> str:
    if not text or text != text.strip() or ".." in text or text.startswith(".") or text.endswith("."):
        raise ValueError(f"{text!r} is no name: parts joined by single dots are expected")
    return text


Name = Annotated[StrictStr, AfterValidator(_name)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shard(_Strict):
    """A value lies in parts on several ranks: along dimension `dim`, or, `sum`, as terms. `over`: the group of ranks."""

    dim: StrictInt | Literal["sum"]
    over: Name = "tp"


class Select(_Strict):
    """A part of the golden tensor: `index`, or `start` to `stop`, along `dim`."""

    dim: StrictInt
    index: StrictInt | None = None
    start: StrictInt | None = None
    stop: StrictInt | None = None

    @model_validator(mode="after")
    def _one(self) -> Select:
        if (self.index is None) == (self.start is None and self.stop is None):
            raise ValueError("select needs `index`, or `start` and `stop`, and not both")
        return self


_WORDS = ("sum", "transpose")
_EXAMPLES = {
    "concat": "{concat: -1}",
    "select": "{select: {dim: 0, index: 1}}",
    "flatten": "{flatten: [0, 1]}",
    "mask": "{mask: model.input.attention_mask}",
    "shard": "{shard: {dim: 0, over: tp}}",
}


class How(_Strict):
    """How golden tensors become the one that the target is compared with. In the order of these fields, whatever the order in the file.

    Attributes:
        shard: put together what lies on several ranks, of whichever side has more of them.
        concat: join the golden tensors along this dimension.
        sum: add them up.
        select: take a part.
        transpose: exchange two dimensions.
        flatten: make one dimension of the first to the last of these two, on the side that has more dimensions.
        mask: compare only where the tensor of this name is not zero; each side has its own, or the golden one holds for both.
    """

    shard: Shard | None = None
    concat: StrictInt | None = None
    sum: StrictBool = False
    select: Select | None = None
    transpose: tuple[StrictInt, StrictInt] | None = None
    flatten: tuple[StrictInt, StrictInt] | None = None
    mask: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """`how: sum`; `transpose: true` for the last two dimensions."""
        if value == "sum":
            return {"sum": True}
        if value == "transpose":
            return {"transpose": (-2, -1)}
        if isinstance(value, dict):
            return {**value, "transpose": (-2, -1)} if value.get("transpose") is True else value
        if isinstance(value, str) and value in _EXAMPLES:
            raise ValueError(f"`{value}` needs a value, as in `how: {_EXAMPLES[value]}`")
        if isinstance(value, str):
            raise ValueError(f"there is no way {value!r} to put tensors together{did_you_mean(value, (*_WORDS, *_EXAMPLES))}")
        shown = reprlib.repr(value)[:60]
        raise ValueError(f"{shown} says nothing of how tensors are put together: {' or '.join(_WORDS)}, or such as {_EXAMPLES['concat']}")

    def plain(self) -> rules.How:
        """Without pydantic, which a comparison need not import."""
        return rules.How(
            shard=self.shard.dim if self.shard is not None else None,
            over=self.shard.over if self.shard is not None else "",
            concat=self.concat,
            sum=self.sum,
            select=rules.Select(**self.select.model_dump()) if self.select is not None else None,
            transpose=self.transpose,
            flatten=self.flatten,
            mask=self.mask,
        )

    @model_validator(mode="after")
    def _one_way(self) -> How:
        if self.concat is not None and self.sum:
            raise ValueError("concat and sum exclude each other")
        if self.flatten is not None:
            first, last = self.flatten
            if first > last and (first < 0) == (last < 0):
                raise ValueError(f"flatten goes from the first dimension to the last, as in [{last}, {first}]")
        return self


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class TensorRule(_Strict):
    """A value of the target and the golden values it is made of."""

    target: Name
    golden: Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(min_length=1)]
    how: How = How()

    @model_validator(mode="after")
    def _fits(self) -> TensorRule:
        several = len(self.golden) > 1
        if several and self.how.concat is None and not self.how.sum:
            raise ValueError("several golden tensors need `how: {concat: dim}` or `how: sum`")
        if not several and (self.how.concat is not None or self.how.sum):
            raise ValueError("concat and sum need several golden tensors, as in `golden: [a, b]`")
        stars = self.target.split(".").count("*")
        for name in self.golden:
            if name.split(".").count("*") > stars:
                raise ValueError(f"{name!r} has more `*` than {self.target!r}")
        return self


class Prepared(_Strict):
    """What is done to one side before anything is paired.

    Attributes:
        request: of a step of an engine, the request that is compared: its number, its id, or `same` for the one with the prompt of the
            other side.
        sequence: tensors [1, length, ...] hold the whole sequence; the positions of the request are compared.
        whole: the step must be one of a single tensor-parallel rank: others hold parts of values.
        modules_only: calls of APIs are left out.
        values: module -> its values that are compared: value -> the recorded values that it is the sum of (one, a list, or nothing for
            itself). Nothing instead of values: the module is left out, with everything inside.
    """

    request: StrictInt | StrictStr | None = None
    sequence: StrictBool = False
    whole: StrictBool = False
    modules_only: StrictBool = False
    values: dict[Name, dict[Name, Annotated[tuple[Name, ...], BeforeValidator(_listed)] | None] | None] = {}

    def plain(self) -> rules.Preparation:
        """Without pydantic."""
        values = {
            module: None if known is None else {key: parts or (key,) for key, parts in known.items()}
            for module, known in self.values.items()
        }
        return rules.Preparation(self.request, self.sequence, self.modules_only, values, self.whole)


class BothPrepared(_Strict):
    """The two sides."""

    target: Prepared = Prepared()
    golden: Prepared = Prepared()

    @model_validator(mode="after")
    def _one_request(self) -> BothPrepared:
        if self.target.request is not None and self.golden.request is not None:
            raise ValueError("only one of the two sides can have a `request`")
        return self


class MappingFile(_Strict):
    """The whole file.

    Attributes:
        modules: path in the target -> path in the golden model; also for all modules inside; the longest wins; `*` is one part of a path.
        classes: class in the target -> class in the golden model.
        calls: API in the target -> API in the golden run (`Tensor.__add__: Torch.add`).
        tensors: values that are put together otherwise.
        prepare: what is done to each side before anything is paired.
        groups: ranks over which values are sharded: name -> lists of ranks of the side that has more; all ranks where none is given.
    """

    modules: dict[Name, Name] = {}
    classes: dict[Name, Name] = {}
    calls: dict[Name, Name] = {}
    tensors: tuple[TensorRule, ...] = ()
    groups: dict[Name, tuple[tuple[StrictInt, ...], ...]] = {}
    prepare: BothPrepared | None = None

    def plain(self) -> tuple[Names, rules.TensorRules]:
        """What it says of names, and of tensors."""
        prepare = None if self.prepare is None else (self.prepare.target.plain(), self.prepare.golden.plain())
        tensors = tuple(rules.TensorRule(rule.target, rule.golden, rule.how.plain()) for rule in self.tensors)
        return Names(self.modules, self.classes, self.calls), rules.TensorRules(tensors, self.groups, prepare)

    @model_validator(mode="after")
    def _known(self) -> MappingFile:
        for ours, theirs in self.modules.items():
            if theirs.split(".").count("*") > ours.split(".").count("*"):
                raise ValueError(f"modules: {theirs!r} has more `*` than {ours!r}")
        for name, lists in self.groups.items():
            ranks = [rank for ranks in lists for rank in ranks]
            if not ranks or not all(lists):
                raise ValueError(f"groups: {name} names no ranks; lists of ranks such as [[0, 1], [2, 3]] are expected")
            if min(ranks) < 0:
                raise ValueError(f"groups: {name} names rank {min(ranks)}; ranks begin at 0")
            twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
            if twice is not None:
                raise ValueError(f"groups: {name} names rank {twice} twice")
        for rule in self.tensors:
            over = rule.how.shard.over if rule.how.shard is not None else None
            if over is not None and self.groups and over not in self.groups:
                raise ValueError(f"groups: there is no group {over!r}, over which {rule.target} is sharded")
        return self


__all__ = ["MappingFile"]
