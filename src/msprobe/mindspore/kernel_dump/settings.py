"""From our configuration to the JSON that MindSpore's own dump reads (level L2): one function, no MindSpore needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msprobe.config import Config
from msprobe.errors import ConfigError

KERNELS = "kernel_kbyk_dump.json"
KERNELS_O2 = "kernel_graph_dump.json"
EXCEPTION = "kernel_graph_exception_dump.json"
OVERFLOW = "kernel_graph_overflow_check.json"
_INPUT_OUTPUT = {(True, True): 0, (True, False): 1, (False, True): 2}
_CHECK_MODE = {"aicore": 1, "atomic": 2, "all": 3}
_STATISTICS = ("max", "min", "avg", "l2norm")
_ON_DEVICE = ("max", "min", "mean", "l2norm")
_AT_O2 = ("max", "min", "mean", "l2norm", "md5")
_TYPE = re.compile(r"\w+", re.ASCII)
"""A type of operators, `MatMul`: names of kernels have a scope (`Default/fc-Dense/MatMul-op0`), and patterns have brackets."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the JSON depends on besides the configuration.

    Attributes:
        version: of MindSpore, `2.10.0`.
        target: `Ascend`, `GPU` or `CPU`.
        jit_level: `O0`, `O1` or `O2`, whether somebody has set it or not; "" where MindSpore does not say which one it takes.
        graph: cells are compiled as a whole (graph mode).
        level_set: somebody has set jit_level.
        devices: how many numbers there may be of devices on this node.
        rank: of this process on its node; None where it has none.
    """

    version: str
    target: str
    jit_level: str = ""
    graph: bool = True
    level_set: bool = True
    devices: int = 8
    rank: int | None = None

    def at_least(self, *wanted: int) -> bool:
        """Whether MindSpore is of this version or newer."""
        found = tuple(int(part) for part in self.version.split(".")[: len(wanted)] if part.isdecimal())
        return found >= wanted

    @property
    def whole_graph(self) -> bool:
        """Whether the device runs a graph as one piece, into which only the asynchronous dump sees: O2 on Ascend."""
        return self.jit_level == "O2" and self.target == "Ascend"


def file_name(config: Config, machine: Machine) -> str:
    """What the file in dump_path is called."""
    if config.task == "exception_dump":
        return EXCEPTION
    if config.task == "overflow_check":
        return OVERFLOW
    return KERNELS_O2 if machine.jit_level == "O2" else KERNELS


def settings(config: Config, machine: Machine, path: str) -> dict[str, Any]:
    """The content of the file.

    Args:
        config: level L2; task statistics, tensor, exception_dump or overflow_check.
        machine: where it is to hold.
        path: the directory of the dump, absolute.

    Raises:
        ConfigError: `summary_mode` names what does not exist at this jit_level.
    """
    section = config.section
    common: dict[str, Any] = {
        "op_debug_mode": _debug_mode(config),
        "dump_mode": 1 if section.list else 0,
        "path": path,
        "net_name": "Net",
        "iteration": iterations(config.step),
        "saved_data": "statistic" if config.task == "statistics" else "tensor",
        "input_output": _INPUT_OUTPUT[section.data_mode.input, section.data_mode.output],
        "kernels": list(section.list),
        "support_device": sorted(config.rank) or list(range(machine.devices)),
        "statistic_category": _categories(config, machine) if config.task == "statistics" else [],
        "file_format": section.file_format,
    }
    in_pieces = config.task == "exception_dump" or not machine.whole_graph  # exceptions are looked for kernel by kernel
    e2e: dict[str, Any] = {"enable": in_pieces, "trans_flag": True}
    if config.task == "statistics" and machine.jit_level != "O2":
        device = "host" if _needs_host(config) else section.device
        e2e.update(stat_calc_mode=device, device_stat_precision_mode=config.precision)
    return {"common_dump_settings": common, "e2e_dump_settings": e2e}


def iterations(steps: Iterable[int]) -> str:
    """`0|2-3` for the steps 0, 2 and 3; `all` for none."""
    ordered = sorted(steps)
    ranges: list[list[int]] = []
    for step in ordered:
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return "|".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "all"


def _debug_mode(config: Config) -> int:
    if config.task == "exception_dump":
        return 4
    return _CHECK_MODE[config.section.check_mode] if config.task == "overflow_check" else 0


def _categories(config: Config, machine: Machine) -> list[str]:
    """`statistic_category`, in the order of the list."""
    wanted = config.section.summary_mode
    if wanted == "statistics":
        return list(_STATISTICS)
    items = (wanted,) if isinstance(wanted, str) else wanted
    o2 = machine.jit_level == "O2"
    wrong = [item for item in items if o2 and item not in _AT_O2]
    if wrong:
        raise ConfigError(
            f'statistics.summary_mode is {list(items)}: at jit_level "O2" there are {", ".join(_AT_O2[:-1])}, and md5; leave out '
            f'{", ".join(wrong)}, or compile at "O0" or "O1"'
        )
    md5 = "md5" if o2 or not machine.at_least(2, 7, 1) else "hash:md5"
    spelled = {"mean": "avg", "md5": md5}
    return list(dict.fromkeys(spelled.get(item, item) for item in items))


def _needs_host(config: Config) -> bool:
    """Whether something is asked for that no device computes."""
    wanted = config.section.summary_mode
    return wanted == "md5" if isinstance(wanted, str) else not set(wanted) <= set(_ON_DEVICE)


def refused(config: Config, machine: Machine) -> str:
    """Why MindSpore would not do what is asked for here, or do something else; "" where it does it."""
    task, where, level = config.task, machine.target, machine.jit_level
    if where == "CPU" and config.rank and machine.rank is not None and machine.rank not in config.rank:
        return f'"rank" does not select rank {machine.rank} of this node'  # elsewhere MindSpore looks at the devices itself
    if where == "CPU" and task != "tensor":
        what = {
            "statistics": "MindSpore's dump computes statistics on GPU and Ascend only, and ends the run on a CPU",
            "exception_dump": "MindSpore detects exceptions of kernels on Ascend only",
            "overflow_check": "MindSpore detects overflows on Ascend only, and dumps everything on a CPU",
        }
        return what.get(task, "")
    if task == "overflow_check" and not machine.graph:
        return "task overflow_check works in graph mode only"
    found = f'it is "{level}"' if machine.level_set else f'it is "{level}" here where nobody sets it'
    if task == "overflow_check" and level in ("O0", "O1"):
        return f'task overflow_check works at jit_level "O2" only, and {found}'
    if task == "exception_dump" and machine.graph and level == "O2":
        return f'task exception_dump works in graph mode at jit_level "O0" or "O1" only, and {found}'
    return ""


def uncertain(config: Config, machine: Machine) -> str:
    """What to say where nobody has set jit_level and MindSpore does not say which one it takes; "" where it is known or plays no part."""
    if machine.jit_level or not machine.graph:
        return ""
    needs = {"overflow_check": 'task overflow_check works at "O2" only', "exception_dump": 'task exception_dump works at "O0" or "O1" only'}
    reason = needs.get(config.task, 'the settings are those of "O0" and "O1"')
    return f"jit_level is not set, and MindSpore does not say which one {machine.target} takes: {reason}; set it to be sure"


def ignored(config: Config, machine: Machine) -> list[str]:
    """The settings that this MindSpore or device does not look at."""
    section, found = config.section, []
    if machine.target == "CPU" and config.rank and machine.rank is None:
        found.append('"rank" (a process without communication has none, and writes)')
    types = [name for name in section.list if _TYPE.fullmatch(name)]
    if types and machine.whole_graph:
        found.append(f'{", ".join(types)} in "list" (types of operators are for jit_level O0 and O1: give names, or name-regex(...))')
    if section.file_format == "bin" and machine.target == "CPU":
        found.append('"file_format" (files are .npy)')
    if config.task == "overflow_check" and section.check_mode != "all" and machine.at_least(2, 3):
        found.append('"check_mode" (only before MindSpore 2.3)')
    if section.device == "device" and machine.jit_level == "O2":
        found.append('"device" (only at jit_level O0 and O1)')
    elif section.device == "device" and _needs_host(config):
        found.append(f'"device" (only {", ".join(_ON_DEVICE)} are computed there: all statistics are taken on the host)')
    if not machine.graph and machine.target != "Ascend":
        found.append("operations outside of jit (only what is compiled is dumped)")
    return found


def write(config: Config, machine: Machine, directory: str) -> str:
    """Write the file into `directory`, which is made; gives its path. Raises OSError, ConfigError."""
    import json

    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, file_name(config, machine))
    text = json.dumps(settings(config, machine, directory), indent=4)
    beside = f"{path}.{os.getpid()}.tmp"  # several ranks write the same file at the same moment
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(beside, path)
    return path
