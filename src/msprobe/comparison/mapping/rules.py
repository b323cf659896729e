"""Rules about tensors, as plain values: what the mapping file says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Select:
    """A part along `dim`: at `index`, or from `start` to `stop`."""

    dim: int
    index: int | None = None
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True)
class How:
    """How golden tensors become the one that the target is compared with, in the order of these fields.

    Attributes:
        shard: dimension along which the parts of several ranks are joined, or "sum" where they are terms.
        over: the group of ranks.
        concat, sum, select, transpose, flatten, mask: see the mapping file.
    """

    shard: int | str | None = None
    over: str = ""
    concat: int | None = None
    sum: bool = False
    select: Select | None = None
    transpose: tuple[int, int] | None = None
    flatten: tuple[int, int] | None = None
    mask: str | None = None

    def __str__(self) -> str:
        said = [f"shard {self.shard} over {self.over}"] if self.shard is not None else []
        said += [f"concat {self.concat}"] if self.concat is not None else []
        said += ["sum"] if self.sum else []
        said += ["select"] if self.select is not None else []
        said += [f"transpose {list(self.transpose)}"] if self.transpose is not None else []
        said += [f"flatten {list(self.flatten)}"] if self.flatten is not None else []
        said += [f"mask {self.mask}"] if self.mask is not None else []
        return ", ".join(said) or "as it is"


AS_IT_IS = How()


@dataclass(frozen=True)
class TensorRule:
    """A value of the target and the golden values it is made of. Names may hold `*` for one part of a path."""

    target: str
    golden: tuple[str, ...]
    how: How


SAME_PROMPT = "same"


@dataclass(frozen=True)
class Preparation:
    """What is done to one side before anything is paired; see preparing.py and the mapping file.

    Attributes:
        request: of a step that holds several requests, the one that is compared: its number, its id, or SAME_PROMPT; None for all of it.
        sequence: tensors [1, length, ...] hold the whole sequence of the other side's request.
        modules_only: calls of APIs are left out.
        values: pattern of a module's path -> its values that are compared, each with the recorded ones that it is the sum of; None: the
            module is left out, with everything inside.
        whole: the step must be one of a single tensor-parallel rank.
    """

    request: int | str | None = None
    sequence: bool = False
    modules_only: bool = False
    values: Mapping[str, Mapping[str, tuple[str, ...]] | None] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True)
class TensorRules:
    """All of them, the groups of ranks, and what is done to each side before (None: nothing to either)."""

    rules: tuple[TensorRule, ...] = ()
    groups: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    prepare: tuple[Preparation, Preparation] | None = None

    def __bool__(self) -> bool:
        return bool(self.rules or self.prepare)

    def group(self) -> tuple[tuple[int, ...], ...] | None:
        """The lists of ranks over which values are sharded, () for all ranks in one; None where no rule is about shards."""
        over = next((rule.how.over for rule in self.rules if rule.how.shard is not None), None)
        return None if over is None else tuple(self.groups.get(over, ()))


NO_RULES = TensorRules()
