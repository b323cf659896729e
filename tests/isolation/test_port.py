"""The golden run of one implementation, the script another one with the same module names."""

from __future__ import annotations

from isolation.scripts import BEGIN, Scripts

LIBRARY = (
    BEGIN
    + """
import collections
Output = collections.namedtuple("Output", ["hidden", "cache"])

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, hidden, positions=None, use_cache=None):
        k, v = self.k(hidden), self.v(hidden)
        return self.o(torch.softmax(k @ k.mT, -1) @ v)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = Attention(), nn.Linear(8, 8)

    def forward(self, x, positions=None, use_cache=None):
        x = x + self.attention(hidden=x, positions=positions, use_cache=use_cache)
        return x + self.mlp(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x, use_cache=None):
        for layer in self.layers:
            x = layer(x, positions=torch.arange(5), use_cache=True)
        return {"hidden": x, "cache": None}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.head = Model(), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.model(x, use_cache=False)["hidden"])

torch.manual_seed(0)
net = Net()
second = net.model.layers[1]
debugger = PrecisionDebugger(config_path="config.json")
debugger.start(net)
net(torch.randn(2, 5, 8)).sum().backward()
debugger.stop()
debugger.step()
"""
)

PORT = LIBRARY
for _theirs, _ours in (
    ("hidden, positions=None, use_cache=None", "hidden"),
    ("class Attention(nn.Module)", "class Dense(nn.Linear):\n    pass\n\nclass Attention(nn.Module)"),
    ("Attention(), nn.Linear(8, 8)", "Attention(), Dense(8, 8)"),
    ("k, v = self.k(hidden), self.v(hidden)", 'k, v = self.k(hidden), self.v(hidden) * (-1 if "swap" in FAULT else 1)'),
    ("x, positions=None, use_cache=None", "x"),
    ("hidden=x, positions=positions, use_cache=use_cache", "x"),
    ("        return x + self.mlp(x)", '        return (0 if "rest" in FAULT and self is second else x) + self.mlp(x)  # the rest'),
    ("x, positions=torch.arange(5), use_cache=True", "x"),
    ("x, use_cache=None", "x"),
    ('return {"hidden": x, "cache": None}', "return x"),
    ('self.model(x, use_cache=False)["hidden"]', "self.model(x)"),
):
    assert PORT.count(_theirs) == 1
    PORT = PORT.replace(_theirs, _ours)


def test_a_port_with_fewer_arguments_and_other_containers(scripts: Scripts) -> None:
    scripts.record(scripts.write(LIBRARY))
    command = scripts.write(PORT, "port.py")
    result = scripts.isolate(command)
    assert not result.found and not result.verdict.suspects
    assert any("are called with other arguments, which explain nothing that is wrong: positions" in text for text in result.verdict.remarks)
    by_place = "no golden input was given to 3 module calls, the first: model.layers.0.attention (Attention); judged on what arrived there"
    assert by_place in result.verdict.remarks  # and not to those where a Dense stands for a Linear

    result = scripts.isolate(command, "swap rest")
    assert [(suspect.kind, suspect.call) for suspect in result.verdict.suspects] == [
        ("between", "Module.model.layers.0.attention.o.Linear.forward.0"),
        ("own code", "Module.model.layers.1.Layer.forward.0"),
    ]
    swap, rest = result.verdict.suspects
    assert len(swap.again) == 2 and [difference.key for difference in swap.arguments] == ["input.positions", "input.use_cache"]
    line = next(number for number, text in enumerate(PORT.splitlines(), 1) if "# the rest" in text)
    assert (rest.code_end, rest.arguments) == (line, ())
    assert scripts.runs == 1


def test_a_golden_dump_of_another_width_is_told_after_one_run(scripts: Scripts) -> None:
    source = BEGIN + (
        "width = 6 if FAULT else 4\n"
        "net = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))\n"
        "debugger = PrecisionDebugger(config_path='config.json')\n"
        "for _ in range(2):\n"
        "    debugger.start(net)\n"
        "    net(torch.ones(2, 4))\n"
        "    debugger.stop()\n"
        "    debugger.step()\n"
    )
    command = scripts.write(source)
    scripts.record(command)
    result = scripts.isolate(command, "wider", halve=True)
    assert result.sentence == "the golden dump is of another model: parameters.weight of 0 (Linear) has shape [6, 4], golden [4, 4]"
    assert result.found and scripts.runs == 1
