"""Dumps that lie where only fsspec reaches, and pairs compared by the workers of a Dask cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import read_csv, tensor_call, truncated, write_dump
from comparison.test_jobs import roots
from msprobe.cli.main import main
from msprobe.comparison import remote
from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, problems
from msprobe.comparison.options import Options
from msprobe.errors import UsageError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty file system in memory."""
    system = fsspec.filesystem("memory")
    for path in system.ls("/", detail=False):
        system.rm(path, recursive=True)
    yield system


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster of two workers, threads of this process, which see its file system in memory."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp") as cluster:
        yield cluster.scheduler_address


def uploaded(system: Any, directory: Path, to: str) -> str:
    system.put(str(directory), to, recursive=True)
    return f"memory:/{to}"


def test_roots_in_memory(tmp_path: Path, memory: Any) -> None:
    target, golden = roots(tmp_path)
    local = compare(target, golden, tmp_path / "local")
    far = compare(uploaded(memory, target, "/runs/t"), uploaded(memory, golden, "/runs/g"), tmp_path / "far")
    assert [report.counts for report in far.reports] == [report.counts for report in local.reports]
    for ours, theirs in zip(local.reports, far.reports, strict=True):
        assert ours.csv is not None and theirs.csv is not None and ours.csv.read_bytes() == theirs.csv.read_bytes()
    assert far.summary is not None
    assert next(row["Target"] for row in read_csv(far.summary)) == "memory://runs/t/step0/rank0/dump.json"
    assert not any("msprobe-" in line.text for line in describe(far))


def test_tensor_files_and_a_local_side(tmp_path: Path, memory: Any) -> None:
    golden = tensor_call(tmp_path / "golden", [1.0, 2.0])
    tensor_call(tmp_path / "target", [1.0, 2.5])
    outcome = compare(uploaded(memory, tmp_path / "target", "/t") + "/dump.json", golden, tmp_path / "out")
    assert outcome.reports[0].mode == "tensor" and outcome.reports[0].counts["error"] == 1


def test_the_command(tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    url = uploaded(memory, tensor_call(tmp_path / "a", [1.0, 2.0]).parent, "/a")
    assert main(["compare", "-tp", url, "-gp", url, "-o", str(tmp_path / "out")]) == 0
    assert "No difference" in capsys.readouterr().out


def test_what_is_wrong_is_told_by_its_url(tmp_path: Path, memory: Any) -> None:
    target, golden = roots(tmp_path)
    (target / "step0" / "rank0" / "dump.json").write_text("{")
    truncated(tensor_call(tmp_path / "x", [1.0]).parent / "dump_tensor_data" / "Torch.op.0.forward.output.0.pt")
    outcome = compare(uploaded(memory, target, "/t"), uploaded(memory, golden, "/g"), tmp_path / "out")
    assert [problem.partition(" is ")[0] for problem in problems(outcome)] == ["step0 rank0: memory://t/step0/rank0/dump.json"]
    x = uploaded(memory, tmp_path / "x", "/x")
    outcome = compare(x, x, tmp_path / "out")
    assert "memory://x/dump_tensor_data/" in outcome.reports[0].lost_example


def test_what_is_left_out_is_named_by_its_url(tmp_path: Path, memory: Any) -> None:
    target, golden = roots(tmp_path)
    for name in ("step0/rankx", "step0/rank0.proc3"):
        tensor_call(target / name, [1.0])
    outcome = compare(uploaded(memory, target, "/t"), uploaded(memory, golden, "/g"), tmp_path / "out")
    assert [note.partition(" ")[0] for note in outcome.plan.notes] == ["memory://t/step0/rank0.proc3", "memory://t/step0/rankx"]
    assert outcome.plan.notes[0].endswith("such as memory://g/step0/rank0")


def test_nothing_there(tmp_path: Path, memory: Any) -> None:
    with pytest.raises(UsageError, match=r"memory://nowhere .*no dump\.json in it"):
        compare("memory://nowhere", tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match=r"nonsense://x cannot be read: .*nonsense"):
        compare("nonsense://x", "nonsense://x", tmp_path / "out")


def test_a_name_that_leads_out_is_refused(tmp_path: Path, memory: Any) -> None:
    uploaded(memory, tensor_call(tmp_path / "a", [1.0]).parent, "/a")
    memory.store["/a/../../evil"] = next(iter(memory.store.values()))
    with pytest.raises(UsageError, match="leaves its directory"):
        remote.fetch("memory://a", tmp_path / "into")
    del memory.store["/a/../../evil"]


def test_file_urls_are_paths(tmp_path: Path) -> None:
    target, golden = roots(tmp_path)
    outcome = compare(f"file://{target}", f"file://{golden}", tmp_path / "out")
    assert len(outcome.reports) == 4 and str(outcome.reports[0].pair.target) == str(target / "step0" / "rank0" / "dump.json")


def test_a_reference_that_lies_elsewhere(tmp_path: Path, memory: Any) -> None:
    """Its dumps are fetched like those of the two others, whichever of the three are URLs."""
    target, golden = roots(tmp_path)
    here = compare(target, golden, tmp_path / "here", Options(reference=str(golden)))
    far = uploaded(memory, golden, "/r")
    for place, paths in enumerate(((target, golden), (uploaded(memory, target, "/t"), golden))):
        outcome = compare(*paths, tmp_path / f"far{place}", Options(reference=far))
        assert [report.truth for report in outcome.reports] == [report.truth for report in here.reports] != [None] * 4
        for ours, theirs in zip(here.reports, outcome.reports, strict=True):
            assert ours.csv is not None and theirs.csv is not None and theirs.csv.read_bytes() == ours.csv.read_bytes()
        assert not any("/msprobe-" in note for report in outcome.reports for note in report.notes)
    with pytest.raises(UsageError, match="memory://nowhere does not exist, or holds no dump"):
        compare(target, golden, tmp_path / "o", Options(reference="memory://nowhere"))


def test_without_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match="pip install fsspec"):
        compare("s3://bucket/run", "s3://bucket/run", tmp_path / "out")


@pytest.mark.parametrize(("protocol", "package"), [("s3", "s3fs"), ("other", "driver"), ("unknown", "")])
def test_a_protocol_whose_package_is_not_installed(protocol: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install it\nto access it", name=package or None)

    monkeypatch.setattr(remote, "find_spec", lambda name: None)
    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(UsageError) as caught:
        compare(f"{protocol}://bucket/run", f"{protocol}://bucket/run", tmp_path / "out")
    said = f"pip install {package}" if package else "a package besides fsspec for unknown://, which is not installed; fsspec says: "
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_that_is_installed_and_broken_is_not_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(url: str) -> None:
        raise ImportError("Install s3fs to access S3") from ImportError("cannot import name 'x'\nfrom 'y'")

    monkeypatch.setattr(remote, "find_spec", lambda name: name)
    monkeypatch.setattr(fsspec.core, "url_to_fs", broken)
    with pytest.raises(UsageError) as caught:
        compare("s3://bucket/run", "s3://bucket/run", tmp_path / "out")
    assert str(caught.value) == (
        "s3://bucket/run cannot be read: s3fs is installed, and importing it failed: ImportError: cannot import name 'x' from 'y'"
    )


def test_on_a_cluster(tmp_path: Path, memory: Any, scheduler: str) -> None:
    target, golden = roots(tmp_path)
    (target / "step1" / "rank1" / "dump.json").write_text("{")
    local = compare(target, golden, tmp_path / "local")
    seen: list[int] = []
    options = Options(cluster=scheduler, reports=frozenset({"jsonl"}))
    urls = uploaded(memory, target, "/t"), uploaded(memory, golden, "/g")
    far = compare(*urls, tmp_path / "far", options, lambda done, total, what: seen.append(done))
    assert seen == [1, 2, 3, 4]
    assert [report.counts for report in far.reports] == [report.counts for report in local.reports]
    assert [failure.pair.title for failure in far.failures] == ["step1 rank1"]
    for ours, theirs in zip(local.reports, far.reports, strict=True):
        assert ours.csv is not None and theirs.csv is not None and theirs.jsonl is not None
        assert theirs.csv.read_bytes() == ours.csv.read_bytes()
        assert theirs.csv.parent == theirs.jsonl.parent == tmp_path / "far" / ours.csv.parent.name
    assert far.exit_code == 2


def test_workers_that_are_processes(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    target, golden = roots(tmp_path)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        outcome = compare(f"file://{target}", golden, tmp_path / "out", Options(cluster=cluster.scheduler_address))
    assert len(outcome.reports) == 4 and [report.pair for report in outcome.reports] == list(outcome.plan.pairs)
    assert all(report.csv is not None and report.csv.exists() for report in outcome.reports)


def test_one_pair_on_a_cluster_that_cannot_be_read(tmp_path: Path, scheduler: str) -> None:
    path = write_dump(tmp_path / "a", {})
    with pytest.raises(UsageError, match="nothing was recorded"):
        compare(path, path, tmp_path / "out", Options(cluster=scheduler))


def test_no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    from msprobe.comparison import cluster

    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    path = str(tensor_call(tmp_path / "a", [1.0]))
    assert main(["compare", "-tp", path, "-gp", path, "-o", str(tmp_path / "out"), "--cluster", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_without_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = str(tensor_call(tmp_path / "a", [1.0]))
    assert main(["compare", "-tp", path, "-gp", path, "-o", str(tmp_path / "out"), "--cluster", "tcp://x:1"]) == 2
    assert "--cluster needs Dask, which is not installed: pip install 'dask[distributed]' fsspec" in capsys.readouterr().err
