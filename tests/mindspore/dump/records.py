"""Records many small runs, each into a directory of its own; what can only be seen from inside goes to the file that is the argument."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from mindspore_nets import Containers, InPlace, Mlp, Shared, Split, data, made

from msprobe.mindspore import MsprobeStep, PrecisionDebugger

seen = {}
F = mint.nn.functional


def debugger(path, level, task="statistics", step=None, **rest):
    """A fresh one: in a test the one of the process goes."""
    session = PrecisionDebugger._session
    if session is not None:
        session.stop()
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    top = {name: rest.pop(name) for name in ("rank", "async_dump", "extra_info") if name in rest}
    os.makedirs("configs", exist_ok=True)
    with open(f"configs/{path}.json", "w") as file:
        json.dump({"task": task, "level": level, "dump_path": path, "step": step or [], **top, task: rest}, file)
    return PrecisionDebugger(f"configs/{path}.json")


def gradients_of(function, *arguments, model=None):
    """One recorded step of a function's value and gradients."""
    PrecisionDebugger.start(model)
    result = ms.value_and_grad(function, tuple(range(len(arguments))), None)(*arguments)
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    return result


def train(net, loss, *batch):
    """One recorded step of a net."""
    PrecisionDebugger.start(net)
    result = ms.value_and_grad(lambda *args: loss(net(*args)), None, net.trainable_params())(*batch)
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    return result


def total(value):
    return value.sum()


def own_contributions():
    debugger("own", "L1", "tensor")

    def f(x):
        y = x * 3
        z = ops.tanh(y)
        u = ops.mul(y, y)
        v = F.relu(y)
        return (z + u + v).sum()

    gradients_of(f, Tensor(np.array([0.5, -0.25, 0.125], np.float32)))


def api_of_several_nodes():
    debugger("several", "L1", "tensor")
    x = Tensor(np.random.RandomState(0).randn(2, 3).astype(np.float32))
    label = Tensor(np.array([0, 2], np.int32))
    result = gradients_of(lambda x: ops.cross_entropy(x, label) + 0 * x.sum(), x)
    np.save("several_truth.npy", result[1].asnumpy() if isinstance(result[1], Tensor) else result[1][0].asnumpy())


def in_place():
    debugger("in_place", "mix", "tensor")
    net = made(InPlace)
    value, _ = train(net, total, data()[0])
    seen["in_place"] = float(value.asnumpy())


class Values(nn.Cell):
    def construct(self, *values, **named):
        return values


class Holder(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def construct(self, *values, **named):
        return self.inner(*values, **named)


def kinds_of_values(path="kinds"):
    debugger(path, "L0", "tensor", summary_mode="md5")
    floats = np.array([1.5, np.nan, -np.inf, 2.0], np.float32)
    large = np.full(5000, 0.1, np.float32)
    large[0] = 3e38
    values = [
        Tensor(floats),
        Tensor(np.array([1.0, np.inf], np.float16)),
        Tensor(np.array([1.5, -2.25, 3e38], np.float32)).astype(ms.bfloat16),
        Tensor(np.zeros((0, 3), np.float32)),
        Tensor(np.float32(2.5)),
        Tensor(np.array([2**62 + 1, -5], np.int64)),
        Tensor(np.array([True, False])),
        Tensor(np.array([3 + 4j, 1j], np.complex64)),
        Tensor(np.array([255, 1], np.uint8)),
        Tensor(large),
        Tensor(np.arange(6, dtype=np.float64).reshape(2, 3)),
    ]
    net = Holder(Values())
    PrecisionDebugger.start(net)
    plain = [None, 3, "text", True, 2.5]
    others = [*plain, [values[4], {"k": values[5]}], ms.float16, slice(1, None), np.float32(1.5), np.arange(3), object()]
    net(*values, *others)
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


def numpy_of_another_version():
    """There MindSpore gives no array of bfloat16."""
    asnumpy = Tensor.asnumpy

    def refuses(self):
        if self.dtype == ms.bfloat16:
            raise TypeError("The Numpy bfloat16 data type is not supported now")
        return asnumpy(self)

    Tensor.asnumpy = refuses
    try:
        kinds_of_values("kinds_numpy")
    finally:
        Tensor.asnumpy = asnumpy


def statistics_mode(name, mode):
    debugger(name, "mix", "statistics", summary_mode=mode)
    train(made(Mlp), total, data()[0])


def both_modes():
    statistics_mode("md5", "md5")
    statistics_mode("plain", "statistics")
    debugger("of_graphs", "mix", "statistics", summary_mode=["max"], device="device")
    for _ in range(2):
        train(made(Mlp), total, data()[0])


def structure():
    debugger("structure", "mix", "structure")
    train(made(Shared), total, data()[0])


def selections():
    for name, level, task, section in [
        ("list_api", "L1", "tensor", {"list": ["tanh"], "data_mode": ["forward", "output"]}),
        ("list_cell", "mix", "statistics", {"list": ["Cell.same.Dense.forward.0"]}),
        ("scope_l0", "L0", "statistics", {"scope": ["Cell.same.Dense.forward.0", "Cell.same.Dense.forward.1"]}),
        ("scope_mix", "mix", "statistics", {"scope": ["Cell.same.Dense.forward.1", "Cell.out.Dense.forward.0"]}),
        ("tensor_list", "mix", "statistics", {"tensor_list": ["tanh"]}),
        ("backward_only", "mix", "statistics", {"data_mode": ["backward"]}),
        ("inputs_only", "mix", "statistics", {"data_mode": ["input"]}),
        ("async", "L0", "tensor", {"list": ["Cell.out"], "async_dump": True}),
    ]:
        debugger(name, level, task, **section)
        train(made(Shared), total, data()[0])


def steps():
    debugger("steps", "L0", step=[1, "3-4"])
    net = made(Mlp)
    for _ in range(6):
        train(net, total, data()[0])
    debugger("no_rank", "L0", rank=[0])
    train(net, total, data()[0])
    seen["no_rank"] = os.path.exists("no_rank")
    by_hand = debugger("by_hand", "L0", rank=[3])
    by_hand.start(net, rank_id=3)
    net(data()[0])
    by_hand.stop()
    by_hand.step()
    made_new = debugger("from_five", "L0")
    made_new.set_init_step(5)
    train(net, total, data()[0])


@ms.jit
def compiled_first(x, y):
    return ops.tanh(ops.mul(x, y)) + mint.add(x, y)


class JitCell(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(6, 6)

    @ms.jit
    def construct(self, x):
        return ops.sin(self.fc(x))


class UsesJit(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.jit = nn.Dense(6, 6), JitCell()

    def construct(self, x):
        y = self.first(x)
        return compiled_first(self.jit(y), y)


def compiled_while_recording():
    debugger("jit", "mix", "tensor")
    net = made(UsesJit)
    first, gradients = train(net, total, data()[0])
    step = ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())
    second, others = step(data()[0])
    seen["jit_same"] = first.asnumpy().tobytes() == second.asnumpy().tobytes() and all(
        a.asnumpy().tobytes() == b.asnumpy().tobytes() for a, b in zip(gradients, others, strict=True)
    )
    net = made(Mlp)
    debugger("jit_whole", "mix", "tensor")
    whole = ms.jit(lambda_of(net))
    PrecisionDebugger.start(net)
    value, _ = ms.value_and_grad(whole, None, net.trainable_params())(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    seen["jit_whole"] = float(value.asnumpy())


def lambda_of(net):
    def whole(x):
        return net(x).sum()

    return whole


def model_train():
    import mindspore.dataset as ds
    from mindspore.train import Model

    from msprobe.mindspore import MsprobeInitStep

    def batches():
        for number in range(3):
            x, y = data(number)
            yield x.asnumpy(), y.asnumpy()

    mine = debugger("model_train", "L0", step=[1])
    net = made(Mlp)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    dataset = ds.GeneratorDataset(batches, ["x", "y"], shuffle=False)
    model.train(1, dataset, callbacks=[MsprobeInitStep(), MsprobeStep(mine)], dataset_sink_mode=False)


class Raises(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc, self.bad = nn.Dense(6, 6), Bad()

    def construct(self, x):
        try:
            self.bad(x)
        except ValueError:
            pass
        try:
            ops.reshape(x, (5, 5))
        except Exception:
            pass
        return self.fc(x)


class Bad(nn.Cell):
    def construct(self, x):
        raise ValueError("the user's own")


def timed_out(*_):
    raise TimeoutError("the user's handler")


def errors():
    debugger("raises", "mix")
    net = Raises()
    PrecisionDebugger.start(net)
    try:
        net.bad(Tensor(1.0))
        seen["the user's error"] = "gone"
    except ValueError as error:
        seen["the user's error"] = str(error)
    net(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()

    debugger("timeout", "mix")
    net = made(Mlp)
    PrecisionDebugger.start(net)
    signal.signal(signal.SIGALRM, timed_out)
    encoder = PrecisionDebugger._session.step.encoder
    value = encoder.value
    told = []
    for role in ("input", "output"):  # before and after a call
        for kind in ("Primitive", "Cell"):

            def fires(item, path, side, role=role, kind=kind):
                if side.role == role and side.entry.startswith(kind):
                    signal.raise_signal(signal.SIGALRM)
                return value(item, path, side)

            encoder.value = fires
            try:
                net(data()[0])
            except TimeoutError as error:
                told.append(str(error))
            del encoder.value
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    net(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    seen["timeouts"] = told

    debugger("ours", "mix")
    net = made(Mlp)
    session = PrecisionDebugger._session
    PrecisionDebugger.start(net)
    encoder = session.step.encoder
    encoder.tensor = lambda *_: 1 / 0
    encoder.positional = lambda *_: 1 / 0
    value, _ = ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    seen["our error"] = float(value.asnumpy()) == float(net(data()[0]).sum().asnumpy())


def everything_is_put_back():
    def look():
        found = {(owner.__name__, name): getattr(owner, name) for owner in (ops, mint, F) for name in dir(owner)}
        found.update({(kind, name): value for kind in (ms.Tensor, nn.Cell, ops.Primitive) for name, value in vars(kind).items()})
        found.pop((nn.Cell, "total_instance_count"), None)  # MindSpore counts cells there, in releases before 2.10
        return found

    def changed():
        now = look()
        return [str(name) for name in {*before, *now} if now.get(name) is not before.get(name)]

    net = made(Mlp)
    before = look()
    debugger("back", "mix")
    PrecisionDebugger.start(net)
    seen["exchanged"] = len(changed()) > 1000
    ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(data()[0])
    PrecisionDebugger.stop()
    seen["not back"] = changed()
    PrecisionDebugger.step()
    from msprobe.mindspore.mindspore_internals import jit_executor

    seen["back at step"] = "msprobe" not in jit_executor.compile.__code__.co_filename
    seen["hooks left"] = sum(len(parameter.hooks()) for parameter in net.get_parameters())
    debugger("somebody", "L1")
    PrecisionDebugger.start()
    mine, theirs = ops.relu, lambda x: x
    ops.relu = theirs
    PrecisionDebugger.stop()
    seen["theirs stays"] = ops.relu is theirs
    ops.relu = mine.__wrapped__
    PrecisionDebugger.step()


def backward_after_step():
    debugger("late", "L0")
    net = made(Mlp)

    def f(x):
        PrecisionDebugger.start(net)
        y = net(x).sum()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
        return y

    ms.value_and_grad(f, None, net.trainable_params())(data()[0])
    seen["late"] = PrecisionDebugger._session.late.untold
    train(net, total, data()[0])


def an_end_that_fails():
    """What goes wrong at the end of a step does not keep its files from being complete."""
    from msprobe.mindspore.dump.step_record import StepRecord
    from msprobe.writer.flusher import flusher

    def failing(*_):
        raise KeyError("planted")

    debugger("failing", "L0")
    PrecisionDebugger.start(made(Mlp))
    step = PrecisionDebugger._session.step
    close, StepRecord.close = StepRecord.close, failing
    try:
        PrecisionDebugger.step()
    finally:
        StepRecord.close = close
    live = [getattr(writer, "directory", "") for writer in flusher().live.values()]
    seen["open after an end that failed"] = step.writer.directory in live


def stop_before_backward():
    debugger("early_stop", "mix")
    net = made(Mlp)

    def f(x):
        PrecisionDebugger.start(net)
        y = net(x).sum()
        PrecisionDebugger.stop()
        return ops.tanh(y)

    ms.value_and_grad(f, None, net.trainable_params())(data()[0])
    PrecisionDebugger.step()
    debugger("second_order", "mix")
    net = made(Mlp)
    outer = ms.grad(lambda x: ms.grad(lambda x: ops.tanh(net(x)).sum())(x).sum())
    plain = outer(data()[0]).asnumpy()
    PrecisionDebugger.start(net)
    seen["second order"] = outer(data()[0]).asnumpy().tobytes() == plain.tobytes()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


def recomputed():
    debugger("recompute", "mix", "statistics")
    net = made(Mlp)
    net.first.recompute()
    train(net, total, data()[0])
    debugger("several_models", "L0")
    nets = [made(Mlp), made(Mlp)]
    PrecisionDebugger.start(nets)
    ms.value_and_grad(lambda x: (nets[0](x) + nets[1](x)).sum(), None, nets[0].trainable_params())(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    debugger("outputs", "mix", "tensor")
    train(made(Split), total, data()[0])
    debugger("containers", "L0", "tensor")
    train(made(Containers), total, data()[0])


def several_backwards():
    debugger("twice", "L0", "statistics")
    net = made(Mlp)
    PrecisionDebugger.start(net)
    grad = ms.grad(lambda x: net(x).sum(), None, net.trainable_params())
    grad(data()[0])
    grad(data(1)[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


def forked():
    debugger("forked", "mix")
    net = made(Mlp)
    PrecisionDebugger.start(net)
    child = os.fork()
    if child == 0:
        inert = PrecisionDebugger._session.window is None and not hasattr(nn.Cell.__call__, "__wrapped__")
        os._exit(0 if inert else 1)
    seen["forked"] = os.waitpid(child, 0)[1]
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


def wrong_use():
    mine = debugger("wrong", "L0")
    messages = []
    for action in (
        lambda: mine.start(),
        lambda: mine.start(3),
        lambda: mine.start([made(Mlp), 4]),
        lambda: mine.set_init_step(-1),
        lambda: mine.start(rank_id=-1),
        lambda: MsprobeStep(None),
    ):
        try:
            action()
        except Exception as error:
            messages.append(f"{type(error).__name__}: {error}")
    seen["wrong use"] = messages
    mine.stop()
    mine.step()


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.act, self.mul = nn.Dense(8, 8), nn.ReLU(), ops.Mul()

    def construct(self, x, scale=None):
        y = self.act(self.dense(x))
        return self.mul(y, scale) if scale is not None else y


class OfTheSamples(nn.Cell):
    """The net that the reference tool's samples are of."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="same", has_bias=True)
        self.flat, self.fc = nn.Flatten(), nn.Dense(32, 8)
        self.blk = nn.SequentialCell([Block(), Block()])
        self.head = nn.Dense(8, 3)

    def construct(self, x):
        x = self.fc(self.flat(ops.relu(self.conv(x))))
        x = self.blk[1](self.blk[0](x, scale=Tensor(2.0)))
        x = mint.mul(F.relu(x), 2.0) + 1
        return self.head(ops.tanh(x))


def as_in_the_samples():
    x, label = Tensor(np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)), Tensor(np.array([0, 2], np.int32))
    for name, level in (("sample_L0", "L0"), ("sample_mix", "mix")):
        debugger(name, level, "tensor" if level == "L0" else "statistics")
        loss = nn.CrossEntropyLoss()
        train(OfTheSamples(), lambda y, loss=loss: loss(y, label), x)


def failing_operations():
    """An operation that fails is told by MindSpore to whoever looks next: that must not be us alone."""
    debugger("failing", "mix")
    net = made(Mlp)
    told = []
    PrecisionDebugger.start(net)
    try:
        ops.reshape(data()[0], (5, 5))
    except Exception as error:
        told.append(type(error).__name__)
    net(data()[0])
    PrecisionDebugger.stop()
    ops.reshape(data()[0], (5, 5))
    try:
        PrecisionDebugger.step()
    except Exception as error:
        told.append(type(error).__name__)
    seen["failing"] = told
    seen["session after it"] = [PrecisionDebugger._session.step is None, PrecisionDebugger._session.number]


def seeds():
    import random

    from msprobe.mindspore import seed_all

    drawn = []
    for _ in range(2):
        seed_all(7, mode=True)
        of_mindspore = [ops.standard_normal((3,)).asnumpy().tolist(), nn.Dense(2, 2).weight.asnumpy().tolist()]
        drawn.append([random.random(), float(np.random.rand()), *of_mindspore])
    seen["seeded"] = drawn[0] == drawn[1]
    drop, x = nn.Dropout(p=0.5).set_train(), Tensor(np.ones((20,), np.float32))
    seed_all(7, rm_dropout=True)
    seen["no dropout"] = [drop(x).asnumpy().tolist() == [1.0] * 20, ops.dropout(x, 0.5).asnumpy().tolist() == [1.0] * 20]
    seed_all(7)
    seen["dropout again"] = 0.0 in drop(x).asnumpy().tolist()
    errors = []
    for wrong in ({"seed": -1}, {"seed": True}, {"mode": 1}):
        try:
            seed_all(**wrong)
        except Exception as error:
            errors.append(str(error))
    seen["wrong seeds"] = errors


def left_open():
    debugger("left_open", "L0")
    net = made(Mlp)
    PrecisionDebugger.start(net)
    net(data()[0])


for case in (
    as_in_the_samples,
    failing_operations,
    seeds,
    own_contributions,
    api_of_several_nodes,
    in_place,
    kinds_of_values,
    numpy_of_another_version,
    both_modes,
    structure,
    selections,
    steps,
    compiled_while_recording,
    model_train,
    errors,
    everything_is_put_back,
    backward_after_step,
    an_end_that_fails,
    recomputed,
    stop_before_backward,
    several_backwards,
    forked,
    wrong_use,
    left_open,
):
    try:
        case()
    except Exception:
        seen.setdefault("failed", {})[case.__name__] = traceback.format_exc()[-1500:]
with open(sys.argv[1], "w") as file:
    json.dump(seen, file)
