"""Names of entries: what a dump of PyTorch would call what MindSpore has recorded."""

from __future__ import annotations

from typing import NamedTuple

MINDSPORE = "mindspore"

_HERE = {"Cell": "Module", "Mint": "Torch", "MintFunctional": "Functional", "MintDistributed": "Distributed"}
_TABLE = {"MintDistributed": "Distributed"}  # the table that holds the exceptions, where it has another name


class Base(NamedTuple):
    """`base` and `api` as in EntryName, in PyTorch's names."""

    base: str
    api: str


def module_base(base: str) -> str:
    """`Module.blocks.0.fc.Linear` of `Cell.blocks.0.fc.Dense`."""
    from msprobe.comparison.frameworks.equivalents import equivalents

    around, _, class_name = base.rpartition(".")
    root, dot, path = around.partition(".")
    return f"{_HERE.get(root, root)}{dot}{path}.{equivalents().classes.get(class_name, class_name)}"


def api_base(prefix: str, api: str) -> Base:
    """`Torch.unsqueeze` of `Functional.expand_dims`, `Torch.matmul` of `Primitive.matmul.MatMul`.

    Args:
        prefix: `Mint`, `MintFunctional`, `Functional` (mindspore.ops), `Tensor`, `Primitive`, `Distributed`, `MintDistributed`, `Jit`.
        api: what follows, of a primitive `{name in its cell}.{class}`.
    """
    from msprobe.comparison.frameworks.equivalents import equivalents

    name = api.rpartition(".")[2] if prefix == "Primitive" else api
    known = equivalents().apis.get(_TABLE.get(prefix, prefix), {}).get(name)
    if known is None:
        return Base(f"{_HERE.get(prefix, prefix)}.{api}", api)
    return Base(known, known.partition(".")[2])


def mapped_name(name: str) -> str:
    """What a mapping file calls an API of the golden side, in PyTorch's names."""
    prefix, _, api = name.partition(".")
    return api_base(prefix, api).base if api else name


def mapped_class(name: str) -> str:
    """The same of a class, or of `path.Class`."""
    from msprobe.comparison.frameworks.equivalents import equivalents

    around, dot, last = name.rpartition(".")
    return f"{around}{dot}{equivalents().classes.get(last, last)}"
