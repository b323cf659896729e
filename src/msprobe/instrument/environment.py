"""What the interpreter that will run the script has: asked in a process of its own, so that nothing heavy is imported here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

_SECONDS = 120
_OLDEST_PYTHON = (3, 10)
_OLDEST_TORCH = (2, 6)

# -P is not there before 3.11: the directory of the script must not hide what is installed.
_ASK = """
import sys
sys.path = [part for part in sys.path if part]
import importlib.metadata as metadata, importlib.util as util, json
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
found = {"python": sys.executable, "python_version": "%d.%d.%d" % sys.version_info[:3], "torch": None, "msprobe": None, "npu": None}
found["reference"] = version("mindstudio-probe")
try:
    found["msprobe"] = __import__("msprobe").__version__
except ImportError:
    pass
except AttributeError:
    found["reference"] = found["reference"] or "?"
if util.find_spec("torch") is not None:
    found["torch"] = version("torch") or "?"
for name in ("transformers", "lightning", "pytorch_lightning"):
    found[name] = version(name) if util.find_spec(name) is not None else None
if "npu" in sys.argv[1:]:
    try:
        import torch, torch_npu
        found["npu"] = bool(torch.npu.is_available())
    except Exception:
        found["npu"] = False
print(json.dumps(found))
"""


@dataclass
class Environment:
    """Versions of an interpreter; None: not there. `npu` is None where nobody looked."""

    python: str
    python_version: str | None = None
    msprobe: str | None = None
    torch: str | None = None
    npu: bool | None = None
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the answer to a program."""
        return {
            "ok": not self.problems,
            "python": self.python,
            "python_version": self.python_version,
            "msprobe": self.msprobe,
            "torch": self.torch,
            "npu": self.npu,
            "problems": self.problems,
        }


def look(python: str, *, npu: bool, integration: str | None) -> Environment:
    """Asks an interpreter what it has. What is missing stands in `problems`, each with what to do; nothing is raised.

    Args:
        python: the interpreter.
        npu: look for an NPU too: levels and tasks that work on nothing else.
        integration: `transformers` or `lightning` where its trainer runs the loop.
    """
    environment = Environment(python)
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *(["npu"] if npu else [])],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        environment.problems.append(
            f"{python} cannot be run ({getattr(error, 'strerror', None) or 'it does not answer'}): name the interpreter with --python"
        )
        return environment
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        environment.problems.append(f"{python} is no working Python ({last[0]}): name the interpreter with --python")
        return environment
    environment.python, environment.python_version = found["python"] or python, found["python_version"]
    environment.msprobe, environment.torch, environment.npu = found["msprobe"], found["torch"], found["npu"]
    environment.problems += _problems(found, npu, integration)
    return environment


def _problems(found: dict[str, Any], npu: bool, integration: str | None) -> list[str]:
    python = found["python"]
    problems = []
    if _numbers(found["python_version"]) < _OLDEST_PYTHON:
        problems.append(f"{python} is Python {found['python_version']}; msprobe needs 3.10 or newer")
    if found["reference"] is not None:
        problems.append(
            f"mindstudio-probe is installed in {python} and has the same import name: {python} -m pip uninstall mindstudio-probe"
        )
    if found["msprobe"] is None:
        problems.append(f"msprobe is not installed in {python}: in the directory of its repository, {python} -m pip install .")
    if found["torch"] is None:
        problems.append(f"PyTorch is not installed in {python}: install it there, or name another interpreter with --python")
    elif found["torch"] != "?" and _numbers(found["torch"]) < _OLDEST_TORCH:
        problems.append(f"PyTorch {found['torch']} in {python} is too old: 2.6 or newer is needed")
    if npu and not found["npu"]:
        problems.append(f"no NPU is available in {python} (torch_npu): what was chosen needs one")
    if integration == "transformers" and found["transformers"] is None:
        problems.append(f"transformers is not installed in {python}: {python} -m pip install transformers")
    if integration == "lightning" and found["lightning"] is None and found["pytorch_lightning"] is None:
        problems.append(f"Lightning is not installed in {python}: {python} -m pip install lightning")
    return problems


def _numbers(version: str) -> tuple[int, int]:
    parts = version.split(".")[:2]
    digits = ["".join(c for c in part if c.isdigit()) for part in parts]
    first, second = (*digits, "0", "0")[:2]
    return int(first or 0), int(second or 0)
