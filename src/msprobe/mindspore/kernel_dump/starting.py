"""What start() does at level L2: MindSpore's own dump is told by a file and a variable of the environment what to write."""

from __future__ import annotations

import os
from typing import Any

from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.mindspore.device import device_target
from msprobe.mindspore.kernel_dump.settings import Machine, ignored, refused, uncertain, write
from msprobe.mindspore.kernel_dump.written import Written
from msprobe.mindspore.mindspore_internals import has_compiled, in_graph_mode, whole_graphs_by_default
from msprobe.mindspore.process import current_rank, rank_in_node, ranks_of_node

VARIABLE = "MINDSPORE_DUMP_CONFIG"
_OTHER_VARIABLE = "MS_ACL_DUMP_CFG_PATH"
_RANK_TABLES = ("RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH")
_FEWEST_DEVICES = 8


def machine(model: Any = None) -> Machine:
    """This process. `model`: what start() was given; a cell may have a jit_level of its own."""
    import mindspore

    target, graph = device_target(), in_graph_mode()
    level, rank = _level_that_was_set(model), rank_in_node()
    return Machine(
        mindspore.__version__,
        target,
        level or _level_by_default(target, graph),
        graph,
        level_set=bool(level),
        devices=_devices(target),
        rank=current_rank() if rank is None else rank,
    )


def _level_that_was_set(model: Any) -> str:
    """By Cell.set_jit_config, which goes before set_context; "" where neither was called."""
    import mindspore

    for cell in model if isinstance(model, (list, tuple)) else (model,):
        level = (getattr(cell, "jit_config_dict", None) or {}).get("jit_level")
        if level:
            return str(level)
    try:
        level = mindspore.get_context("jit_level")
    except Exception as error:  # a release without it
        let_through(error)
        level = ""
    return str(level or (mindspore.get_context("jit_config") or {}).get("jit_level", ""))


def _level_by_default(target: str, graph: bool) -> str:
    """What MindSpore takes where nobody has set anything: O0, but for graphs on some Ascend devices; "" where it does not say."""
    if target != "Ascend" or not graph:
        return "O0"
    if "MS_ROLE" not in os.environ and any(os.environ.get(name) for name in _RANK_TABLES):
        return "O2"  # started by a table of ranks
    whole = whole_graphs_by_default()
    return "" if whole is None else "O2" if whole else "O0"


def _devices(target: str) -> int:
    """How many numbers of devices are to be named so that none of this node is left out; one that is not there does no harm."""
    import mindspore

    try:
        there = int(mindspore.hal.device_count(target))
    except Exception as error:
        let_through(error)
        there = 0
    return max(_FEWEST_DEVICES, there, ranks_of_node() or 0)


def start(config: Config, root: str, model: Any = None) -> Written | None:
    """Write the file and have MindSpore read it, before it compiles for the first time.

    Where MindSpore would do something else on this device, the file is written all the same, and the variable is not set. Gives what
    knows at the end whether values were written; None where there need not be any.

    Args:
        config: level L2.
        root: dump_path, absolute.
        model: what start() was given.

    Raises:
        ConfigError: the configuration asks for what does not exist at this jit_level.
    """
    here = machine(model)
    path = write(config, here, root)
    reason = refused(config, here)
    if reason:
        logger.warning(f"nothing is recorded: {reason}; the settings are in {path}")
        return None
    doubt = uncertain(config, here)
    if doubt:
        logger.warning(doubt)
    if has_compiled():
        logger.warning(
            'level "L2": MindSpore has compiled something before start(), and reads the settings of its dump when it compiles for the '
            "first time in a process: nothing may be recorded; call start() earlier"
        )
    earlier = os.environ.get(VARIABLE)
    if earlier and earlier != path:
        logger.warning(f"{VARIABLE} was {earlier}; now it is {path}")
    os.environ[VARIABLE] = path
    os.environ.pop(_OTHER_VARIABLE, None)
    useless = ignored(config, here)
    if useless:
        logger.warning(f"{here.target} with MindSpore {here.version} does not look at {'; '.join(useless)}")
    logger.info(f"level L2: MindSpore writes what its kernels take in and give out to {root}, as {path} says")
    return Written(root, path) if config.task in ("statistics", "tensor") else None
