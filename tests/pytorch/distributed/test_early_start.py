"""start() before init_process_group: the rank's directory from then on, in every step."""

from __future__ import annotations

from pathlib import Path

from capturing import parse
from ranks import run_ranks, step_of


def test_every_step_is_in_the_ranks_directory(tmp_path: Path) -> None:
    run_ranks("early_start.py", 2, tmp_path)
    for number in range(3):
        below = tmp_path / "dump" / f"step{number}"
        assert sorted(path.name for path in below.iterdir()) == ["rank0", "rank1"]
        for rank in (0, 1):
            step = step_of(tmp_path / "dump", number, rank)
            assert step.dump["dump_data_dir"] == str(step.directory / "dump_tensor_data")
            assert parse(step.directory / "meta.json")["rank"] == rank
            assert step.data["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 3.0
            named = step.data["Distributed.all_reduce.0.forward"]["output"][0]["data_name"]
            assert (step.directory / "dump_tensor_data" / named).is_file()
    for rank in (0, 1):  # what was recorded before there was a rank
        assert step_of(tmp_path / "dump", 0, rank).data["Torch.relu.0.forward"]["output"][0]["Max"] == float(rank)


def test_a_directory_of_another_run_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "dump" / "step0" / "rank1"
    other.mkdir(parents=True)
    (other / "dump.json").write_text("{}")
    run_ranks("early_start.py", 2, tmp_path)
    names = sorted(path.name for path in (tmp_path / "dump" / "step0").iterdir())
    assert names[1:] == ["rank0", "rank1"] and names[0].startswith("proc")
    assert (other / "dump.json").read_text() == "{}"
    assert sorted(path.name for path in (tmp_path / "dump" / "step1").iterdir()) == ["rank0", "rank1"]
