"""A recorded training step of a small net, as a `mix` statistics dump, with faults that can be planted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .dumps import Json, api, backward, frame, module, tensor, write_dump

BLOCK = "Module.blocks.0.Block.forward.0"
FC = "Module.blocks.0.fc.Linear.forward.0"
HEAD = "Module.head.Linear.forward.0"


@dataclass
class Net:
    """Every field is a value that a test may change; the defaults are the golden run.

    Model: Block(fc: Linear -> relu -> x * scale) -> head: Linear -> loss -> backward. `between` is a factor that the block's own code
    applies before it calls relu, by no recorded call.
    """

    data: float = 1.0
    fc_weight: float = 2.0
    fc_gain: float = 1.0
    between: float = 1.0
    relu_gain: float = 1.0
    scale: float = 3.0
    head_weight: float = 5.0
    head_gain: float = 1.0
    loss_gain: float = 1.0
    fc_backward_gain: float = 1.0
    gradient_gain: float = 1.0
    dropped: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)

    def entries(self) -> tuple[Json, dict[str, str | None]]:
        """dump.json's `data` and construct.json."""
        x, w, v = self.data, self.fc_weight, self.head_weight
        h = x * w * self.fc_gain
        r_in = h * self.between
        r = r_in * self.relu_gain
        s = r * self.scale
        y = s * v * self.head_gain
        loss = y * self.loss_gain
        g_y = 0.25 * loss
        g_s = g_y * v
        g_r = g_s * self.scale
        g_h = g_r
        g_x = g_h * w * self.fc_backward_gain
        data: Json = {
            "Functional.linear.0.forward": api([tensor(x), tensor(w)], [tensor(h)]),
            FC: module([tensor(x)], [tensor(h)], weight=tensor(w)),
            "Functional.relu.0.forward": api([tensor(r_in)], [tensor(r)]),
            "Tensor.__mul__.0.forward": api([tensor(r), {"type": "float", "value": self.scale}], [tensor(s)]),
            BLOCK: module([tensor(x)], [tensor(s)]),
            "Functional.linear.1.forward": api([tensor(s), tensor(v)], [tensor(y)]),
            HEAD: module([tensor(s)], [tensor(y)], weight=tensor(v)),
            "Functional.mse_loss.0.forward": api([tensor(y)], [tensor(loss, shape=())]),
            "Functional.mse_loss.0.backward": backward([tensor(1.0, shape=())], [tensor(g_y)]),
            "Functional.linear.1.backward": backward([tensor(g_y)], [tensor(g_s), tensor(g_y * s)]),
            "Module.head.Linear.parameters_grad.0": {"weight": [tensor(g_y * s)]},
            "Module.head.Linear.backward.0": backward([tensor(g_y)], [tensor(g_s)]),
            "Tensor.__mul__.0.backward": backward([tensor(g_s)], [tensor(g_r)]),
            "Functional.relu.0.backward": backward([tensor(g_r)], [tensor(g_h)]),
            "Functional.linear.0.backward": backward([tensor(g_h)], [tensor(g_x), tensor(g_h * x)]),
            "Module.blocks.0.fc.Linear.parameters_grad.0": {"weight": [tensor(g_h * x * self.gradient_gain)]},
            "Module.blocks.0.fc.Linear.backward.0": backward([tensor(g_h)], [tensor(g_x)]),
            "Module.blocks.0.Block.backward.0": backward([tensor(g_s)], [tensor(g_x)]),
        }
        parents: dict[str, str | None] = {
            "Functional.linear.0.forward": FC,
            FC: BLOCK,
            "Functional.relu.0.forward": BLOCK,
            "Tensor.__mul__.0.forward": BLOCK,
            BLOCK: None,
            "Functional.linear.1.forward": HEAD,
            HEAD: None,
            "Functional.mse_loss.0.forward": None,
            "Functional.mse_loss.0.backward": None,
            "Functional.linear.1.backward": "Module.head.Linear.backward.0",
            "Module.head.Linear.backward.0": None,
            "Tensor.__mul__.0.backward": "Module.blocks.0.Block.backward.0",
            "Functional.relu.0.backward": "Module.blocks.0.Block.backward.0",
            "Functional.linear.0.backward": "Module.blocks.0.fc.Linear.backward.0",
            "Module.blocks.0.fc.Linear.backward.0": "Module.blocks.0.Block.backward.0",
            "Module.blocks.0.Block.backward.0": None,
        }
        kept = {self.renamed.get(name, name): entry for name, entry in data.items() if not name.startswith(self.dropped or ("\0",))}
        return kept, parents

    def write(self, directory: Path) -> Path:
        data, construct = self.entries()
        return write_dump(directory, data, construct=construct, stack=stacks(data))


def stacks(data: dict[str, Any]) -> dict[str, list[str]]:
    """Torch's own frames first, then the model's line, a line of an installed library, and the script."""
    torch = frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1811, "inner", "return hook(*args)")
    return {
        name: [
            torch,
            frame("/venv/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py", 77, "forward", "x = self.fc(x)"),
            frame("/home/me/model.py", 100 + number, "forward", f"y = self.part{number}(x)"),
            torch,
            frame("/home/me/train.py", 9, "<module>", "out = model(x)"),
        ]
        for number, name in enumerate(data)
        if "forward" in name
    }
