"""What MindSpore's own dump is told; needs no MindSpore."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import load_config
from msprobe.errors import ConfigError
from msprobe.mindspore.kernel_dump.settings import Machine, file_name, ignored, iterations, refused, settings, uncertain, write
from msprobe.mindspore.kernel_dump.written import Written

ASCEND = Machine("2.10.0", "Ascend", "O0")
WHOLE = Machine("2.10.0", "Ascend", "O2")
CPU = Machine("2.10.0", "CPU", "O0")


def made(tmp_path: Path, task: str = "tensor", section: dict[str, Any] | None = None, **top: Any) -> Any:
    file = tmp_path / "config.json"
    content = {"task": task, "dump_path": str(tmp_path / "dump"), "level": "L2", **top, task: section or {}}
    file.write_text(json.dumps(content), encoding="utf-8")
    return load_config(str(file), framework="mindspore")


def common(config: Any, machine: Machine = ASCEND) -> Any:
    return settings(config, machine, "/d")["common_dump_settings"]


def test_the_sample_with_a_regular_expression(tmp_path: Path) -> None:
    config = made(tmp_path, section={"list": ["name-regex(Default/.+)"], "file_format": "bin", "data_mode": ["input"]})
    assert settings(config, ASCEND, "/d") == {
        "common_dump_settings": {
            "op_debug_mode": 0,
            "dump_mode": 1,
            "path": "/d",
            "net_name": "Net",
            "iteration": "all",
            "saved_data": "tensor",
            "input_output": 1,
            "kernels": ["name-regex(Default/.+)"],
            "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
            "statistic_category": [],
            "file_format": "bin",
        },
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }


@pytest.mark.parametrize(("mode", "number"), [(["all"], 0), (["input"], 1), (["output"], 2)])
def test_data_mode(tmp_path: Path, mode: list[str], number: int) -> None:
    assert common(made(tmp_path, section={"data_mode": mode}))["input_output"] == number


@pytest.mark.parametrize("mode", [["forward"], ["backward"], ["forward", "input"]])
def test_a_kernel_has_no_direction(tmp_path: Path, mode: list[str]) -> None:
    with pytest.raises(ConfigError, match="data_mode"):
        made(tmp_path, section={"data_mode": mode})


def test_list_keeps_its_order(tmp_path: Path) -> None:
    names = ["MatMul", "Default/MatMul-op0", "name-regex(.*Mul.*)"]
    assert common(made(tmp_path, section={"list": names}))["kernels"] == names
    assert common(made(tmp_path))["dump_mode"] == 0


def test_steps_and_ranks(tmp_path: Path) -> None:
    found = common(made(tmp_path, step=[0, "2-3"], rank=[1, "4-5"]))
    assert found["iteration"] == "0|2-3" and found["support_device"] == [1, 4, 5]
    assert iterations(()) == "all" and iterations((7,)) == "7" and iterations((3, 1, 2, 9)) == "1-3|9"


def test_file_format_reaches_the_file(tmp_path: Path) -> None:
    assert common(made(tmp_path, section={"file_format": "bin"}))["file_format"] == "bin"
    assert common(made(tmp_path))["file_format"] == "npy"


def test_precision_and_device_reach_the_file(tmp_path: Path) -> None:
    def end(**changes: Any) -> Any:
        config = made(tmp_path, "statistics", {"device": changes.pop("device", "host")}, **changes)
        return settings(config, ASCEND, "/d")["e2e_dump_settings"]

    assert end() == {"enable": True, "trans_flag": True, "stat_calc_mode": "host", "device_stat_precision_mode": "low"}
    assert end(precision="high", device="device")["device_stat_precision_mode"] == "high"
    assert end(device="device")["stat_calc_mode"] == "device"


def test_statistics(tmp_path: Path) -> None:
    def found(mode: Any, machine: Machine = ASCEND) -> Any:
        section = {} if mode is None else {"summary_mode": mode}
        return common(made(tmp_path, "statistics", section), machine)["statistic_category"]

    assert found(None) == found("statistics") == ["max", "min", "avg", "l2norm"]
    assert found("md5") == ["hash:md5"]
    assert found("md5", Machine("2.7.0", "Ascend", "O0")) == ["md5"]
    assert found("md5", Machine("2.10.0", "Ascend", "O2")) == ["md5"]
    every = [
        "max", "min", "mean", "l2norm", "count", "negative zero count", "zero count", "positive zero count", "nan count",
        "negative inf count", "positive inf count", "hash", "md5",
    ]  # fmt: skip
    assert found(every) == [{"mean": "avg", "md5": "hash:md5"}.get(item, item) for item in every]
    assert found(["l2norm", "max"], Machine("2.10.0", "Ascend", "O2")) == ["l2norm", "max"]
    with pytest.raises(ConfigError, match="nan count"):
        found(["max", "nan count"], Machine("2.10.0", "Ascend", "O2"))


def test_what_the_device_does_not_compute(tmp_path: Path) -> None:
    config = made(tmp_path, "statistics", {"device": "device", "summary_mode": ["max", "count"]})
    assert settings(config, ASCEND, "/d")["e2e_dump_settings"]["stat_calc_mode"] == "host"
    assert "taken on the host" in ignored(config, ASCEND)[0]
    assert not ignored(made(tmp_path, "statistics", {"device": "device"}), ASCEND)


def test_the_whole_graph_of_o2_is_dumped_asynchronously(tmp_path: Path) -> None:
    config = made(tmp_path)
    machine = Machine("2.10.0", "Ascend", "O2")
    assert settings(config, machine, "/d")["e2e_dump_settings"]["enable"] is False
    assert file_name(config, machine) == "kernel_graph_dump.json" and file_name(config, ASCEND) == "kernel_kbyk_dump.json"


def test_exception_dump_has_the_name_of_the_requirement(tmp_path: Path) -> None:
    config = made(tmp_path, "exception_dump")
    path = Path(write(config, ASCEND, str(tmp_path / "dump")))
    assert path.name == "kernel_graph_exception_dump.json"
    found = json.loads(path.read_text(encoding="utf-8"))["common_dump_settings"]
    assert (found["op_debug_mode"], found["saved_data"], found["file_format"]) == (4, "tensor", "npy")
    assert found["iteration"] == "all" and found["path"] == str(tmp_path / "dump")
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("mode", "number"), [("aicore", 1), ("atomic", 2), ("all", 3), (None, 3)])
def test_overflow_check(tmp_path: Path, mode: str | None, number: int) -> None:
    config = made(tmp_path, "overflow_check", {"check_mode": mode} if mode else {})
    assert common(config)["op_debug_mode"] == number
    told = ignored(config, Machine("2.10.0", "Ascend", "O2"))
    assert bool(told) == (mode in ("aicore", "atomic")) and not ignored(config, Machine("2.2.14", "Ascend", "O2"))


def test_what_a_cpu_would_do_otherwise_is_not_asked_of_it(tmp_path: Path) -> None:
    for task in ("statistics", "exception_dump", "overflow_check"):
        assert "on a CPU" in refused(made(tmp_path, task), CPU) or "on Ascend only" in refused(made(tmp_path, task), CPU)
    assert refused(made(tmp_path), CPU) == ""
    assert refused(made(tmp_path, "statistics"), ASCEND) == refused(made(tmp_path, "exception_dump"), ASCEND) == ""


def test_jit_levels(tmp_path: Path) -> None:
    overflow, exception = made(tmp_path, "overflow_check"), made(tmp_path, "exception_dump")
    assert refused(overflow, ASCEND) == 'task overflow_check works at jit_level "O2" only, and it is "O0"'
    assert refused(overflow, WHOLE) == refused(exception, ASCEND) == ""
    assert refused(exception, WHOLE).endswith('works in graph mode at jit_level "O0" or "O1" only, and it is "O2"')


def test_a_jit_level_that_nobody_has_set_counts_too(tmp_path: Path) -> None:
    pieces, whole = replace(ASCEND, level_set=False), replace(WHOLE, level_set=False)
    told = refused(made(tmp_path, "overflow_check"), pieces)
    assert told == 'task overflow_check works at jit_level "O2" only, and it is "O0" here where nobody sets it'
    assert refused(made(tmp_path, "exception_dump"), whole).endswith('and it is "O2" here where nobody sets it')
    assert refused(made(tmp_path, "overflow_check"), whole) == refused(made(tmp_path, "exception_dump"), pieces) == ""


def test_in_pynative_mode_exceptions_are_looked_for_at_any_jit_level(tmp_path: Path) -> None:
    for level in ("O0", "O2", ""):
        machine = replace(ASCEND, jit_level=level, graph=False)
        assert refused(made(tmp_path, "exception_dump"), machine) == uncertain(made(tmp_path, "exception_dump"), machine) == ""
        assert settings(made(tmp_path, "exception_dump"), machine, "/d")["e2e_dump_settings"]["enable"] is True
        assert refused(made(tmp_path, "overflow_check"), machine) == "task overflow_check works in graph mode only"


@pytest.mark.parametrize(
    ("task", "what"), [("overflow_check", '"O2" only'), ("exception_dump", '"O0" or "O1" only'), ("tensor", "are those of")]
)
def test_a_jit_level_that_is_not_known_is_told(tmp_path: Path, task: str, what: str) -> None:
    unknown = replace(ASCEND, jit_level="", level_set=False)
    config = made(tmp_path, task)
    assert refused(config, unknown) == "" and uncertain(config, ASCEND) == uncertain(config, WHOLE) == ""
    assert uncertain(config, unknown).startswith("jit_level is not set, and MindSpore does not say which one Ascend takes: ")
    assert what in uncertain(config, unknown)


def test_types_of_operators_are_told_where_they_select_nothing(tmp_path: Path) -> None:
    config = made(tmp_path, section={"list": ["MatMul", "Default/MatMul-op0", "name-regex(Default/.+)", "BiasAdd", "MatMul-op0"]})
    (told,) = ignored(config, WHOLE)
    assert told.startswith('MatMul, BiasAdd in "list" (types of operators are for jit_level O0 and O1')
    assert not ignored(config, ASCEND) and not ignored(config, replace(CPU, jit_level="O2"))  # on a CPU they work there, too
    assert not ignored(made(tmp_path, section={"list": ["Default/MatMul-op0"]}), WHOLE)


def test_settings_that_a_cpu_does_not_look_at_are_told(tmp_path: Path) -> None:
    text = " ".join(ignored(made(tmp_path, section={"file_format": "bin"}, rank=[1]), CPU))
    assert "rank" in text and "file_format" in text
    assert not ignored(made(tmp_path), CPU)
    assert "jit" in " ".join(ignored(made(tmp_path), Machine("2.10.0", "CPU", "O0", graph=False)))


def test_ranks_on_a_cpu(tmp_path: Path) -> None:
    """There MindSpore does not look at `support_device`."""
    config = made(tmp_path, rank=[1])
    assert refused(config, replace(CPU, rank=0)) == '"rank" does not select rank 0 of this node'
    assert refused(config, replace(CPU, rank=1)) == "" and not ignored(config, replace(CPU, rank=1))
    assert refused(config, replace(ASCEND, rank=0)) == ""
    assert common(config)["support_device"] == [1]


def test_devices_without_rank(tmp_path: Path) -> None:
    assert common(made(tmp_path))["support_device"] == list(range(8))
    assert common(made(tmp_path), replace(ASCEND, devices=16))["support_device"] == list(range(16))
    assert common(made(tmp_path, rank=[12]), replace(ASCEND, devices=16))["support_device"] == [12]


def test_values_that_were_written_are_seen_and_others_are_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def told(name: str, old: bool = False) -> bool:
        caplog.clear()
        settings_file = tmp_path / "kernel_kbyk_dump.json"
        settings_file.touch()
        written, file = Written(str(tmp_path), str(settings_file)), tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if old:
            os.utime(file, (1, 1))
        written.tell()
        file.unlink()
        return any(record.getMessage().startswith("nothing was recorded") for record in caplog.records)

    assert told("kernel_kbyk_dump.json") and told("rank_0/execution_order/a.csv") and told("rank_0/.dump_metadata/config.json")
    assert told("rank_0/Net/0/0/of_an_earlier_run.npy", old=True)
    assert not told("rank_0/Net/0/0/MatMul.npy") and not told("rank_0/Net/0/0/statistic.csv")
