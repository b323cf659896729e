"""Runs one script without and with `msprobe run`, and reads what was recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.programs import BEGIN

ARMED = str(Path(__file__).resolve().parent / "armed.py")
SOURCE = str(Path(__file__).resolve().parents[2] / "src")
_OUR_LOG = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\) (\[rank \d+\] )?\[|^msprobe run: ")


@dataclass
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str
    dump: Path

    @property
    def said(self) -> list[str]:
        """The lines of `msprobe run` itself."""
        return [line.removeprefix("msprobe run: ") for line in self.err.splitlines() if line.startswith("msprobe run: ")]

    @property
    def others(self) -> list[str]:
        """Standard error without our lines."""
        return [line for line in self.err.splitlines() if not _OUR_LOG.match(line)]

    def steps(self) -> list[str]:
        """Names of the steps' directories, in order."""
        return sorted((path.name for path in self.dump.glob("step*")), key=lambda name: int(name.removeprefix("step")))

    def data(self, step: int, process: str = "*") -> dict[str, Any]:
        """`data` of a dump.json."""
        (path,) = self.dump.glob(f"step{step}/{process}/dump.json")
        found: dict[str, Any] = json.loads(path.read_text())["data"]
        return found

    def calls(self, step: int, process: str = "*") -> list[str]:
        """Names of the forward entries of modules, without `Module.` and `.forward`."""
        names = [name for name in self.data(step, process) if name.startswith("Module.") and ".forward." in name]
        return [name.removeprefix("Module.").replace(".forward", "") for name in names]

    def meta(self, step: int) -> dict[str, Any]:
        """`msprobe_run` in meta.json."""
        (path,) = self.dump.glob(f"step{step}/*/meta.json")
        found: dict[str, Any] = json.loads(path.read_text())["msprobe_run"]
        return found


class Runs:
    """Runs scripts.

    Args:
        client: the beginning of a command that runs a script.
        directory: an empty one.
    """

    def __init__(self, client: list[str], directory: Path) -> None:
        self.client, self.directory = client, directory
        self.environment = {**os.environ, "PYTHONPATH": SOURCE, "HF_HUB_OFFLINE": "1", "MSPROBE_LOG_LEVEL": "1"}
        for name in ("MSPROBE_RUN", "MSPROBE_RUN_EVENTS", "MSPROBE_ISOLATE"):
            self.environment.pop(name, None)

    def script(self, source: str, name: str = "script.py") -> str:
        """Path of a script that begins as all of them."""
        path = self.directory / name
        path.write_text(BEGIN + source)
        return str(path)

    def plain(self, *command: str) -> Ran:
        """A command by itself."""
        done = subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=90, check=False)
        return Ran(done.returncode, done.stdout, done.stderr, self.directory / "dump")

    def recorded(self, *command: str, options: tuple[str, ...] = ()) -> Ran:
        """A command below `msprobe run`."""
        return self.plain(sys.executable, "-m", "msprobe", "run", "--dump-path", "dump", *options, "--", *command)

    def both(self, source: str, *options: str) -> Ran:
        """A script of this source, without and with; what it prints must be the same."""
        command = [*self.client, self.script(source)]
        without, recorded = self.plain(*command), self.recorded(*command, options=options)
        assert without.code == recorded.code == 0, recorded.err
        assert without.out == recorded.out
        assert without.others == recorded.others, without.err + "--" + recorded.err
        return recorded
