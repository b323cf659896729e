"""Trainings that use autograd in unusual ways: checkpointing, own functions, double backward, hooks, functional calls."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from nets import Training, adam, net, sgd
from torch import nn
from torch.utils.checkpoint import checkpoint


class _Stage(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.fc1, self.act, self.drop, self.fc2 = nn.Linear(6, 12), nn.GELU(), nn.Dropout(dropout), nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(self.drop(self.act(self.fc1(x))))


class _Checkpointed(nn.Module):
    def __init__(self, dropout: float, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.stages = nn.ModuleList([_Stage(dropout), _Stage(dropout)])
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=self.reentrant)
        return x


def _checkpointed(dropout: float, reentrant: bool) -> Training:
    model = _Checkpointed(dropout, reentrant)

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(3, 6)).square().mean()
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


@net
def checkpoint_reentrant(dropout: float) -> Training:
    return _checkpointed(dropout, True)


@net
def checkpoint_non_reentrant(dropout: float) -> Training:
    return _checkpointed(dropout, False)


class _Clipped(torch.autograd.Function):
    """A backward written by a user, with operations of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= ctx.limit) + 0.01 * torch.sign(x), None


class _InPlaceBackward(torch.autograd.Function):
    """A backward that changes the gradient it is given, in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.mul_(2)


class _Marked(torch.autograd.Function):
    """Changes its input in place and returns two tensors, one without gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        largest = x.argmax(-1)
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(largest)
        return x, largest

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> torch.Tensor:
        return gradient


class _Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = _Clipped.apply(self.first(x), 0.8)
        x, largest = _Marked.apply(x)
        return self.second(_InPlaceBackward.apply(x)) * (1 + largest.unsqueeze(-1))


@net
def own_functions(_: float) -> Training:
    model = nn.Sequential(_Own(), nn.Tanh())

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(4, 5)).square().sum()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def double_backward(_: float) -> Training:
    """A gradient penalty: the gradient is itself part of the loss."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward_backward(_: int) -> torch.Tensor:
        x = torch.randn(5, 4, requires_grad=True)
        score = model(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = score.mean() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


@net
def accumulation(dropout: float) -> Training:
    """Three backward passes for one optimizer step, and a second one over a retained graph."""
    model = nn.Sequential(nn.Linear(5, 5), nn.Dropout(dropout), nn.ReLU(inplace=True), nn.Linear(5, 2))

    def forward_backward(_: int) -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(3):
            loss = F.cross_entropy(model(torch.randn(3, 5)), torch.randint(2, (3,))) / 3
            loss.backward(retain_graph=True)
            total += loss.detach()
        loss.backward(torch.tensor(0.5))
        return total

    return Training(model, sgd(model), forward_backward)


@net
def functional_call(_: float) -> Training:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sigmoid())

    def forward_backward(_: int) -> torch.Tensor:
        shifted = {name: p + 0.1 for name, p in model.named_parameters()}
        state = {**shifted, **dict(model.named_buffers())}
        loss = torch.func.functional_call(model, state, (torch.randn(5, 4),)).square().mean()
        for p, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            p.grad = gradient
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def function_transforms(_: float) -> Training:
    """Gradients per sample by grad and vmap, and a forward-mode derivative."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())

    def forward_backward(_: int) -> torch.Tensor:
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss_of(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, values, (x.unsqueeze(0),)).square().sum()

        x = torch.randn(5, 4)
        per_sample = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(parameters, x)
        for name, p in model.named_parameters():
            p.grad = per_sample[name].mean(0)
        value, slope = torch.func.jvp(lambda t: loss_of(parameters, t), (x[0],), (x[1],))
        return value + slope

    return Training(model, sgd(model), forward_backward)


def _clamp_gradient(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-0.05, 0.05)


@net
def user_hooks(_: float) -> Training:
    """Hooks of the user's on tensors, parameters and modules, some of which change gradients and outputs."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    seen: list[torch.Tensor] = []
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    model[2].weight.register_post_accumulate_grad_hook(_clamp_gradient)
    model[1].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 1.5,))
    model[2].register_forward_hook(lambda module, args, output: output + 1)
    model[4].register_forward_pre_hook(lambda module, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)

    def forward_backward(_: int) -> torch.Tensor:
        hidden = model[:2](torch.randn(4, 4))
        hidden.retain_grad()
        hidden.register_hook(lambda gradient: seen.append(gradient.clone()))
        out = model[2:](hidden)
        out.register_hook(lambda gradient: gradient * 3)
        out.grad_fn.register_prehook(lambda gradients: tuple(g * 0.5 for g in gradients))
        loss = out.logsumexp(1).mean()
        loss.backward()
        seen.append(hidden.grad)
        return loss

    return Training(model, sgd(model), forward_backward, extra=lambda: {str(i): g for i, g in enumerate(seen)})


@net
def average_by_deepcopy(_: float) -> Training:
    """An averaged copy is made inside the window; a teacher computes with the copy's weights."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2)))
    teachers: list[nn.Module] = []

    def forward_backward(number: int) -> torch.Tensor:
        if not teachers:
            teachers.append(copy.deepcopy(model))
        x = torch.randn(5, 4)
        with torch.no_grad():
            for slow, fast in zip(teachers[0].parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1 * (number + 1))
            goal = teachers[0](x)
        loss = F.mse_loss(model(x), goal + 0.3)
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward, extra=lambda: dict(teachers[0].named_parameters()))


@net
def views_in_place(_: float) -> Training:
    """Views that are changed in place, in-place functions, outputs of chunk and unbind used in part."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))

    def forward_backward(_: int) -> torch.Tensor:
        x = model[0](torch.randn(4, 6))
        x[:, 0] = 1.0
        x[:, 1:3].mul_(2)
        x.view(-1)[3:5].zero_()
        left, _, right = model[1](x.clone()).chunk(3, dim=1)
        rows = (left * right).unbind(0)
        mask = torch.zeros(4, 2).index_add(0, torch.tensor([0, 2]), rows[0].repeat(2, 1))
        mask.masked_fill_(mask > 1, 0.5).t_()
        loss = (mask.t() + rows[1]).add_(left).relu_().sum() - (-x).exp().mean() + x.sum(0)[-1]
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def saved_tensor_hooks(_: float) -> Training:
    """The user packs saved tensors in an own way; a tool that saved any would be counted."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2))
    packed = [0]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed[0] += 1
        return tensor.double()

    def forward_backward(_: int) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.float()), torch.autograd.set_detect_anomaly(True):
            loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward, extra=lambda: {"packed": torch.tensor(packed[0])})
