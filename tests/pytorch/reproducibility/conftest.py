from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from msprobe.pytorch.reproducibility import random_save as list_of_calls
from msprobe.pytorch.reproducibility.seeding import seed_all


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What seed_all and random_save change for the whole process is undone after each test."""
    for variable in ("PYTHONHASHSEED", "HCCL_DETERMINISTIC", "CUBLAS_WORKSPACE_CONFIG", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(variable, "")  # so that it is restored, whatever the test does
        os.environ.pop(variable)
    cudnn = torch.backends.cudnn
    before = cudnn.enabled, cudnn.benchmark, cudnn.deterministic
    yield
    list_of_calls.stop_random_save()
    seed_all()
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where random_save writes."""
    return tmp_path / "output"
