from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.errors import DumpFormatError, UsageError
from msprobe.isolation.golden import open_golden

FC = "Module.fc.Linear.forward.0"
BLOCK = "Module.block.Block.forward.0"


def dump(root: Path, place: str = "step0/rank0", **content: Any) -> Path:
    directory = root / place
    (directory / "dump_tensor_data").mkdir(parents=True)
    data = {name: {"input_args": [], "input_kwargs": {}, "output": []} for name in (FC, BLOCK, "Torch.relu.0.forward")}
    written = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": "", "data": data, **content}
    (directory / "dump.json").write_text(json.dumps(written))
    return directory


def refused(path: Path, step: int | None = None) -> str:
    with pytest.raises((UsageError, DumpFormatError)) as error:
        open_golden(path, step)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_calls_are_in_the_order_in_which_they_begin(tmp_path: Path) -> None:
    directory = dump(tmp_path)
    assert open_golden(tmp_path, None).ranks["rank0"].calls == (FC, BLOCK)
    (directory / "construct.json").write_text(json.dumps({BLOCK: None, FC: BLOCK, "Torch.relu.0.forward": FC}))
    golden = open_golden(tmp_path, None)
    assert golden.ranks["rank0"].calls == (BLOCK, FC) and golden.length == 2
    assert golden.first(1) == {"rank0": (BLOCK,)}


def test_the_first_step_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    for place in ("step2/proc7", "step10/rank0", "step10/rank1", "step10/proc5"):
        dump(tmp_path, place)
    assert open_golden(tmp_path, None).step == 2
    assert list(open_golden(tmp_path, 10).ranks) == ["rank0", "rank1"]
    assert "it has no step3; there are: step2, step10" in refused(tmp_path, 3)


def test_a_fingerprint_tells_another_recording(tmp_path: Path) -> None:
    directory = dump(tmp_path)
    before = open_golden(tmp_path, None).fingerprint()
    assert open_golden(tmp_path, None).fingerprint() == before
    (directory / "dump.json").write_text((directory / "dump.json").read_text() + " ")
    assert open_golden(tmp_path, None).fingerprint() != before


def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "there is no such directory" in refused(tmp_path / "none")
    assert "it holds no step* directory" in refused(tmp_path)
    (tmp_path / "step0").mkdir()
    assert "step0 holds no rank* or proc* directory" in refused(tmp_path)
    directory = dump(tmp_path / "fine")
    assert f"give the dump root above it, {tmp_path / 'fine'}" in refused(directory)
    assert f"give the dump root above it, {tmp_path / 'fine'}" in refused(directory.parent)
    (directory / "dump.json").write_text("{")
    assert "cut off" in refused(tmp_path / "fine")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"task": "statistics"}, 'it has no tensors to give to modules; record the golden run with "task": "tensor" and "level": "L0"'),
        ({"level": "L1"}, 'at level "L1", which knows no modules; record the golden run with'),
        ({"framework": "mindspore"}, "isolation is for PyTorch"),
        ({"data": {"Torch.relu.0.forward": {}}}, "holds no forward call of a module"),
    ],
)
def test_dumps_of_other_kinds(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    dump(tmp_path, **content)
    assert message in refused(tmp_path)


def test_several_processes_without_ranks(tmp_path: Path) -> None:
    dump(tmp_path, "step0/proc1")
    dump(tmp_path, "step0/proc2")
    assert "holds 2 proc* directories (proc1, proc2)" in refused(tmp_path)


def test_lost_tensors(tmp_path: Path) -> None:
    (dump(tmp_path) / "dump_tensor_data").rmdir()
    assert "has lost its tensors" in refused(tmp_path)
