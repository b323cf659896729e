"""Scripts that know nothing of msprobe: each prints its losses, and at the end a hash of everything that recording must not change."""

from __future__ import annotations

BEGIN = """
import hashlib
import random
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)

def show(loss):
    print("loss", (loss.item() if isinstance(loss, torch.Tensor) else loss).hex())

def finish(*modules):
    text = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            text.update(name.encode() + tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    text.update(torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode())
    print("end", text.hexdigest())

class Net(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, size), nn.BatchNorm1d(size), nn.Linear(size, 2)

    def forward(self, x):
        return self.last(F.dropout(F.relu(self.norm(self.first(x))), 0.1, self.training))

def batches(count):
    for _ in range(count):
        yield torch.randn(5, 4), torch.randint(0, 2, (5,))
"""

_TRAINING = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches(2):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    show(loss)
finish(model)
"""

PLAIN = """
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for x, y in batches(4):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    show(loss)
finish(model)
"""

ACCUMULATION = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for number, (x, y) in enumerate(batches(8)):
    loss = F.cross_entropy(model(x), y) / 4
    loss.backward()
    show(loss)
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
finish(model)
"""

GAN = """
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 4)

    def forward(self, z):
        return torch.tanh(self.up(z))

class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.judge = nn.Linear(4, 1)

    def forward(self, x):
        return self.judge(x)

generator, discriminator = Generator(), Discriminator()
opt_g = torch.optim.Adam(generator.parameters(), lr=0.01)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=0.01)
for x, _ in batches(2):
    with torch.no_grad():
        fake = generator(torch.randn(5, 3))
    loss_d = F.softplus(-discriminator(x)).mean() + F.softplus(discriminator(fake)).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = F.softplus(-discriminator(generator(torch.randn(5, 3)))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    show(loss_d), show(loss_g)
finish(generator, discriminator)
"""

GAN_WITH_DETACH = (
    GAN.partition("for x, _")[0]
    + """
real, fake = torch.ones(6, 1), torch.zeros(5, 1)
bce = F.binary_cross_entropy_with_logits
for x, _ in batches(3):
    generated = generator(torch.randn(5, 3))
    opt_d.zero_grad()
    loss_d = bce(discriminator(x), real[: len(x)]) + bce(discriminator(generated.detach()), fake)
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = bce(discriminator(generated), torch.ones(5, 1))
    loss_g.backward()
    opt_g.step()
    show(loss_d), show(loss_g)
finish(generator, discriminator)
"""
)

WGAN = (
    GAN.partition("for x, _")[0]
    + """
for number, (x, _) in enumerate(batches(5)):
    generated = generator(torch.randn(5, 3))
    opt_d.zero_grad()
    (discriminator(generated.detach()).mean() - discriminator(x).mean()).backward()
    opt_d.step()
    if number % 2:
        opt_g.zero_grad()
        (-discriminator(generated).mean()).backward()
        opt_g.step()
finish(generator, discriminator)
"""
)

STEPS_IN_STEPS = """
class Mine(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)

torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)  # from here on SGD.step calls hooks, too
model = Net()
optimizer = Mine(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for number, (x, y) in enumerate(batches(8)):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    show(loss)
finish(model)
"""

COMPILED_OPTIMIZER = """
import torch._dynamo
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(lambda: optimizer.step(), backend=lambda graph, _: graph.forward)
for number, (x, y) in enumerate(batches(12)):
    torch._dynamo.config.error_on_recompile = number < 11  # in a recorded step it runs eagerly
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    step()
    model.zero_grad()
    show(loss)
finish(model)
"""

LBFGS = """
model = Net()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
for x, y in batches(2):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    show(optimizer.step(closure))
finish(model)
"""

SCALER = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for number, (x, y) in enumerate(batches(3)):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y) * (float("inf") if number == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    show(loss), print(scaler.get_scale())
finish(model)
"""

EVALUATION = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = list(batches(2))
def evaluate():
    model.eval()
    with torch.no_grad():
        show(sum(F.cross_entropy(model(x), y) for x, y in data))
    model.train()
evaluate()
for x, y in data * 2:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    show(loss)
    evaluate()
finish(model)
"""

TEACHER = """
class Teacher(Net):
    pass

model, teacher, average = Net(), Teacher().eval().requires_grad_(False), torch.optim.swa_utils.AveragedModel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches(3):
    with torch.no_grad():
        target = teacher(x)
    loss = F.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    with torch.no_grad():
        show(average(x).sum())
    show(loss)
finish(model, teacher, average)
"""

INFERENCE = """
class Resize(nn.Module):
    def forward(self, x):
        return x * 0.5

model = Net().eval()
resize = Resize()
with torch.inference_mode():
    for x, _ in batches(3):
        show(model(resize(x)).softmax(-1).sum())
finish(model)
"""

PARTS = """
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

    def loss(self, x):
        return F.mse_loss(self.decoder(torch.tanh(self.encoder(x))), x)

model = Coder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, _ in batches(2):
    loss = model.loss(x)
    loss.backward()
    optimizer.step()
    show(loss)
finish(model)
"""

BY_HAND = """
class Listed(Net):
    def parameters(self, recurse=True):
        return list(super().parameters(recurse))
model = Listed()
for x, y in batches(2):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    show(loss)
finish(model)
"""

CHECKPOINT = (
    """
from torch.utils.checkpoint import checkpoint
class Deep(Net):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)
model = Deep()
"""
    + _TRAINING
)

LATENT = """
model = Net().eval().requires_grad_(False)
latent = torch.zeros(5, 4, requires_grad=True)
optimizer = torch.optim.Adam([latent], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(latent).square().sum()
    loss.backward()
    optimizer.step()
    show(loss)
finish(model)
"""

FOLDS = """
for fold in range(2):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(2):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        show(loss)
finish(model)
"""

LISTED = """
pipe = [nn.Linear(4, 4), nn.Linear(4, 3)]
with torch.no_grad():
    for x, _ in batches(2):
        for part in pipe:
            x = part(x)
        show(x.sum())
finish(*pipe)
"""

_COMPILED_END = """\
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(loss)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
finish(model)
"""

COMPILED = (
    """
import warnings
warnings.simplefilter("ignore")
model = torch.compile(Net(), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches(4):
    loss = F.cross_entropy(model(x), y)
"""
    + _COMPILED_END
)

COMPILED_STEP = (
    """
import warnings
warnings.simplefilter("ignore")
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(backend="eager")
def scaled(x):
    return x * 2
@torch.compile(backend="eager")
def step(x, y):
    return F.cross_entropy(model(x), y)
for x, y in batches(4):
    loss = step(scaled(x), y)
"""
    + _COMPILED_END
)

COMPILED_INFERENCE = """
import warnings
warnings.simplefilter("ignore")
class Runner:
    def __init__(self):
        self.net = Net().eval()
        self.run = torch.compile(self.twice, backend="eager")
    @torch.compile(backend="eager")
    def once(self, x):
        return self.net(x).sum()
    def twice(self, x):
        return self.once(x) + self.net(x).mean()
runner = Runner()
with torch.no_grad():
    for x, y in batches(2):
        show(runner.run(x))
finish(runner.net)
"""

COMPILED_AND_HIDDEN = """
class Hidden:
    __slots__ = ("model",)
hidden = Hidden()
hidden.model = Net().eval()
def score(x):
    return hidden.model(x).sum()
run = torch.compile(score, backend="eager")
with torch.no_grad():
    for x, y in batches(2):
        show(run(x))
"""

WORKERS = """
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.embedding = nn.Linear(2, 4)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with torch.no_grad():
            return self.embedding(torch.full((2,), float(index))), index % 2

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for x, y in torch.utils.data.DataLoader(Data(), 4, num_workers=2):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        show(loss)
finish(model)
"""

FORKED = """
import multiprocessing, sys
def train(number):
    torch.manual_seed(number)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(2):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        show(loss)
    sys.stdout.flush()
context = multiprocessing.get_context("fork")
for number in range(2):
    child = context.Process(target=train, args=(number,))
    child.start()
    child.join()
    print(child.exitcode)
"""

OWN = """
from msprobe.pytorch import PrecisionDebugger
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(batches(3)):
    if number == LATER:
        debugger = PrecisionDebugger(dump_path="own", level="L0", task="statistics")
    if number >= LATER:
        debugger.start(model)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if number >= LATER:
        debugger.step()
    show(loss)
finish(model)
"""

RANK = (
    """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(Net())
"""
    + _TRAINING
    + """
del model  # a reducer must not be the last to hold the group: see leave_group in tests/integrations/ranks.py
dist.destroy_process_group()
"""
)

FORKED_LATER = (
    FORKED.replace("context = ", "train(7)\ncontext = ")
    + """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, mp_context=context) as pool:
    pool.submit(train, 3).result()
"""
)

FORKED_AND_GONE = FORKED.replace(
    "    sys.stdout.flush()", "    if number == 0: sys.stdout.flush(), os._exit(3)\n    sys.stdout.flush()"
).replace("import multiprocessing, sys", "import multiprocessing, os, sys")

FORKED_IN_A_CALL = """
import os, sys, warnings
warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)  # Python 3.12 and later; the thread is ours
class Forking(Net):
    def forward(self, x):
        global child
        child = os.fork()
        return super().forward(x)
model = Forking().eval()
with torch.no_grad():
    x = torch.ones(2, 4)
    result = model(x)
    if child == 0:
        model.first(x), show(result.sum())
        sys.exit(3)
    print(os.waitpid(child, 0)[1])
show(result.sum())
"""

FRAMES = """
import sys, traceback, warnings
warnings.simplefilter("always")
class Seeing(Net):
    fails = False
    def forward(self, x):
        warnings.warn("given where the model is called", stacklevel=4)
        depth, frame = 0, sys._getframe()
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        print(depth)
        if self.fails:
            raise ValueError("mine")
        return super().forward(x)
class Mine(torch.optim.SGD):
    def step(self, closure=None):
        if model.fails:
            raise ValueError("in the step")
        return super().step(closure)
model = Seeing()
optimizer = Mine(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(batches(4)):
    model.fails = number == 3
    try:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        show(loss)
    except ValueError:
        print(traceback.format_exc())
try:
    optimizer.step()
except ValueError:
    print(traceback.format_exc())
try:
    optimizer.add_param_group({"params": [next(model.parameters())]})
except ValueError:
    print(traceback.format_exc())
import inspect
print(inspect.getsource(nn.Module.__call__), nn.Module.__call__.__code__.co_filename)
"""

LEFT_ON_TORCH = """
import sys
def state():
    from torch.optim import optimizer
    functions = [nn.Module.__call__, torch.optim.Optimizer.add_param_group, torch.amp.GradScaler.step, torch.optim.SGD.step]
    names = [name for function in functions for name in function.__code__.co_varnames if name.startswith("msprobe")]
    return [*names, len(optimizer._global_optimizer_post_hooks), sys.meta_path]
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(batches(3)):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    show(loss)
print([str(item) for item in state()])
"""
