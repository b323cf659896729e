"""Every private name of MindSpore that we touch, and nothing else. What a release lacks is None: the feature that needs it says so."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LEAF = (1 << 64) - 1
"""The sequence number of a node that belongs to a leaf: a parameter, or an argument that is differentiated."""


def _attribute(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name, None)
    except Exception:  # a release that has moved it
        return None


jit_executor = _attribute("mindspore.graph.api", "_JitExecutor") or _attribute("mindspore.common.api", "_JitExecutor")
"""Runs a function that jit has compiled; compiles it first."""
cell_executor = _attribute("mindspore.graph.api", "_CellGraphExecutor") or _attribute("mindspore.common.api", "_CellGraphExecutor")
"""Compiles cells in graph mode."""
_CACHES = ("ms_compile_cache", "cells_compile_cache")
_wait = _attribute("mindspore.hal.stream", "synchronize_")
has_grad_nodes = hasattr(_attribute("mindspore", "Tensor"), "_grad_node")
"""Whether tensors know their node of the backward graph (MindSpore 2.10 has it)."""


def synchronize() -> None:
    """Wait for all that was started. `runtime.synchronize` does not wait on a CPU, and `hal.synchronize` warns that it is deprecated."""
    if _wait is not None:
        _wait()
    else:
        import mindspore

        mindspore.hal.synchronize()


def node_of(tensor: Any) -> Any:
    """The node of the backward graph that makes a tensor's gradient, None outside of differentiation."""
    return tensor._grad_node


def place_of(tensor: Any) -> int:
    """Which of its node's outputs a tensor is."""
    return int(tensor._output_index)


def node_id(node: Any) -> int:
    """A number that tells nodes apart while they live."""
    unique = getattr(node, "_unique_id", None)
    if unique is not None:
        return int(unique())
    number = sequence_number(node)  # MindSpore 2.8
    return number if number < LEAF else LEAF + (hash(node.name()) & LEAF)


def sequence_number(node: Any) -> int:
    """Nodes are numbered as they are made; LEAF for leaves."""
    return int(node._sequence_nr())


def output_shape(node: Any, place: int) -> Any:
    """The shape of one of a node's outputs."""
    return node._input_metadata[place].shape


def is_made_by_graph(tensor: Any) -> bool:
    """Whether the backward graph makes a tensor: none that it begins with, such as a parameter, and none outside of differentiation."""
    node = tensor._grad_node if has_grad_nodes else None
    return node is not None and sequence_number(node) < LEAF


def is_uninitialized(tensor: Any) -> bool:
    """Whether a tensor's values have not been made yet (a Parameter before its first use in graph mode)."""
    return bool(getattr(tensor, "has_init", False))


def whole_graphs_by_default() -> bool | None:
    """Whether graphs of this Ascend device run at jit_level O2 where nobody has set one; None where MindSpore does not say."""
    try:
        context = _attribute("mindspore._c_expression", "MSContext").get_instance()
        kind = str(context.get_ascend_soc_version())
        return kind == "ascend910" if kind else None
    except Exception:  # a release without it
        return None


def has_compiled() -> bool:
    """Whether a function or a cell that still lives has been compiled in this process; False where a release does not show it."""
    functions, cells = (_attribute(jit_executor.__module__, name) if jit_executor is not None else None for name in _CACHES)
    return bool(functions) or any((cells or {}).values())


def in_graph_mode() -> bool:
    """Whether cells are compiled as a whole."""
    import mindspore

    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)
