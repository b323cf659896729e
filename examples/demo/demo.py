"""Record a sound run and a faulty one, compare them, and see the faulty line named: the three commands a user would type."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = "demo_out"
FOUND_SOMETHING = 1


def run(*command: str) -> int:
    """Show a command, run it, and give its exit code."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    program = [sys.executable, *(["-m", "msprobe"] if command[0] == "msprobe" else [])]  # whether or not the environment is activated
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.run([*program, *command[1:]], env=environment, stderr=subprocess.STDOUT, check=False).returncode


def main() -> int:
    """Run the demo in the current directory; 0 when the comparison found the difference."""
    shutil.rmtree(OUT, ignore_errors=True)
    train = os.path.relpath(HERE / "train.py")
    for arguments in ([f"{OUT}/good"], [f"{OUT}/broken", "--broken"]):
        code = run("python", train, *arguments)
        if code:
            return code
    code = run("msprobe", "compare", "-tp", f"{OUT}/broken", "-gp", f"{OUT}/good", "-o", f"{OUT}/compare")
    if code != FOUND_SOMETHING:
        print(f"expected exit code {FOUND_SOMETHING} (a difference was found), got {code}", file=sys.stderr)
        return code or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
