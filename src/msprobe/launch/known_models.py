"""The models that a process is known to have so far, and those that were left out of a step, with the reason."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING

import torch

from msprobe.launch.models import Family, Roots, name_of

if TYPE_CHECKING:
    from msprobe.launch.arming import Armed

_LOOKS = 50
"""So many times at most all modules of the process are looked at; each time costs some ten milliseconds."""
TOLD = 200
"""Of so many things that are left out at most a name is kept."""


class KnownModels:
    """The models of a process, held weakly.

    Attributes:
        left_out: (name, why it was left out of a step) -> how many calls.
    """

    def __init__(self, armed: Armed) -> None:
        self._armed = armed
        self._orders = armed.orders
        self._roots = Roots()
        self._family_groups = -1
        self._looks = 0
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._joining: list[weakref.ref[torch.nn.Module]] = []
        self.left_out: Counter[tuple[str, str]] = Counter()

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that are alive."""
        return [optimizer for known in self._armed.optimizers if (optimizer := known()) is not None]

    def root_of(self, module: torch.nn.Module) -> torch.nn.Module:
        """The model that a module belongs to; looks at the process anew where a module or an optimizer is new."""
        root = self._roots.get(module)
        if root is not None and self._family_groups == self._armed.groups:
            return root
        self._looks += 1
        if self._looks > _LOOKS:
            return root or module
        family = Family()
        root = family.root_of(module)
        self._roots.keep(module, root)
        self._family_groups = self._armed.groups
        optimizers = self.optimizers()
        for optimizer in optimizers:
            self._armed.watch_step(type(optimizer))
        if self._orders.step_on != "forward" or self._orders.forwards > 1:
            trained = family.trained(optimizers, root)
            if trained:
                keeps = self._orders.models == "all" or self._orders.step_on == "forward"
                others = [model for model in self.known() if keeps and all(model is not one for one in trained)]
                self._models = list(map(weakref.ref, [*trained, *others]))
        return root

    def known_root(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """The model that a module is known to belong to; None where nobody has asked."""
        return self._roots.get(module)

    def known(self) -> list[torch.nn.Module]:
        """In the order of their names; those that nobody holds any more are gone."""
        return [model for known in self._models if (model := known()) is not None]

    def add(self, root: torch.nn.Module) -> None:
        """One more, behind the others."""
        self._models.append(weakref.ref(root))

    def join(self, root: torch.nn.Module, why: str) -> None:
        """One more from the next step on; until then it is left out."""
        if all(known() is not root for known in self._joining):
            self._joining.append(weakref.ref(root))
        self.leave_out(root, why)

    def joined(self) -> None:
        """A step is over: those that joined while it ran belong to the next one."""
        for joining in self._joining:
            if joining() is not None:
                self._models.append(joining)
        self._joining.clear()

    def leave_out(self, root: torch.nn.Module, why: str) -> None:
        """A call that is not recorded."""
        key = name_of(root), why
        if key in self.left_out or len(self.left_out) < TOLD:
            self.left_out[key] += 1
