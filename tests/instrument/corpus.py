"""The scripts in scripts/, and what their last line says should become of them: `# recorded: first line | models | steps`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "scripts"
_EXPECTED = re.compile(r"^# recorded: (?P<code>.*) \| (?P<models>.*?) ?\| (?P<steps>\d+|never)(?P<slow> slow)?$", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """What a script says of itself; `steps` is None where it cannot run here."""

    name: str
    code: str
    models: tuple[str, ...]
    steps: int | None
    slow: bool

    @property
    def path(self) -> Path:
        return HERE / self.name


def _read(path: Path) -> Expected:
    found = _EXPECTED.search(path.read_text(encoding="utf-8"))
    assert found is not None, f"{path.name} does not say what is recorded"
    models = tuple(name.strip() for name in found["models"].split(",") if name.strip())
    return Expected(path.name, found["code"], models, None if found["steps"] == "never" else int(found["steps"]), bool(found["slow"]))


SCRIPTS = [_read(path) for path in sorted(HERE.glob("*.py")) if path.name != "helper.py"]
