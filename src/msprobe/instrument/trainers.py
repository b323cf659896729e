"""Scripts whose loop is somebody else's: the Trainer of transformers, the Trainer of Lightning. They get a callback."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from msprobe.instrument.roles import Roles
from msprobe.instrument.tree import Tree, dotted

_LIGHTNING = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer", "lightning.pytorch.trainer.Trainer")


@dataclass(frozen=True)
class Trainer:
    """Where a trainer is made.

    Attributes:
        kind: `transformers` or `lightning`.
        statement: the assignment.
        name: what it is assigned to; None where it has no name, so that no line can be put behind it.
    """

    kind: str
    statement: cst.CSTNode
    name: str | None
    notes: tuple[str, ...] = ()


def trainers(tree: Tree, roles: Roles) -> list[Trainer]:
    """The places where a trainer of transformers or Lightning is made, in the order of the file."""
    found = []
    for call in tree.nodes:
        if not isinstance(call, cst.Call):
            continue
        kind = _kind(roles, roles.full(dotted(call.func)))
        if kind is None:
            continue
        above = tree.parent(call)
        if (isinstance(above, cst.Assign) and (name := dotted(above.targets[-1].target))) or (
            isinstance(above, cst.AnnAssign) and (name := dotted(above.target))
        ):
            found.append(Trainer(kind, above, name))
        else:
            note = "the trainer has no name here: write `trainer = ...` in a line of its own first, or record the script with msprobe run"
            found.append(Trainer(kind, call, None, (note,)))
    return found


def _kind(roles: Roles, full: str) -> str | None:
    if full in _LIGHTNING:
        return "lightning"
    last = full.rpartition(".")[2]
    if last in roles.trainer_classes or full in roles.trainer_classes:
        return "transformers"
    if last.endswith("Trainer") and full.partition(".")[0] in ("transformers", "trl", "sentence_transformers", "setfit"):
        return "transformers"
    return None


_OTHER_FRAMEWORKS = ("mindspore", "msadapter", "tensorflow", "keras", "jax", "paddle", "mlx")


def unsupported(roles: Roles) -> str | None:
    """Why a script cannot be recorded whatever calls are in it."""
    imported = {full.lstrip(".").partition(".")[0] for full in roles.imports.values()}
    for name in _OTHER_FRAMEWORKS:
        if name in imported and not imported & {"torch", "transformers", "lightning", "pytorch_lightning"}:
            return f"it imports {name} and no PyTorch; msprobe enable is for PyTorch"
    if "torchair" in imported:
        return "it runs a graph made by torchair, of which nothing can be recorded: run it in eager mode, without torchair"
    if "verl" in imported:
        return "verl starts its own processes, in which the loop runs; msprobe enable does not reach them"
    return None


def elsewhere(roles: Roles) -> str | None:
    """Why there is nothing to record in a file that only defines what a trainer in another file runs."""
    if roles.lightning_classes:
        name = sorted(roles.lightning_classes)[0]
        return f"the loop of {name} is that of Lightning's Trainer: run msprobe enable on the file that makes the Trainer"
    if roles.trainer_classes:
        name = sorted(roles.trainer_classes)[0]
        return f"the loop of {name} is that of transformers: run msprobe enable on the file that makes the {name}"
    if "vllm.LLM" in roles.imports.values():
        return (
            "the model runs inside vLLM, which records without a change of the script: start it with MSPROBE_CONFIG=config.json "
            "(docs/vllm.md of msprobe's repository)"
        )
    return None
