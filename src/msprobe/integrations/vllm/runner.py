"""Records what the model runner of a vLLM worker does: a step is one execute_model with at least one token, and its sampling.

The class is changed in the process that runs the model. Whatever goes wrong here is logged, and the engine goes on as if nobody watched.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msprobe.contain import let_through
from msprobe.errors import MsprobeException
from msprobe.integrations.vllm.batch import batch_of, empty_weights, parallel
from msprobe.integrations.vllm.plugin import VARIABLE
from msprobe.log import logger

MODULES = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")
"""Where the model runners are, of the first and the second kind; runners of other devices derive from them."""

_CLASS = "GPUModelRunner"
_WATCHED = "_msprobe_watched"


def watch(module: ModuleType, config_path: str) -> None:
    """Have the runners of this module recorded, with this config.json."""
    kind = getattr(module, _CLASS)
    if _WATCHED in kind.__dict__:
        return
    watcher = _Watcher(config_path)
    made, execute = kind.__init__, kind.execute_model
    sample = getattr(kind, "sample_tokens", None)  # in older versions sampling is a part of execute_model

    @functools.wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        watcher.made(self, execute_model)

    @functools.wraps(execute)
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not watcher.begins(self, scheduler_output, kwargs):
            return execute(self, scheduler_output, *args, **kwargs)
        result = None
        try:
            result = execute(self, scheduler_output, *args, **kwargs)
        except BaseException:
            watcher.raised(self, scheduler_output)
            raise
        watcher.ran(self, scheduler_output, result is not None)
        return result

    kind.__init__, kind.execute_model = __init__, execute_model
    setattr(kind, _WATCHED, True)
    if sample is None:
        return

    @functools.wraps(sample)
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not watcher.samples(self):
            return sample(self, *args, **kwargs)
        try:
            return sample(self, *args, **kwargs)
        finally:
            watcher.sampled()

    kind.sample_tokens = sample_tokens


def why_not_eager(config: Any) -> str:
    """Why nothing can be recorded: vLLM runs compiled code or captured graphs; "" where it runs eagerly."""
    if config.model_config is not None and config.model_config.enforce_eager:
        return ""
    compilation = config.compilation_config
    mode = getattr(compilation, "mode", None)
    graphs = getattr(compilation, "cudagraph_mode", None)
    compiled = bool(mode is not None and getattr(mode, "value", mode))
    captured = bool(graphs is not None and _number(graphs))
    if not compiled and not captured:
        return ""
    what = "compiled code" if compiled else "captured graphs"
    return f"vLLM runs {what}, of which nothing is recorded: start it with --enforce-eager, or LLM(enforce_eager=True)"


def _number(member: Any) -> Any:
    value = getattr(member, "value", member)
    return value[0] if isinstance(value, tuple) else value


def rank_of(config: Any) -> int | None:
    """The rank over all replicas of the model; None where torch.distributed knows it (a single replica).

    Replicas of a dense model are independent of each other: each believes to be the only one, and its index alone tells which it is.
    """
    parallel = config.parallel_config
    replica: Any = getattr(parallel, "data_parallel_index", None)
    if replica is None:
        replica = getattr(parallel, "data_parallel_rank", 0)
    if not replica and getattr(parallel, "data_parallel_size", 1) <= 1:
        return None
    return int(replica) * int(parallel.world_size) + int(parallel.rank)


class _Watcher:
    """Drives the one PrecisionDebugger of the process; every method contains its own errors."""

    def __init__(self, config_path: str) -> None:
        self._path = config_path
        self._debugger: Any = None
        self._runner: Callable[[], Any] = _nobody
        """Gives the runner whose model is recorded, the first one. It is not kept alive: a program may make one engine after another."""
        self._constant: dict[str, Any] | None = None
        """What meta.json says of every step, once it has been looked at."""
        self._off = False
        self._open = False
        """A step has begun and not ended: its sampling is to come."""

    def made(self, runner: Any, execute_model: Callable[..., Any]) -> None:
        """A runner has been made: the configuration is read now, so that a mistake in it is told when the engine starts.

        Args:
            runner: the new one.
            execute_model: what is watched.
        """
        self._contained(lambda: self._made(runner, execute_model))

    def begins(self, runner: Any, scheduler_output: Any, kwargs: dict[str, Any]) -> bool:
        """execute_model begins; whether it is a step."""
        if self._off or runner is not self._runner() or kwargs.get("dummy_run"):
            return False
        return self._contained(lambda: self._begins(runner, scheduler_output)) is True

    def ran(self, runner: Any, scheduler_output: Any, ended: bool) -> None:
        """execute_model has run. `ended`: no sampling follows."""
        self._contained(lambda: self._ran(runner, scheduler_output, ended))

    def raised(self, runner: Any, scheduler_output: Any) -> None:
        """execute_model has raised: what was recorded is kept. Which rows are whose may not have been known yet."""
        try:
            self._debugger._note("batch", batch_of(runner, scheduler_output))
        except Exception as error:
            let_through(error)
        self._contained(self._end)

    def samples(self, runner: Any) -> bool:
        """sample_tokens begins; whether it belongs to a step."""
        if not self._open or runner is not self._runner():
            return False
        self._contained(lambda: self._start(runner) if self._debugger.config.level != "L0" else None)
        return True

    def sampled(self) -> None:
        """The sampling has ended, and the step with it."""
        self._contained(self._end)

    # --- what they do ---------------------------------------------------------------------------------------------------------------
    def _contained(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except MsprobeException as error:
            self._tell_off(str(error))
        except Exception as error:
            let_through(error)
            self._tell_off(repr(error))
        return None

    def _tell_off(self, why: str) -> None:
        self._off = True
        what = "nothing more of vLLM is recorded" if self._debugger is not None else f"vLLM is not recorded, {VARIABLE} is {self._path}"
        logger.error(f"{what}: {why}")

    def _made(self, runner: Any, execute_model: Callable[..., Any]) -> None:
        why = why_not_eager(runner.vllm_config)
        if not why and self._runner() is not None:
            why = "this process has another engine, which is recorded; of this one nothing is: give each a process of its own"
        if why:
            logger.warning(why)
            return
        self._runner, self._constant, self._off = _nobody, None, False
        if self._debugger is None:
            from msprobe.pytorch import PrecisionDebugger

            self._debugger = PrecisionDebugger(self._path)
        self._runner = weakref.ref(runner)
        config = self._debugger.config
        steps = f"the steps {sorted(config.step)}" if config.step else "every step"
        logger.info(f"vLLM is recorded as {self._path} says: task {config.task}, level {config.level}, {steps}, into {config.dump_path}")
        kind = type(runner)
        if kind.execute_model is not execute_model:
            name = f"{kind.__module__}.{kind.__qualname__}"
            logger.warning(f"{name} has an execute_model of its own: nothing is recorded unless it calls that of {_CLASS}")

    def _begins(self, runner: Any, scheduler_output: Any) -> bool:
        if self._open:
            self._end()  # whoever called execute_model has left the sampling out
        if scheduler_output.total_num_scheduled_tokens <= 0:
            return False
        self._start(runner)
        return True

    def _start(self, runner: Any) -> None:
        self._debugger.start(runner.get_model(), rank_id=rank_of(runner.vllm_config))

    def _ran(self, runner: Any, scheduler_output: Any, ended: bool) -> None:
        self._open = True
        try:
            if self._debugger._in_step():  # most steps of a server are not selected
                self._debugger._note("batch", batch_of(runner, scheduler_output))
                if self._constant is None:
                    self._constant = _constant(runner)
                for key, value in self._constant.items():
                    self._debugger._note(key, value)
        finally:
            self._debugger.stop()
            if ended:
                self._end()

    def _end(self) -> None:
        self._open = False
        self._debugger.stop()
        self._debugger.step()


def _constant(runner: Any) -> dict[str, Any]:
    """What meta.json says of every step of this runner; vLLM empties weights when the model is loaded."""
    found = {"parallel": parallel(runner.vllm_config), "empty_weights": empty_weights(runner.get_model())}
    return {key: value for key, value in found.items() if value is not None}


def _nobody() -> None:
    """Nobody's model is recorded."""
