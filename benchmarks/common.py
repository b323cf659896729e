"""What the benchmarks share: the interpreters to measure, the machine's state, the files of results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Tool:
    """One of the two tools: this project under the running interpreter, the reference under its own.

    Attributes:
        name: `ours` or `theirs`.
        python: the interpreter that has it.
        command: what starts its command line.
    """

    name: str
    python: str
    command: tuple[str, ...]

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        """The environment its processes run in; ours finds the package in src, the reference must not."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        if self.name == "ours":
            environment["PYTHONPATH"] = str(HERE.parent / "src")
        return environment | {"MSPROBE_LOG_LEVEL": "2"} | more


def tools() -> list[Tool]:
    """Ours, and the reference where MSPROBE_REFERENCE_PYTHON names its interpreter."""
    found = [Tool("ours", sys.executable, (sys.executable, "-m", "msprobe"))]
    reference = os.environ.get("MSPROBE_REFERENCE_PYTHON")
    if reference:
        script = Path(reference).parent / "msprobe"
        if not script.exists():
            sys.exit(f"MSPROBE_REFERENCE_PYTHON is {reference}, but there is no {script}: name an interpreter that has the reference tool")
        found.append(Tool("theirs", reference, (str(script),)))
    return found


def torch_version(tool: Tool) -> str:
    """The version of torch a tool runs with."""
    done = subprocess.run(
        [tool.python, "-c", "import torch; print(torch.__version__)"], env=tool.environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """Processor, cores and load, without which no time means anything."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "load": [round(value, 2) for value in os.getloadavg()]}


def save(name: str, content: Mapping[str, Any]) -> Path:
    """Write a result to benchmarks/results/{name}_{time}.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}_{time.strftime('%Y%m%d%H%M%S')}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def said_load() -> str:
    """One line about the machine."""
    state = machine()
    return f"{state['processor']}, {state['cores']} cores, load {' '.join(map(str, state['load']))}"
