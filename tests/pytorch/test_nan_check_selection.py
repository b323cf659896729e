"""Task nan_check looks only at what `scope` and `list` select."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import record

NAMES = [f"{name}.forward" for name in ("Torch.log.0", "Torch.sqrt.0", "Torch.log.1", "Torch.exp.0")]


@pytest.mark.parametrize(
    ("selection", "checked"),
    [
        ({}, NAMES),
        ({"list": ["log"]}, [NAMES[0], NAMES[2]]),
        ({"list": ["Torch.log.1.forward"]}, [NAMES[2]]),
        ({"scope": [NAMES[1], NAMES[2]]}, NAMES[1:3]),
        ({"scope": [NAMES[1], NAMES[3]], "list": ["log"]}, [NAMES[2]]),
    ],
)
def test_scope_and_list(tmp_path: Path, selection: dict[str, Any], checked: list[str]) -> None:
    x = torch.tensor([-1.0, 2.0])

    def calls() -> None:
        torch.log(x)
        torch.sqrt(x)
        torch.log(x)
        torch.exp(x)

    data = record(tmp_path, calls, task="nan_check", **selection).data
    assert [name for name in data if name.endswith(".forward")] == checked
    assert {name: entry["is_nan"] for name, entry in data.items()} == {name: int("exp" not in name) for name in checked}
