"""What start() does at level L2: MindSpore's own dump is told by a file and a variable of the environment what to write."""

from __future__ import annotations

import os

from msprobe.config import Config
from msprobe.log import logger
from msprobe.mindspore.kernel_dump.settings import Machine, ignored, refused, write
from msprobe.mindspore.mindspore_internals import in_graph_mode

VARIABLE = "MINDSPORE_DUMP_CONFIG"
_OTHER_VARIABLE = "MS_ACL_DUMP_CFG_PATH"


def machine() -> Machine:
    """This process."""
    import mindspore

    try:
        level = str(mindspore.get_context("jit_level") or "")
    except Exception:  # a release without it
        level = ""
    if not level:
        level = str((mindspore.get_context("jit_config") or {}).get("jit_level", ""))
    return Machine(mindspore.__version__, str(mindspore.get_context("device_target")), level, in_graph_mode())


def start(config: Config, root: str) -> bool:
    """Write the file and have MindSpore read it, before it compiles for the first time.

    Where MindSpore would do something else on this device, the file is written all the same, and the variable is not set.

    Args:
        config: level L2.
        root: dump_path, absolute.

    Raises:
        ConfigError: the configuration asks for what does not exist at this jit_level.
    """
    here = machine()
    path = write(config, here, root)
    reason = refused(config, here)
    if reason:
        logger.warning(f"nothing is recorded: {reason}; the settings are in {path}")
        return False
    earlier = os.environ.get(VARIABLE)
    if earlier and earlier != path:
        logger.warning(f"{VARIABLE} was {earlier}; now it is {path}")
    os.environ[VARIABLE] = path
    os.environ.pop(_OTHER_VARIABLE, None)
    useless = ignored(config, here)
    if useless:
        logger.warning(f"{here.target} with MindSpore {here.version} does not look at {'; '.join(useless)}")
    logger.info(f"level L2: MindSpore writes what its kernels take in and give out to {root}, as {path} says")
    return True
