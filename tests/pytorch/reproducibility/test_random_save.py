"""random_save lists the places where numbers are drawn, and draws none itself."""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import subprocess
import textwrap
from pathlib import Path
from random import randint as imported_before
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capturing import environment
from torch import nn

import warm_python
from msprobe.errors import UsageError
from msprobe.pytorch import random_save, seed_all
from msprobe.pytorch.reproducibility.random_save import stop_random_save


def rows(directory: Path) -> list[list[str]]:
    """The lines of the only csv, without the header."""
    (path,) = directory.iterdir()
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfapi_name,stack\r\n")
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["api_name", "stack"]
    return lines


def names(directory: Path) -> list[str]:
    return [line[0] for line in rows(directory)]


def test_one_line_for_each_kind(directory: Path) -> None:
    random_save(str(directory))
    torch.randn(2)
    torch.empty(2).uniform_()
    np.random.rand()
    random.random()
    imported_before(0, 9)
    F.dropout2d(torch.ones(1, 2, 2, 2))
    found = rows(directory)
    assert [line[0] for line in found] == [
        "torch_random.randn.0",
        "tensor_random.uniform_.0",
        "numpy_random.rand.0",
        "python_random.random.0",
        "python_random.randint.0",
        "functional_random.dropout2d.0",
    ]
    for line, source in zip(found, ["torch.randn(2)", "torch.empty(2).uniform_()", "np.random.rand()", "random.random()"], strict=False):
        first = line[1].split("\n")
        assert re.fullmatch(rf"File {re.escape(__file__)}, line \d+, in test_one_line_for_each_kind, ", first[0])
        assert first[1] == f" {source}"
        assert "msprobe" + os.sep + "pytorch" not in line[1]


def test_a_place_is_listed_once_and_calls_are_counted(directory: Path) -> None:
    random_save(str(directory))
    for _ in range(3):
        torch.rand(1)
    torch.rand(1)
    assert names(directory) == ["torch_random.rand.0", "torch_random.rand.3"]


def test_modules_tell_where_they_were_made_and_called(directory: Path) -> None:
    random_save(str(directory))
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    net(torch.ones(1, 2))
    found = rows(directory)
    assert [line[0] for line in found] == ["tensor_random.uniform_.0", "tensor_random.uniform_.1", "functional_random.dropout.0"]
    assert "net = nn.Sequential" in found[0][1] and "net(torch.ones(1, 2))" in found[2][1]
    assert found[2][1].split("\n")[1] == " return F.dropout(input, self.p, self.training, self.inplace)"


DRAWS: dict[str, Any] = {
    "functional_random.dropout": lambda: F.dropout(torch.ones(2)),
    "functional_random.alpha_dropout": lambda: F.alpha_dropout(torch.ones(2), training=True),
    "functional_random.feature_alpha_dropout": lambda: F.feature_alpha_dropout(torch.ones(1, 2), training=True),
    "torch_random.dropout": lambda: torch.dropout(torch.ones(2), 0.5, True),
    "torch_random.native_dropout": lambda: torch.native_dropout(torch.ones(2), 0.5, True),
    "torch_random.rrelu": lambda: F.rrelu(torch.ones(2), training=True),
    "functional_random.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 2)] * 3, dropout_p=0.1),
    "torch_random.lstm": lambda: torch.lstm(
        torch.ones(1, 1, 1), (torch.ones(2, 1, 1),) * 2, [torch.ones(4, 1)] * 4, False, 2, 0.5, True, False, False
    ),
    "numpy_random.default_rng": lambda: np.random.default_rng(),
}
DRAWS_NOTHING: dict[str, Any] = {
    "not training": lambda: F.dropout(torch.ones(2), 0.5, False),
    "p = 0": lambda: F.dropout(torch.ones(2), 0.0),
    "evaluation": lambda: nn.Dropout(0.5).eval()(torch.ones(2)),
    "alpha": lambda: F.alpha_dropout(torch.ones(2)),
    "torch.dropout": lambda: torch.dropout(torch.ones(2), p=0.5, train=False),
    "rrelu": lambda: F.rrelu(torch.ones(2)),
    "attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 2)] * 3),
    "lstm": lambda: torch.lstm(torch.ones(1, 1, 1), (torch.ones(1, 1, 1),) * 2, [torch.ones(4, 1)] * 2, False, 1, 0.0, True, False, False),
    "a generator with a seed": lambda: np.random.default_rng(3),
    "seeding": lambda: (torch.manual_seed(1), np.random.seed(1), random.seed(1)),
    "states": lambda: (np.random.get_state(), random.getstate(), torch.get_rng_state()),
    "nothing random": lambda: torch.ones(2) + torch.zeros(2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_draws_is_listed(name: str, directory: Path) -> None:
    random_save(str(directory))
    DRAWS[name]()
    assert names(directory) == [f"{name}.0"]


@pytest.mark.parametrize("case", DRAWS_NOTHING)
def test_what_draws_nothing_is_not(case: str, directory: Path) -> None:
    random_save(str(directory))
    DRAWS_NOTHING[case]()
    assert names(directory) == []


def test_dropout_that_is_removed_draws_nothing(directory: Path) -> None:
    seed_all(rm_dropout=True)
    random_save(str(directory))
    F.dropout(torch.ones(3))
    F.scaled_dot_product_attention(*[torch.ones(1, 2, 2)] * 3, dropout_p=0.1)
    assert names(directory) == []


def _everything() -> list[Any]:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Flatten(0), nn.Unflatten(0, (2, 4)), nn.LSTM(4, 4, 2, dropout=0.5))
    loss = net(torch.randn(2, 4))[0].square().sum() * float(np.random.rand()) * random.gauss(1, 1)
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters()), torch.rand(3), np.random.permutation(9), random.sample(range(99), 9)]


def test_the_draws_are_those_without(directory: Path) -> None:
    seed_all(3)
    plain = _everything()
    seed_all(3)
    random_save(str(directory))
    watched = _everything()
    assert len(names(directory)) > 8
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(plain, watched, strict=True))


def test_with_repeated_draws(directory: Path) -> None:
    random_save(str(directory))
    seed_all(is_enhanced=True)
    first = [torch.rand(1).item() for _ in range(2)]
    assert [torch.rand(1).item() for _ in range(2)] == first
    assert names(directory) == ["torch_random.rand.0", "torch_random.rand.2"]


def test_names_of_files(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_save(str(directory))
    (path,) = directory.iterdir()
    assert re.fullmatch(rf"random_proc{os.getpid()}_\d{{14}}\.csv", path.name)
    torch.rand(1)
    monkeypatch.setattr("msprobe.pytorch.reproducibility.call_site_file.current_rank", lambda: 3)
    torch.rand(1)
    (path,) = directory.iterdir()
    assert re.fullmatch(r"random_rank3_\d{14}\.csv", path.name)
    assert names(directory) == ["torch_random.rand.0", "torch_random.rand.1"]


def test_the_rank_that_a_launcher_gave(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    random_save(str(directory))
    assert [p.name.startswith("random_rank5_") for p in directory.iterdir()] == [True]


def test_a_file_that_is_there_stays(directory: Path) -> None:
    for _ in range(3):
        random_save(str(directory))
        torch.rand(1)
        stop_random_save()
    assert len(list(directory.iterdir())) == 3
    torch.rand(1)
    assert [path.read_text("utf-8").count("torch_random") for path in directory.iterdir()] == [1, 1, 1]


def test_a_second_call(directory: Path, tmp_path: Path) -> None:
    random_save(str(directory))
    random_save(str(directory))
    torch.rand(1)
    random_save(str(tmp_path / "other"))
    np.random.rand()
    assert names(directory) == ["torch_random.rand.0"]
    assert names(tmp_path / "other") == ["numpy_random.rand.0"]


def test_the_default_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random_save()
    os.chdir("/")
    torch.rand(1)
    assert names(tmp_path / "output") == ["torch_random.rand.0"]


@pytest.mark.parametrize("path", [None, 3, "", b"x"])
def test_a_wrong_path_is_told(path: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(f"output_path is {path!r}; allowed: the path of a directory")):
        random_save(path)
    assert type(torch.rand).__module__ == "builtins"


def test_a_path_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file cannot be written"):
        random_save(str(tmp_path / "file"))


def test_an_error_of_ours_is_told_once_and_the_run_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random_save(str(directory))

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert torch.rand(2).shape == (2,)
    assert torch.rand(2).shape == (2,)
    monkeypatch.undo()
    assert capsys.readouterr().err.count("No space left on device") == 1


def run(tmp_path: Path, program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(textwrap.dedent(program))
    return subprocess.run([*warm_python.command(), "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, **options)


def test_killed_at_once_the_lines_are_there(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
        import os, signal, torch
        from msprobe.pytorch import random_save
        random_save()
        torch.rand(1)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert ended.returncode == -signal.SIGKILL
    assert names(tmp_path / "output") == ["torch_random.rand.0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_workers_add_to_the_same_file_once(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
        import random, torch
        from msprobe.pytorch import random_save
        random_save()

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return torch.rand(1) + random.random()

        for epoch in range(3):
            list(torch.utils.data.DataLoader(Data(), num_workers=2))
        torch.rand(1)
        """,
        check=True,
    )
    found = [name for name in names(tmp_path / "output") if name.startswith(("torch_random", "python_random"))]
    assert sorted(found) == ["python_random.random.0", "torch_random.rand.0", "torch_random.rand.1"]
    assert ended.stderr.count("calls of random functions are listed in") == 2  # at the start and at the end, not by the workers


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_a_process_group_gives_the_rank(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import torch, torch.distributed as dist
        from msprobe.pytorch import random_save
        random_save()
        dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
        torch.rand(1)
        dist.destroy_process_group()
        """,
        check=True,
    )
    (path,) = (tmp_path / "output").iterdir()
    assert re.fullmatch(r"random_rank0_\d{14}\.csv", path.name)
    assert names(tmp_path / "output") == ["torch_random.rand.0"]
