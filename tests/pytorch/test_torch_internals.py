"""Each private name of torch that we touch does in the installed torch what we take it to do."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import no_default_device
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import msprobe.pytorch
from msprobe import numerics
from msprobe.pytorch import compile_internals, torch_internals

pytestmark = pytest.mark.filterwarnings("ignore")

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


class Notes(TorchFunctionMode):
    """Writes down which functions pass."""

    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__()
        self.name, self.seen = name, seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{self.name}:{getattr(func, '__name__', func)}")
        return func(*args, **(kwargs or {}))


def stack() -> list[Any]:
    return torch_internals.modes_of_this_thread(object)


@pytest.fixture(autouse=True)
def the_stack_is_left_as_it_was() -> Iterator[None]:
    before = stack()
    yield
    assert stack() == before


# --- function modes ------------------------------------------------------------------------------------------------------------------
def test_a_mode_at_the_bottom_is_met_last() -> None:
    seen: list[str] = []
    ours, user = Notes("ours", seen), Notes("user", seen)
    with user:
        torch_internals.insert_mode_at_bottom(ours)
        torch.relu(torch.ones(1).neg())
        assert [x for x in seen if "relu" in x] == ["user:relu", "ours:relu"]
        assert stack()[-2:] == [ours, user] and torch_internals.modes_of_this_thread(Notes) == [ours, user]
    assert stack()[-1] is ours and torch_internals.remove_mode(ours)
    assert not torch_internals.remove_mode(ours)


def test_a_mode_is_removed_wherever_it_stands() -> None:
    seen: list[str] = []
    modes = [Notes(str(i), seen) for i in range(4)]
    before = stack()
    for mode in modes:
        torch_internals.push_mode(mode)
    for gone in (2, 0, 3, 1):
        assert torch_internals.remove_mode(modes[gone])
        modes[gone] = None  # type: ignore[call-overload]
        assert stack() == before + [m for m in modes if m is not None]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_default_device_stays_the_user_s(device: str) -> None:
    """Entered and left in any order."""
    ours = Notes("ours", [])
    with torch.device(device):
        torch_internals.insert_mode_at_bottom(ours)
        assert torch.empty(1).device.type == device
    assert torch.empty(1).device.type == "cpu" and stack()[-1] is ours
    with torch.device(device):
        torch_internals.remove_mode(ours)
        assert torch.empty(1).device.type == device
    torch_internals.insert_mode_at_bottom(ours)
    torch.set_default_device(device)
    try:
        assert torch.empty(1).device.type == device
        torch_internals.remove_mode(ours)
        assert torch.empty(1).device.type == device
    finally:
        no_default_device()
    assert torch.empty(1).device.type == "cpu"


def test_modes_belong_to_their_thread() -> None:
    ours = Notes("ours", [])
    torch_internals.insert_mode_at_bottom(ours)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((torch_internals.mode_stack_length(), torch_internals.remove_mode(ours))))
    thread.start()
    thread.join()
    assert found == [(0, False)] and torch_internals.remove_mode(ours)


def test_inside_a_mode_it_is_off() -> None:
    seen: list[str] = []
    with Notes("ours", seen):
        torch.nn.functional.cross_entropy(torch.ones(1, 3), torch.tensor([1]))
    assert [x for x in seen if "ones" not in x and "tensor" not in x] == ["ours:cross_entropy"]


class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("called")


def test_no_torch_function() -> None:
    tensor = torch.ones(2).as_subclass(Subclass)
    seen: list[str] = []
    with Notes("ours", seen), torch_internals.NoTorchFunction():
        assert tensor.sum().item() == 2.0 and tensor.data_ptr()
    assert seen == []


# --- autograd ------------------------------------------------------------------------------------------------------------------------
def test_nodes_are_numbered_in_the_order_they_are_made() -> None:
    x = torch.ones(2, requires_grad=True)
    before = torch_internals.sequence_number()
    y = x * 2
    between = torch_internals.sequence_number()
    z = y * 2
    assert before <= y.grad_fn._sequence_nr() < between <= z.grad_fn._sequence_nr() < torch_internals.sequence_number()


def test_graph_tasks_have_numbers() -> None:
    assert torch_internals.graph_task() == -1
    x = torch.ones(1, requires_grad=True)
    seen: list[int] = []
    for _ in range(2):
        y = x * 2
        y.register_hook(lambda g: seen.append(torch_internals.graph_task()))
        y.backward()
    assert len(set(seen)) == 2 and min(seen) >= 0 and torch_internals.graph_task() == -1


def test_the_end_of_a_backward_pass() -> None:
    x = torch.ones(1, requires_grad=True)
    seen: list[str] = []
    y = x * 2
    y.register_hook(lambda g: torch_internals.at_end_of_backward(lambda: seen.append("end")))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("leaf"))
    y.backward()
    assert seen == ["leaf", "end"]
    with pytest.raises(RuntimeError):
        torch_internals.at_end_of_backward(lambda: None)


@pytest.mark.parametrize("requires", ["parameter", "leaf"])
def test_the_node_of_a_leaf(requires: str) -> None:
    leaf = nn.Parameter(torch.ones(2)) if requires == "parameter" else torch.ones(2, requires_grad=True)
    before = torch_internals.sequence_number()
    (node,) = torch_internals.leaf_nodes([leaf])
    assert torch_internals.sequence_number() == before
    assert node.name().endswith("AccumulateGrad") and node.variable is leaf
    assert node is (leaf * 2).grad_fn.next_functions[0][0] is torch_internals.leaf_nodes([leaf])[0]
    assert type(node) is torch_internals.LeafNode
    with torch.no_grad():
        assert torch_internals.leaf_nodes([torch.ones(1, requires_grad=True), leaf])[1] is node
    assert torch_internals.leaf_nodes([]) == []


def test_the_node_of_a_leaf_of_a_subclass_and_under_a_mode() -> None:
    leaf = torch.ones(2).as_subclass(Subclass)
    with torch_internals.NoTorchFunction():
        leaf.requires_grad_()
    seen: list[str] = []
    with Notes("ours", seen):
        assert torch_internals.leaf_nodes([leaf])[0].name().endswith("AccumulateGrad")
    assert seen == []


def test_nodes_of_user_written_functions() -> None:
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    x = torch.ones(1, requires_grad=True)
    assert isinstance(Doubles.apply(x).grad_fn, torch_internals.PythonNode)
    assert not isinstance((x * 2).grad_fn, torch_internals.PythonNode)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: (x * 2).sum().backward(),
        lambda x: torch.autograd.backward((x * 2).sum()),
        lambda x: torch.autograd.grad((x * 2).sum(), x),
        lambda x: torch.utils.checkpoint.checkpoint(lambda t: t * 2, x, use_reentrant=True).sum().backward(),
    ],
)
def test_every_backward_pass_goes_through_one_function(monkeypatch: pytest.MonkeyPatch, run: Callable[[torch.Tensor], Any]) -> None:
    calls: list[int] = []

    def ours(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return before(*args, **kwargs)

    before = torch_internals.current_run_backward()
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", before)  # put back whatever happens
    torch_internals.replace_run_backward(ours)
    run(torch.ones(2, requires_grad=True))
    assert torch_internals.current_run_backward() is ours
    torch_internals.replace_run_backward(before)
    assert calls and torch_internals.current_run_backward() is before is torch.autograd.graph._engine_run_backward


def test_hooks_of_nodes_are_kept_by_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    before, kept = torch_internals.hook_keeper(), []
    assert isinstance(before, staticmethod)
    monkeypatch.setattr(torch.autograd.function._HookMixin, "_register_hook", before)  # put back whatever happens

    def ours(hooks: Any, hook: Any) -> Any:
        kept.append(hook)
        return before.__func__(hooks, hook)

    torch_internals.replace_hook_keeper(staticmethod(ours))
    node = (torch.ones(2, requires_grad=True) * 3).grad_fn
    hooks = [lambda *_: None, lambda *_: None]
    handles = [node.register_hook(hooks[0]), node.register_prehook(hooks[1])]  # type: ignore[union-attr]
    torch_internals.replace_hook_keeper(before)
    assert kept == hooks and torch_internals.hook_keeper() is before
    assert all(type(handle) is torch.utils.hooks.RemovableHandle for handle in handles)


def test_hooks_of_nodes_see_gradients_after_those_of_tensors() -> None:
    """`Node.register_prehook` is called with the gradients of outputs before the node runs, `register_hook` with those of inputs after."""
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    seen: list[Any] = []
    y.grad_fn.register_prehook(lambda grads: seen.append(("before", grads[0].tolist())))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("after", inputs[0].tolist(), outputs[0].tolist())))
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == [("before", [10.0, 10.0]), ("after", [30.0, 30.0], [10.0, 10.0])]


# --- modules -------------------------------------------------------------------------------------------------------------------------
def test_one_frame_of_a_hooked_module_call_is_known() -> None:
    depths: list[int] = []

    def count(*_: Any) -> None:
        frame, found = sys._getframe(), 0
        while frame is not None:
            found += id(frame.f_code) in torch_internals.MODULE_CALL_CODES
            frame = frame.f_back  # type: ignore[assignment]
        depths.append(found)

    model = nn.Sequential(nn.Sequential(nn.ReLU()))
    for module in model.modules():
        module.register_forward_pre_hook(count)
        module.register_forward_hook(count)
    model(torch.ones(1))
    assert depths == [1, 2, 3, 3, 2, 1]


def test_hooks_of_modules_may_be_called_although_the_forward_raises() -> None:
    class Fails(nn.Module):
        def forward(self) -> None:
            raise ValueError

    seen: list[Any] = []
    module = Fails()
    module.register_forward_hook(lambda m, args, kwargs, out: seen.append(out), with_kwargs=True, always_call=True)
    with pytest.raises(ValueError):
        module()
    assert seen == [None]


def test_a_global_hook_finds_the_keyword_arguments_one_frame_up() -> None:
    from msprobe.pytorch.dump.module_dump.hooks import ModuleHooks

    seen: list[Any] = []
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    hooks = ModuleHooks(lambda name, module, args, kwargs: seen.append((name, sorted(kwargs))), lambda *_: None, lambda *_: None)
    hooks.register(nn.Sequential(layer))
    with torch.no_grad():
        layer(torch.ones(1, 2, 4), src_mask=None, is_causal=False)
    hooks.remove()
    assert seen[0] == ("Module.0.TransformerEncoderLayer", ["is_causal", "src_mask"])


# --- kinds of tensors ----------------------------------------------------------------------------------------------------------------
def test_wrapped_by_functorch() -> None:
    seen: list[tuple[bool, bool]] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        seen.append((torch_internals.is_functorch_wrapped(x), torch_internals.is_batched(x)))
        return x.sum()

    torch.vmap(note)(torch.ones(2, 3))
    torch.func.grad(note)(torch.ones(3))
    note(torch.ones(3))
    assert seen == [(True, True), (True, False), (False, False)]


def test_known_to_be_zero() -> None:
    assert torch_internals.is_zero_tensor(torch._efficientzerotensor(2)) and not torch_internals.is_zero_tensor(torch.zeros(2))


def test_no_dispatch_modes() -> None:
    seen: list[str] = []

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Counts():
        with torch_internals.no_dispatch_modes():
            torch.ones(1) + 1
        assert seen == []
        torch.ones(1) + 1
    assert len(seen) == 2
    with torch_internals.no_dispatch_modes():
        torch.ones(1)


# --- torch.compile -------------------------------------------------------------------------------------------------------------------
def test_the_stance_is_put_back() -> None:
    import torch._dynamo.eval_frame as eval_frame

    before = eval_frame._stance
    restore = compile_internals.force_eager()
    assert restore is not None and eval_frame._stance.stance == "force_eager"
    restore()
    assert eval_frame._stance == before


def test_compiled_modules_are_looked_through() -> None:
    module = nn.Linear(1, 1)
    assert compile_internals.unwrap_compiled(module) is module and not compile_internals.any_compiled([module])
    compiled = torch.compile(module, backend="eager")
    assert compile_internals.unwrap_compiled(compiled) is module and compile_internals.any_compiled([compiled])
    module.compile(backend="eager")
    assert compile_internals.any_compiled([module])
    scripted = torch.jit.script(nn.ReLU())
    assert compile_internals.unwrap_compiled(scripted) is scripted and not compile_internals.any_compiled([scripted])


def test_calls_of_compiled_functions_are_known() -> None:
    """Those of functions that `torch.compiler.disable` has wrapped are none, though torch gives them the same name."""

    def below() -> bool:
        return compile_internals.is_below_compiled_call(sys._getframe())

    import torch._dynamo

    assert not torch.compiler.disable(below)()
    restore = compile_internals.force_eager()
    try:
        assert torch.compile(below, backend="eager")()
    finally:
        assert restore is not None
        restore()


def test_exporting_is_done_while_compiled_code_runs_eagerly() -> None:
    import torch._dynamo

    restore = compile_internals.force_eager()
    try:
        exported = torch.export.export(nn.ReLU(), (torch.ones(2),), strict=True)
        graph = torch._dynamo.export(nn.ReLU())(torch.ones(2)).graph_module
    finally:
        assert restore is not None
        restore()
    for made in (exported.module(), graph):
        assert made(torch.tensor([-1.0, 1.0])).tolist() == [0, 1]


def test_not_compiling_now() -> None:
    assert torch_internals.is_compiling() is False


# --- one place -----------------------------------------------------------------------------------------------------------------------
# Private attributes of torch's objects (not names of modules) that are read where they are needed.
OBJECTS = {
    "_parameters",
    "_modules",
    "_post_accumulate_grad_hooks",
    "_sequence_nr",
    "_local_tensor",
    "_forward_hooks",
    "_qualified_op_name",
}


FILES = {Path(module.__file__).name for module in (torch_internals, compile_internals)}


def test_private_names_of_torch_are_touched_in_two_files_only() -> None:
    """`torch._x` or `torch.a._b` anywhere else is a finding."""
    found = []
    for path in sorted(Path(msprobe.pytorch.__file__).parent.rglob("*.py")):
        if path.name in FILES:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                text = ast.unparse(node)
                if text.startswith("torch.") and node.attr not in OBJECTS:
                    found.append(f"{path.name}:{node.lineno}: {text}")
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch":
                private = [part for part in (*node.module.split("."), *(alias.name for alias in node.names)) if part.startswith("_")]
                if private:
                    found.append(f"{path.name}:{node.lineno}: from {node.module} import {private}")
    assert found == []


@pytest.mark.parametrize("module", [torch_internals, compile_internals])
def test_every_name_here_is_used(module: Any) -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in Path(msprobe.pytorch.__file__).parents[1].rglob("*.py")
        if path.name != Path(module.__file__).name
    )
    own = inspect.getsource(module)
    names = [n for n in vars(module) if (not n.startswith("_") and f"\n{n}" in own) or f"\ndef {n}(" in own]
    unused = [n for n in names if n not in source and own.count(n) < 2]
    assert unused == []


# --- operators and their kernels ------------------------------------------------------------------------------------------------------
def test_kernels_are_known_by_their_keys() -> None:
    assert torch_internals.has_kernel("aten::dropout", "CompositeImplicitAutograd")
    assert not torch_internals.has_kernel("aten::dropout", "CPU")
    assert not torch_internals.has_kernel("aten::dropout", "NoSuchKey")


def test_the_cache_of_compiled_code_can_be_switched() -> None:
    before = compile_internals.use_compiled_code_on_disk(False)
    assert compile_internals.use_compiled_code_on_disk(True) is False
    assert compile_internals.use_compiled_code_on_disk(bool(before)) is True


def test_put_pre_hook() -> None:
    module = nn.Identity()
    torch_internals.put_pre_hook(module, "key", lambda module, args, kwargs: ((args[0] + 1,), kwargs))
    assert module(torch.zeros(1)).item() == 1
    torch_internals.take_module_hooks(module, "key")
    assert module(torch.zeros(1)).item() == 0
    assert not module._forward_pre_hooks and not module._forward_pre_hooks_with_kwargs


@pytest.mark.parametrize(
    "register",
    [
        nn.modules.module.register_module_forward_pre_hook,
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_full_backward_pre_hook,
        nn.modules.module.register_module_full_backward_hook,
        nn.Module.register_forward_pre_hook,
        nn.Module.register_forward_hook,
        nn.Module.register_full_backward_pre_hook,
        nn.Module.register_full_backward_hook,
    ],
    ids=lambda register: register.__name__,
)
def test_hooks_of_somebody_else_are_seen(register: Callable[..., Any]) -> None:
    module = nn.Identity()
    torch_internals.put_module_hooks(module, "key", lambda *_: None, lambda *_: None)
    assert torch_internals.only_hooks_of(module, "key")
    handle = register(*([] if "module" in register.__name__ else [module]), lambda *_: None)
    try:
        assert not torch_internals.only_hooks_of(module, "key")
    finally:
        handle.remove()
    assert torch_internals.only_hooks_of(module, "key")


@pytest.mark.skipif(
    not os.path.exists(torch_internals.COMPUTING_LIBRARY) or TORCH < (2, 13),
    reason="no wheel for Linux, or one with an older OpenMP runtime",
)
@pytest.mark.skipif(not numerics.HAVE_KERNELS, reason="no compiler")
def test_the_computing_library_has_threads_to_share() -> None:
    assert numerics.share_threads(torch_internals.COMPUTING_LIBRARY)
    assert not numerics.share_threads(None)
