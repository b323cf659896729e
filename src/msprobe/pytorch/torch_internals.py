"""Every private name of torch that msprobe touches, and nothing else; those of torch.compile and torch.fx are in compile_internals.py.

One place to look when a new torch version comes out; `tests/pytorch/test_torch_internals.py` holds each name against the installed one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd import graph as _graph
from torch.nn.modules import module as _torch_module
from torch.utils._python_dispatch import _disable_current_modes

COMPUTING_LIBRARY = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
"""What computes on the processor, where torch comes as a wheel for Linux."""

# --- function modes -------------------------------------------------------------------------------------------------------------------
push_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack
pop_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
mode_stack_length: Callable[[], int] = torch._C._len_torch_function_stack
NoTorchFunction = torch._C.DisableTorchFunction
"""Context manager: inside it neither function modes nor `__torch_function__` of subclasses are called."""

mode_depth: Callable[[], int] = torch._C._len_torch_function_stack
"""How many function modes this thread is in."""

VF: Any = torch._VF
OpOverload: type = torch._ops.OpOverload
OpOverloadPacket: type = torch._ops.OpOverloadPacket
TensorBase: type = torch._C.TensorBase


def schema_of(overload: Any) -> Any:
    """The schema of an OpOverload: `.arguments`, each with `.name` and `.alias_info`, and `.returns`."""
    return overload._schema


def operator_name(packet: Any) -> tuple[str, str]:
    """Namespace and name of an OpOverloadPacket."""
    namespace, _, name = packet._qualified_op_name.partition("::")
    return namespace, name


def insert_mode_at_bottom(mode: Any) -> None:
    """Put `mode` below all function modes of this thread, so that leaving a mode the user entered earlier still pops the user's.

    Only the default device (`torch.set_default_device`) stays below it: torch insists on finding that one at the very bottom. A device
    that `with torch.device(...)` has entered is popped from the top, like any other mode.
    """
    above: list[Any] = []
    default_device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    try:
        while mode_stack_length():
            above.append(pop_mode())
        if above and default_device is not None and above[-1] is default_device:
            push_mode(above.pop())
        push_mode(mode)
    finally:
        _push_back(above)


def _push_back(modes: list[Any]) -> None:
    while modes:
        push_mode(modes[-1])
        modes.pop()


def modes_of_this_thread(kind: type) -> list[Any]:
    """The function modes of one class that stand on this thread's stack."""
    return [m for m in map(torch._C._get_function_stack_at, range(mode_stack_length())) if isinstance(m, kind)]


def remove_mode(mode: Any) -> bool:
    """Take `mode` off this thread's stack wherever it stands; False if it is not there."""
    above: list[Any] = []
    found = False
    try:
        while mode_stack_length() and not found:
            top = pop_mode()
            if top is mode:
                found = True
            else:
                above.append(top)
    finally:
        _push_back(above)
    return found


# --- autograd -------------------------------------------------------------------------------------------------------------------------
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
graph_task: Callable[[], int] = torch._C._current_graph_task_id
"""Number of the running backward pass, -1 outside of one."""


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Have the engine call `callback` when the backward pass that is running now has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""How many dispatch modes this thread is in."""


def hook_keeper() -> Any:
    """What `node.register_hook` calls to keep a hook, as its class has it: (dictionary of hooks or None, hook) -> (dictionary, handle)."""
    return vars(torch.autograd.function._HookMixin).get("_register_hook")


def replace_hook_keeper(keeper: Any) -> None:
    """Have torch call `keeper` for that."""
    torch.autograd.function._HookMixin._register_hook = keeper


def put_tensor_hook(tensor: torch.Tensor, hook: Callable[[Any], None]) -> dict[Any, Any]:
    """What `register_hook` does to a tensor that is no leaf, but the tensor itself is as before: only its node in the graph has the hook.

    Returns:
        The dictionary that the node looks into: emptying it takes the hook off. Where the node dies, so does the hook.
    """
    hooks: OrderedDict[Any, Any] = OrderedDict(msprobe=hook)
    node: Any = tensor.grad_fn
    before = tensor._backward_hooks
    tensor._backward_hooks = hooks
    try:
        node._register_hook_dict(tensor)
    finally:
        tensor._backward_hooks = before
    return hooks


def put_leaf_hook(leaf: torch.Tensor, hook: Callable[[Any], None]) -> bool:
    """What `register_hook` does to a leaf, under the hook itself as its key; True where the leaf had no dictionary of hooks before."""
    hooks = leaf._backward_hooks
    if hooks is None:
        leaf._backward_hooks = OrderedDict({hook: hook})
        return True
    hooks[hook] = hook
    return False


def take_leaf_hook(leaf: torch.Tensor, hook: Callable[[Any], None], untouched: bool) -> None:
    """Take off what `put_leaf_hook` put on; `untouched`: there was no dictionary of hooks before."""
    hooks = leaf._backward_hooks
    if hooks is not None:
        hooks.pop(hook, None)
        if untouched and not hooks:
            leaf._backward_hooks = None


get_creation: Any = torch._C._autograd._get_creation_meta
set_creation: Any = torch._C._autograd._set_creation_meta
"""How a view came to be: it decides whether autograd lets it be changed in place."""
Creation: Any = torch._C._autograd.CreationMeta


def is_stale_view(tensor: torch.Tensor) -> bool:
    """Whether the base of a view was changed in place, and torch has not looked at the view since.

    torch makes the node of such a view anew where it is next asked for, and the engine adds up gradients in the order of the nodes: asking
    earlier changes their last bits. So this asks while the view is marked as one that autograd lets nobody change, which raises instead.
    """
    try:
        if tensor._version == 0 or not tensor._is_view():
            return False
    except RuntimeError:  # a tensor of inference mode counts no versions
        return False
    if get_creation(tensor) != Creation.DEFAULT:
        return False  # reading it raises by itself
    try:
        set_creation(tensor, Creation.MULTI_OUTPUT_NODE)
        return tensor.grad_fn is False  # never: it is a node or None
    except RuntimeError:
        return True
    finally:
        set_creation(tensor, Creation.DEFAULT)


def base_of_view(view: torch.Tensor) -> torch.Tensor:
    """The tensor that a view is a view of."""
    base = view._base
    assert base is not None
    return base


LeafNode: Any = torch._C._functions.AccumulateGrad
"""Class of the nodes of leaves; `.variable` is the leaf."""


def leaf_nodes(tensors: list[torch.Tensor]) -> list[Any]:
    """The AccumulateGrad nodes of leaves that require grad; the caller must keep them, the leaves do not.

    torch makes them on demand, and only temporary views lead to them. The views are made in a thread of their own: they would move this
    thread's sequence number, by which the engine orders the branches that several threads made of one graph.
    """
    found: list[Any] = []

    def look() -> None:
        with NoTorchFunction(), torch.enable_grad():
            found.extend(tensor.view_as(tensor).grad_fn.next_functions[0][0] for tensor in tensors)

    thread = threading.Thread(target=look, name="msprobe-leaf")
    thread.start()
    thread.join()
    return found


_VIEWS = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("View", "ReshapeAlias", "Select", "Slice", "Transpose", "T", "Mt", "Mh", "Permute", "Unsqueeze", "Squeeze", "Expand"),
        *("AsStrided", "Alias", "Indices", "Values"),
        *("Unfold", "Split", "SplitWithSizes", "Unbind", "Diagonal", "Movedim", "Real", "Imag", "ViewAsReal", "ViewAsComplex"),
        *("Unflatten", "Chunk", "Narrow", "Swapaxes"),
    )
    for number in range(4)
)


def makes_view(node: Any) -> bool:
    """Whether a node of the graph stands for an operation that gives a view of its input."""
    return type(node).__name__ in _VIEWS


PythonNode: type = torch.autograd.function.BackwardCFunction
"""Graph nodes of user-written `torch.autograd.Function`s are instances of it."""

PYTHON_NODE_CODES = frozenset(
    function.__code__ for function in (getattr(PythonNode, name, None) for name in ("apply", "apply_boxed")) if function is not None
)
"""Code objects by which the engine runs the backward of a user-written Function; `apply_boxed` from torch 2.14 on."""

CHECKPOINTING = ("checkpoint", "_checkpoint_impl")
"""Names of the functions that run checkpointed code for the first time; its piece stands in `gen`. The second from torch 2.14 on."""

run_backward: Callable[..., Any] = _graph._engine_run_backward


def current_run_backward() -> Callable[..., Any]:
    """What `torch.autograd.backward` and `.grad` call to run the engine."""
    return torch.autograd._engine_run_backward


def replace_run_backward(function: Callable[..., Any]) -> None:
    """Make `torch.autograd.backward` and `.grad` call `function` instead of the engine."""
    torch.autograd._engine_run_backward = function


# --- modules --------------------------------------------------------------------------------------------------------------------------
def _module_call_codes() -> frozenset[int]:
    call = torch.nn.Module._call_impl.__code__
    inner = [c for c in call.co_consts if isinstance(c, CodeType) and c.co_name == "inner"]
    return frozenset(map(id, inner or [call]))


MODULE_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_always_called",
)
"""Dictionaries of a module."""
HOOKS_OF_A_KIND = (
    ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)
"""The same: those that hold hooks, each followed by those that say more of them under the same keys."""


def values_of_hooks(before: Callable[..., None], after: Callable[..., None]) -> tuple[Any, ...]:
    """What `put_module_hooks` puts into each of MODULE_HOOKS."""
    return before, True, after, True


def put_module_hooks(module: torch.nn.Module, key: str, before: Callable[..., None], after: Callable[..., None]) -> None:
    """What `register_forward_pre_hook(with_kwargs)` and `register_forward_hook(always_call)` do, without a handle for each."""
    for name, value in zip(MODULE_HOOKS, values_of_hooks(before, after), strict=True):
        getattr(module, name)[key] = value


def take_module_hooks(module: torch.nn.Module, key: str) -> None:
    """Take off what `put_module_hooks` put on; nothing happens where nothing is."""
    for name in MODULE_HOOKS:
        getattr(module, name).pop(key, None)


_GLOBAL_HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks")


def only_hooks_of(module: torch.nn.Module, key: str) -> bool:
    """Whether calling this module runs no hooks but those that `put_module_hooks` has put under `key`."""
    if any(getattr(_torch_module, name) for name in _GLOBAL_HOOKS) or module._backward_hooks or module._backward_pre_hooks:
        return False
    return not (module._forward_hooks.keys() | module._forward_pre_hooks.keys()) - {key}


def put_pre_hook(module: torch.nn.Module, key: str, hook: Callable[..., Any]) -> None:
    """What `register_forward_pre_hook(with_kwargs)` does, without a handle; `take_module_hooks` takes it off."""
    module._forward_pre_hooks[key] = hook
    module._forward_pre_hooks_with_kwargs[key] = True


def put_gradient_hook(parameter: torch.Tensor, key: str, hook: Callable[[torch.Tensor], None]) -> None:
    """What `register_post_accumulate_grad_hook` does, without a handle and before all others: an optimizer may step in one of those."""
    hooks = parameter._post_accumulate_grad_hooks
    if hooks is None:
        hooks = parameter._post_accumulate_grad_hooks = OrderedDict()
    others = [other for other in dict.keys(hooks) if other != key]
    hooks[key] = hook
    # Torch goes by the order of insertion, which `move_to_end` does not change. Nothing of Python runs inside `any`, so no interruption and
    # no other thread sees the dictionary without one of them.
    any(map(hooks.__setitem__, others, map(hooks.pop, others)))


def take_gradient_hook(parameter: torch.Tensor, key: str, untouched: bool) -> None:
    """Take off what `put_gradient_hook` put on; `untouched`: there was no dictionary of hooks before."""
    hooks = parameter._post_accumulate_grad_hooks
    if hooks is not None:
        hooks.pop(key, None)
        if untouched and not hooks:
            parameter._post_accumulate_grad_hooks = None


MODULE_CALL_CODES = _module_call_codes()
"""ids of the code objects whose frames on the stack are one hooked module call each."""


CLIP_CODES = frozenset(
    id(getattr(f, "__wrapped__", f).__code__)
    for f in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_)
    if hasattr(getattr(f, "__wrapped__", f), "__code__")
)
"""ids of the code objects of gradient clipping."""


def script_hook_stubs() -> tuple[Any, str] | None:
    """Where `torch.jit.script` looks up a module's hooks, as (module, name); None if this torch has no such place."""
    recursive = sys.modules.get("torch.jit._recursive")
    return (recursive, "get_hook_stubs") if recursive is not None and hasattr(recursive, "get_hook_stubs") else None


# --- kinds of tensors -----------------------------------------------------------------------------------------------------------------
is_functorch_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


def forward_tangent(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tangent that a tensor carries in forward-mode differentiation; None outside of it."""
    if forward_ad._current_level < 0:
        return None
    tangent: torch.Tensor | None = forward_ad.unpack_dual(tensor).tangent
    return tangent


def finished_collective(tensor: Any) -> torch.Tensor:
    """The result behind an AsyncCollectiveTensor, waited for; the tensor itself stays as it is."""
    return torch.ops._c10d_functional.wait_tensor(tensor.elem)


is_batched: Callable[[torch.Tensor], bool] = torch._C._functorch.is_batchedtensor
is_zero_tensor: Callable[[torch.Tensor], bool] = torch.Tensor._is_zerotensor


dispatch_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""How many dispatch modes this thread is in."""


def no_dispatch_modes() -> contextlib.AbstractContextManager[Any]:
    """Our own torch operations are invisible to dispatch modes that the user has entered."""
    if dispatch_depth():
        return _disable_current_modes()
    return contextlib.nullcontext()


def dispatches_itself(kind: type) -> bool:
    """Whether a class of tensors has a `__torch_dispatch__` that is not torch's own."""
    owner = next((base for base in kind.__mro__ if "__torch_dispatch__" in vars(base)), torch.Tensor)
    return not owner.__module__.startswith("torch.") and owner is not torch.Tensor


NoTorchDispatch = torch._C._DisableTorchDispatch
"""While one is alive in a `with`, no `__torch_dispatch__` is called, so operations act on the memory that a tensor has itself."""


# --- torch.compile: see compile_internals.py ------------------------------------------------------------------------------------------
is_compiling: Callable[[], bool] = torch.compiler.is_compiling


# --- operators and their kernels ------------------------------------------------------------------------------------------------------
def has_kernel(operator: str, key: str) -> bool:
    """Whether an operator (`aten::dropout`) has a kernel of its own under a dispatch key."""
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:  # this version of torch does not know the key
        return False


def take_kernels_back(library: torch.library.Library) -> None:
    """What the library has put in the place of other kernels is gone, they run again."""
    library._destroy()


def script_like(original: Any, stand_in: Any) -> None:
    """`torch.jit.script` compiles a call of `stand_in` as what it compiles a call of the C function `original`."""
    operator = torch.jit._builtins._find_builtin(original)
    if operator is not None:
        torch.jit._builtins._register_builtin(stand_in, operator)
