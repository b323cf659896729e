"""A package `torch` on MindSpore, as MSAdapter is one: just enough to see how its calls are named."""

from __future__ import annotations

import json
import sys
import types

import mindspore as ms
import numpy as np
from mindspore import Parameter, mint, ops

ms.Tensor(np.ones(1, np.float32)) * 2  # the first operation with a Python scalar may fail with numpy 2: MindSpore's own fault


class Module:
    def __init__(self):
        self._parameters, self._modules = {}, {}

    def __setattr__(self, name, value):
        if isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, Parameter):
            self._parameters[name] = value
        object.__setattr__(self, name, value)

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def parameters(self):
        return [parameter for _, module in self.named_modules() for parameter in module._parameters.values()]

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


class Linear(Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        numbers = np.random.RandomState(inputs).randn(outputs, inputs).astype(np.float32)
        self.weight = Parameter(ms.Tensor(numbers), name=f"weight{inputs}")
        self.bias = Parameter(ms.Tensor(np.zeros(outputs, np.float32)), name=f"bias{inputs}")

    def forward(self, x):
        return sys.modules["torch"].nn.functional.linear(x, self.weight, self.bias)


def package():
    torch, nn = types.ModuleType("torch"), types.ModuleType("torch.nn")
    functional = types.ModuleType("torch.nn.functional")
    functional.linear = lambda x, weight, bias: mint.matmul(x, ops.transpose(weight, (1, 0))) + bias
    functional.relu = lambda x: ops.relu(x)
    torch.tanh, torch.mean = (lambda x: ops.tanh(x)), (lambda x: ops.mean(x))
    torch.Tensor, torch.nn = ms.Tensor, nn
    nn.functional, nn.Module, nn.Linear = functional, Module, Linear
    sys.modules.update({"torch": torch, "torch.nn": nn, "torch.nn.functional": functional})
    return torch


torch = package()

from msprobe.mindspore import PrecisionDebugger  # noqa: E402


class Net(Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(4, 3), Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.second(torch.nn.functional.relu(self.first(x)) * 2.0))


def recorded(level, **fields):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    name = "_".join([level, *fields])
    with open(f"{name}.json", "w") as file:
        json.dump({"task": "statistics", "level": level, "dump_path": name, "statistics": fields}, file)
    debugger, net = PrecisionDebugger(f"{name}.json"), Net()
    debugger.start(net)
    x = ms.Tensor(np.linspace(-1, 1, 8).astype(np.float32).reshape(2, 4))
    loss, gradients = ms.value_and_grad(lambda x: torch.mean(net(x)), None, net.parameters())(x)
    debugger.stop()
    debugger.step()
    return float(loss), [gradient.asnumpy().tolist() for gradient in gradients]


answers = {"plain": None}
plain = Net()
given = ms.Tensor(np.linspace(-1, 1, 8).astype(np.float32).reshape(2, 4))
loss, gradients = ms.value_and_grad(lambda x: torch.mean(plain(x)), None, plain.parameters())(given)
answers["plain"] = float(loss), [gradient.asnumpy().tolist() for gradient in gradients]
before = torch.tanh, torch.nn.functional.relu, Module.__call__
for level in ("L0", "L1", "mix"):
    answers[level] = recorded(level)
answers["mix_list"] = recorded("mix", list=["second"])
answers["mix_scope"] = recorded("mix", scope=["Module.first.Linear.forward.0", "Module.first.Linear.forward.0"])
answers["mix_data_mode"] = recorded("mix", data_mode=["forward", "output"])
answers["mix_tensor_list"] = recorded("mix", tensor_list=["second"])
answers["mix_summary_mode"] = recorded("mix", summary_mode="md5")
answers["put_back"] = before == (torch.tanh, torch.nn.functional.relu, Module.__call__)
with open(sys.argv[1], "w") as file:
    json.dump(answers, file)
