"""Steps of an unmodified script: begun and ended at outermost calls of its models, recorded by the session behind PrecisionDebugger."""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.errors import MsprobeException
from msprobe.format import isolation
from msprobe.launch.known_models import TOLD, KnownModels
from msprobe.launch.models import name_of, parameters_of
from msprobe.launch.orders import processes, tell
from msprobe.log import logger
from msprobe.pytorch import compile_internals, debugger, torch_internals
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.session import Session, contained

if TYPE_CHECKING:
    from msprobe.launch.arming import Armed

EVALUATION = "in evaluation mode without gradients, between two training steps"
UNTRAINED = "no optimizer trains it; --models all takes it, too"
LATE = "first called while a step was running; a model from the next step on"
WHAT_TO_DO = "let a step of msprobe run hold the whole iteration: --step-on optimizer:N, with N steps of optimizers in each"
UNSEEN = "put a step around each with msprobe enable (msprobe run saw no call of a model by the script between them)"
WAITING = "called before there was an optimizer, which --step-on optimizer waits for"


class Watch:
    """What is recorded in this process, from the first call of a module that may be a model.

    Attributes:
        optimizer_steps: how many steps optimizers have made so far, but for compiled ones.
        stepped: where one step is enough, or steps were compiled: one was made since the running step began.
    """

    def __init__(self, armed: Armed) -> None:
        self._armed = armed
        self._orders = armed.orders
        self.optimizer_steps = 0
        self.stepped = False
        self._began_at = 0
        """How many there were when the running step began."""
        self._optimizers_seen = 0
        self._late_told = False
        self._open: str | None = None
        """What began the running step: "training" or "forward"."""
        self._calls = 0
        self._part: weakref.ref[torch.nn.Module] | None = None
        """The module whose call began the running step, where a script calls a model by its parts."""
        self._within_compiled = False
        """The running step is an inference, and began with a compiled function."""
        self._models = KnownModels(armed)
        self._named: tuple[str, ...] = ()
        self._training = False
        self._ended = False
        self.taken: dict[str, list[int]] = {}
        """Models of a step, as told -> first and last step with them."""
        self.directories: list[str] = []
        self.steps: list[int] = []
        """Steps that have files."""
        self.incomplete: list[int] = []
        """Those of which something could not be recorded or written."""
        self.unwritten: list[int] = []
        """Steps that were recorded, and of which nothing could be written."""
        self._instance = PrecisionDebugger._instance
        self._atexit_registered = False
        self._session: Session | None = None
        if self._instance is None:
            self._session = PrecisionDebugger._session = debugger._session(self._orders.config, dict(self._orders.arguments), True)
            self._session.late.what_to_do = WHAT_TO_DO
            self._session.forgotten_hint = None if self._orders.optimizer_steps > 1 or self._orders.forwards > 1 else UNSEEN
            self._session.siblings = processes
            PrecisionDebugger._stand_in = self.make_way
        else:
            self.make_way()

    # --- calls ----------------------------------------------------------------------------------------------------------------------
    def begins(self, module: torch.nn.Module) -> None:
        """An outermost call of a module begins, in any thread."""
        if self._ended or _is_no_call(module):
            return
        everything = self._orders.models == "all"
        if not everything and next(iter(module.parameters()), None) is None:
            if len(self._armed.plain) < TOLD:
                self._armed.plain[type(module).__name__] += 1
            return
        if self._within_compiled:
            self._within_compiled = compile_internals.is_below_compiled_call(sys._getframe())
            if self._within_compiled:
                return  # the step began with the compiled function, which runs eagerly now
        root = self._models.root_of(module)
        if self._is_training():
            self._in_training(module, root)
        elif self._orders.step_on == "optimizer":
            self._models.leave_out(root, WAITING)
        else:
            self._in_forwards(module, root)

    def compiled_begins(self, models: list[torch.nn.Module], inner: bool) -> None:
        """A compiled function begins that can reach these modules: like a call of the first of them that counts.

        `inner`: another compiled function has called it, and runs eagerly.
        """
        if self._ended or (inner and self._within_compiled):
            return
        self._within_compiled = False
        known = self._models.known()
        if not known and self._is_training():
            self._models.root_of(models[0])
            known = self._models.known()
        chosen = next((module for module in models if any(self._models.root_of(module) is one for one in known)), models[0])
        self.begins(chosen)
        self._within_compiled = self._open == "forward"

    def _is_training(self) -> bool:
        if self._orders.step_on == "forward":
            return False
        if not self._training:
            self._training = any(any(True for _ in parameters_of(optimizer)) for optimizer in self._models.optimizers())
        return self._training

    def _in_training(self, module: torch.nn.Module, root: torch.nn.Module) -> None:
        if self._open == "forward" or (self._open is not None and self._is_over()):
            self._end()
            if self._ended:
                return
        models = self._models.known()
        known = any(root is model for model in models)
        if self._open is not None:
            if not known and self._orders.models == "all":
                self._models.join(root, LATE)
            elif not known:
                self._models.leave_out(root, UNTRAINED)
            return
        if models and not known and self._orders.models == "auto":
            self._models.leave_out(root, UNTRAINED)
        elif not torch.is_grad_enabled() and not module.training:
            self._models.leave_out(root, EVALUATION)
        else:
            if not known:
                self._models.add(root)
            self._begin("training", self._models.known())

    def _is_over(self) -> bool:
        return self.optimizer_steps - self._began_at + self.stepped >= self._orders.optimizer_steps

    def _in_forwards(self, module: torch.nn.Module, root: torch.nn.Module) -> None:
        if self._open is not None and self._part is not None and module is not root:
            part = self._part()
            if part is not module and part is not None and self._models.known_root(part) is root:
                return  # another part of the same model: `decode` after `encode`, or model.forward() called by name
        if self._open is not None and self._calls >= self._orders.forwards:
            self._end()
            if self._ended:
                return
        self._calls += 1
        self._part = weakref.ref(module)
        if self._orders.forwards == 1:
            self._begin("forward", [root])
            return
        known = any(root is model for model in self._models.known())
        if self._open is None:
            if not known:
                self._models.add(root)
            self._begin("forward", self._models.known())
        elif not known:
            self._models.join(root, LATE)

    # --- steps ----------------------------------------------------------------------------------------------------------------------
    def _begin(self, kind: str, models: list[torch.nn.Module]) -> None:
        session = self._session
        if session is None:
            return
        optimizers = self._models.optimizers()
        self._optimizers_seen = max(self._optimizers_seen, len(optimizers))
        for optimizer in optimizers:
            self._armed.watch_step(type(optimizer))  # torch.compile takes torch's own hooks off
        number = session.number
        self._tell_names(models, number)
        self._open, self._began_at, self.stepped = kind, self.optimizer_steps, False
        model = models[0] if len(models) == 1 else models
        with session.lock:
            self._contained(lambda: session.start(model, None, None))
        if session.step is not None:
            self._note(session, models, number)

    def _note(self, session: Session, models: list[torch.nn.Module], number: int) -> None:
        assert session.step is not None
        named = ", ".join(map(name_of, models))
        span = self.taken.setdefault(named, [number, number])
        span[1] = number
        self.steps.append(number)
        self.directories = [session.root]
        session.step.writer.meta["msprobe_run"] = {"models": [name_of(one) for one in models], "step_on": self._kind()}
        if len(self.steps) + len(self.unwritten) == 1:
            if not self._atexit_registered:
                self._register_end_of_child()
            tell("recording", models=named, step=number, root=session.root)

    def _kind(self) -> str:
        if self._open == "training":
            return "optimizer" if self._orders.optimizer_steps == 1 else f"optimizer:{self._orders.optimizer_steps}"
        return "forward" if self._orders.forwards == 1 else f"forward:{self._orders.forwards}"

    def _tell_names(self, models: list[torch.nn.Module], number: int) -> None:
        """The user learns when the names in the dump become others."""
        named = tuple(map(name_of, models))
        if self._named and named != self._named and len(named) > 1:
            listed = ", ".join(f"Module.{index} is {name}" for index, name in enumerate(named))
            logger.info(f"msprobe run: from step {number} on the models are others: {listed}")
        self._named = named

    def _end(self) -> None:
        """The running step is over; after the last one that is selected torch is as it was."""
        session = self._session
        if session is None or self._open is None:
            return
        self._open, self._calls = None, 0
        self._close(session)
        self._models.joined()
        config = session.config
        last = bool(config.step) and session.number > max(config.step)
        if (last or (session.earlier is not None and session.earlier.ended)) and not session.live.watched:
            self._finish()

    def _close(self, session: Session) -> None:
        step, number, ended = session.step, session.number, session.ended
        with session.lock:
            self._contained(session.end_step)
        if step is None:
            return
        if step.absent:
            self.steps.remove(number)
            self.unwritten.append(number)
            return
        if step.tally.lost or session.ended == ended:
            self.incomplete.append(number)
        tell("ended", step=number)  # a process that is cut off says no more

    def _contained(self, action: Any) -> None:
        session = self._session
        if session is None:
            return
        try:
            contained(action, session)
        except MsprobeException as error:
            logger.error(f"msprobe run: {error}")
            session.why_nothing = str(error)

    # --- the end --------------------------------------------------------------------------------------------------------------------
    def _register_end_of_child(self) -> None:
        """A child of multiprocessing ends without the handlers of atexit."""
        self._atexit_registered = True
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(None, self._armed.at_exit, exitpriority=0)

    def _finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._armed.off()
        PrecisionDebugger._stand_in = None
        self._report()

    def _report(self) -> None:
        session = self._session
        if session is None:
            return
        report = {
            "models": self.taken,
            "steps": self.steps,
            "incomplete": self.incomplete,
            "unwritten": self.unwritten,
            "counted": session.number,
            "selected": sorted(session.config.step)[:20],
            "step_on": "optimizer" if self._training else "forward",
            "optimizer_steps": self._orders.optimizer_steps,
            "forwards": self._orders.forwards if self._orders.step_on == "forward" else 0,
            "left_out": [[name, calls, why] for (name, why), calls in self._models.left_out.items()],
            "plain": dict(self._armed.plain),
            "roots": self.directories or [session.root],
            "why_nothing": session.why_nothing,
            "unselected": session.unselected,
            "rank": session.place.rank if session.place is not None else None,
            "unseen": dict(self._armed.unseen),
        }
        if not tell("report", **report):
            from msprobe.launch.summary import of_one

            for line in of_one({"event": "report", "pid": os.getpid(), **report}):
                logger.info(f"msprobe run: {line}")

    def at_exit(self) -> None:
        """The interpreter ends, and with it the running step."""
        session = self._session
        if session is None:
            return
        try:
            if not self._ended:
                self._end_at_exit(session)
            self._tell_late(session)
        except Exception as error:
            let_through(error)
            self._armed.give_up(repr(error))

    def _tell_late(self, session: Session) -> None:
        """What came too late, also after the last selected step."""
        late, told, self._late_told = session.late.all, self._late_told, True
        if (
            late
            and not told
            and not tell(
                "late",
                calls=late,
                optimizers=self._optimizers_seen,
                optimizer_steps=self._orders.optimizer_steps,
                order=self._armed.order,
            )
        ):
            from msprobe.launch.summary import too_late

            logger.warning(too_late(late, self._optimizers_seen, self._orders.optimizer_steps, self._armed.order))

    def _end_at_exit(self, session: Session) -> None:
        running, self._open = self._open is not None, None
        if os.environ.get(isolation.VARIABLE):
            session.at_exit()
        elif running or session.step is not None:
            self._close(session)
        if session.override is not None:
            session.override.at_exit()
        self._finish()

    def abandon(self) -> None:
        """Something of ours went wrong: what is on disk of the running step is all that there will be."""
        session = self._session
        if self._ended or session is None:
            return
        self._ended = True
        PrecisionDebugger._stand_in = None
        self._close(session)
        if self.steps or self.unwritten:
            self._report()

    def make_way(self) -> None:
        """The script makes a PrecisionDebugger of its own, which goes before us."""
        session, self._session = self._session, None
        self._ended = True
        self._armed.off()
        logger.warning(
            "msprobe run: the script has a PrecisionDebugger of its own, which records as the script says; msprobe run does nothing"
        )
        tell("made way")
        if session is not None:
            PrecisionDebugger._session = None
            with session.lock:
                try:
                    contained(session.end_step, session)
                except MsprobeException as error:
                    logger.error(f"msprobe run: {error}")

    def forget(self) -> None:
        """In a forked child, where nothing is recorded."""
        self._ended, self._session = True, None
        PrecisionDebugger._stand_in = None


def _is_no_call(module: torch.nn.Module) -> bool:
    """Whether this is checkpointed code that runs again in a backward pass, a copy that DataParallel made, or torch.fx tracing."""
    return torch_internals.graph_task() != -1 or getattr(module, "_is_replica", False) or compile_internals.is_traced()
