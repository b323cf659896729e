"""Two dumps in which almost every row differs, in every way that a stage of the comparison treats by itself. The same for the same seed."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from .dumps import Json

_APIS = [
    *("Functional.linear", "Torch.matmul", "Functional.relu", "Torch.add", "Torch.softmax", "Functional.embedding", "Torch.empty"),
    *("Tensor.copy_", "Tensor.__setitem__", "Functional.scaled_dot_product_attention", "Torch.unknown", "Distributed.all_reduce"),
    *("Functional.layer_norm", "Torch.exp", "Torch.sum", "Functional.cross_entropy", "Torch.argmax"),
]
_CLASSES = ["Linear", "LayerNorm", "LlamaRMSNorm", "Block", "Embedding", "ReLU"]
_DTYPES = ["torch.float32"] * 6 + ["torch.bfloat16", "torch.float64", "torch.int64", "torch.bool", "torch.complex64", "torch.unheard_of"]
_SHAPES: list[Any] = [[4, 128, 256], [4, 128, 256], [256, 256], [], [8], [0], [1, 2], None]
_ODD: list[Any] = [None, 0.0, -0.0, math.nan, math.inf, -math.inf, "NaN", 3, True, "text", 1e-320, 1e308, -3.4028234663852886e38, -65504.0]
_NOISE = [0.0, 1e-7, 1e-7, 1e-7, 3e-7, 1e-6, 3e-5, 5e-4, 1e-2, 0.7]
_SCALARS: list[tuple[Any, Any]] = [
    *((0.5, 0.5), (0.5, 0.5000001), (0.5, 0.7), (3, 3), (3, 4), (True, True), (True, False), ("cpu", "cuda:0"), ("a", "b"), (None, None)),
    *((3, 3.0), (math.nan, math.nan), (-math.inf, -3.4e38), ('say "a, b"', "=1+1"), (10**30, 10**30 + 1)),
]


def unlike(seed: int, calls: int) -> tuple[Json, Json]:
    """The entries of target and golden dump; `calls` of them, gradients and backward entries besides."""
    return _Maker(Random(seed)).dumps(calls)


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.odd = random.choice([0.0, 0.02, 0.15])
        self.passed: list[tuple[Json, Json]] = []

    def dumps(self, calls: int) -> tuple[Json, Json]:
        target: Json = {}
        golden: Json = {}
        for index in range(calls):
            for name, ours, theirs in self.call(index):
                if self.random.random() > self.odd / 3:
                    target[name] = ours
                if self.random.random() > self.odd / 3:
                    golden[name] = theirs
        return target, golden

    def call(self, index: int) -> list[tuple[str, Json, Json]]:
        pick = self.random
        if pick.random() < 0.3:
            base = f"Module.layers.{index}.{pick.choice(_CLASSES)}"
            forward = f"{base}.forward.0"
            parts = [("input_args", self.some()), ("input_kwargs", {}), ("output", self.some(1)), ("parameters", self.named())]
            found = [self.entry(forward, parts)]
            if pick.random() < 0.5:
                entries = [self.entry(f"{base}.backward.0", [("input", self.some(1)), ("output", self.some())])]
                entries.append(self.entry(f"{base}.parameters_grad.0", [(key, [both]) for key, both in self.named().items()]))
                found += entries if pick.random() < 0.5 else entries[::-1]
            return found
        base = f"{pick.choice(_APIS)}.{index}"
        parts = [("input_args", self.some()), ("input_kwargs", self.keywords()), ("output", self.some(1))]
        found = [self.entry(f"{base}.forward", parts)]
        if pick.random() < 0.3:
            found.append(self.entry(f"{base}.backward", [("input", self.some(1)), ("output", self.some())]))
        return found

    def entry(self, name: str, parts: list[tuple[str, Any]]) -> tuple[str, Json, Json]:
        return name, {key: _side(value, 0) for key, value in parts}, {key: _side(value, 1) for key, value in parts}

    def some(self, least: int = 0) -> list[Any]:
        found: list[Any] = [self.tensor() for _ in range(self.random.randint(least, 3))]
        if self.random.random() < self.odd:
            found.append([self.tensor(), self.scalar()])
        return found

    def named(self) -> dict[str, Any]:
        return {key: self.tensor() for key in ("weight", "bias") if self.random.random() < 0.7}

    def keywords(self) -> dict[str, Any]:
        return {key: self.scalar() for key in ("scale", "device") if self.random.random() < 0.4}

    def scalar(self) -> tuple[Any, Any]:
        ours, theirs = self.random.choice(_SCALARS)
        return {"type": type(ours).__name__, "value": ours}, {"type": type(theirs).__name__, "value": theirs}

    def tensor(self) -> tuple[Json, Json]:
        pick = self.random
        if self.passed and pick.random() < 0.4:  # what another call took in or put out
            return pick.choice(self.passed)
        value = pick.uniform(0.5, 2.0) * 10.0 ** pick.randint(-6, 3)
        numbers = [value * 3.0, -value * 2.9, value * 0.013, value * 361.7]
        noise = pick.choice(_NOISE)
        others = [number * (1.0 + noise * pick.uniform(-1, 1)) if pick.random() < 0.9 else number for number in numbers]
        if pick.random() < 0.03:  # the same values in another order
            others = [numbers[0], numbers[1], numbers[2] * (1 + 1e-15), numbers[3] * (1 - 1e-15)]
        if pick.random() < 0.04:  # a mask
            numbers[1], others[1] = pick.choice([(-math.inf, -3.4028234663852886e38), (-65504.0, -65504.0), (-1e9, -1e9)])
        record = {
            "type": "torch.Tensor",
            "dtype": pick.choice(_DTYPES),
            "shape": pick.choice(_SHAPES),
            "requires_grad": pick.random() < 0.5,
        }
        both = [{**record, **dict(zip(("Max", "Min", "Mean", "Norm"), side, strict=True))} for side in (numbers, others)]
        for side in both:
            if pick.random() < self.odd:
                side[pick.choice(["Max", "Min", "Mean", "Norm"])] = pick.choice(_ODD)
            if pick.random() < self.odd / 2:
                side[pick.choice(["dtype", "shape", "requires_grad"])] = pick.choice(["torch.float16", [3], None, False])
            if pick.random() < self.odd / 4:
                del side[pick.choice(list(side)[1:])]
        self.passed.append((both[0], both[1]))
        return both[0], both[1]


def _side(value: Any, side: int) -> Any:
    if isinstance(value, tuple):
        return value[side]
    if isinstance(value, list):
        return [_side(item, side) for item in value]
    return {key: _side(item, side) for key, item in value.items()} if isinstance(value, dict) else value
