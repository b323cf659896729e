"""Tensor files that try something: none is executed, each gets a reason."""

from __future__ import annotations

import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file
from msprobe.format.safe_pickle import Refused, TensorView, tensor_view
from msprobe.format.torch_zip import frame, tensor_pickle

GOOD = tensor_pickle("float32", (2, 3))


def archive(path: Path, pickled: bytes = GOOD, data: bytes = bytes(24), compression: int = zipfile.ZIP_STORED, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/data/0", data)
        for name, content in more.items():
            file.writestr(f"archive/{name}", content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DumpFormatError) as caught:
        tensor_file.read(path)
    text = str(caught.value)
    assert text.startswith(f"{path} cannot be read")
    assert "\n" not in text
    return text


def test_the_good_archive_is_good(tmp_path: Path) -> None:
    assert tensor_file.read(archive(tmp_path / "x.pt")).shape == (2, 3)


class Attack:
    """Unpickled by pickle.load, this leaves a file behind."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.trace}'",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_in_a_pickle_is_not_run(protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    pickled = pickle.dumps(Attack(trace), protocol)
    text = refusal(archive(tmp_path / "x.pt", pickled))
    assert "system" in text or "opcode" in text
    refusal(archive(tmp_path / "x.pt", pickle.dumps({"tensor": [1, Attack(trace)]}, protocol)))
    (tmp_path / "raw.pt").write_bytes(pickled)
    assert "neither a zip archive" in refusal(tmp_path / "raw.pt")
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval",
        "os system",
        "torch load",
        "torch.serialization load",
        "torch Tensor",
        "collections defaultdict",
        "torch._utils x",
        "torch ",
    ],
)
def test_only_the_known_names(name: str) -> None:
    module, attribute = name.split(" ")
    with pytest.raises(Refused, match="it asks for"):
        tensor_view(b"\x80\x02c" + module.encode() + b"\n" + attribute.encode() + b"\n)R.")


@pytest.mark.parametrize("function", ["torch FloatStorage", "torch float8_e5m2", "torch.storage UntypedStorage"])
def test_known_names_that_are_no_functions_are_not_called(function: str) -> None:
    with pytest.raises(Refused, match="no way to make a plain tensor"):
        tensor_view(b"\x80\x02c" + function.replace(" ", "\n").encode() + b"\n)R.")


@pytest.mark.parametrize("opcode", sorted(set(range(256)) - set(b"\x80\x95c\x93X\x8cKMJ\x8a(t)\x85\x86\x87\x88\x89N}]suaeqr\x94hjQR.")))
def test_every_other_opcode_is_refused(opcode: int) -> None:
    with pytest.raises(Refused, match="opcode"):
        tensor_view(b"\x80\x02" + bytes([opcode]) + b"\n\n....")


def test_every_cut_pickle_is_refused() -> None:
    assert isinstance(tensor_view(GOOD), TensorView)
    for length in range(len(GOOD)):
        with pytest.raises(Refused):
            tensor_view(GOOD[:length])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_pickles_are_refused_or_read(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(GOOD)
    for position, value in changes:
        damaged[position] = value
    try:
        assert isinstance(tensor_view(bytes(damaged)), TensorView)
    except Refused:
        pass


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([bytes([code]) for code in b"(t)\x85\x86\x87\x88\x89N}]suaeQR."] + [b"K\0", b"X\0\0\0\0", b"q\0", b"h\0"])))
def test_any_program_ends(program: list[bytes]) -> None:
    with pytest.raises(Refused):
        tensor_view(b"\x80\x02" + b"".join(program))


def test_numbers_out_of_range() -> None:
    for bad in (b"K\x05K\x02K\x03", b"J\xff\xff\xff\xff", b"\x88", b"N", b"X\1\0\0\0a"):
        with pytest.raises(Refused):
            tensor_view(GOOD.replace(b"QK\x00(K\x02K\x03t", b"QK\x00(" + bad + b"t", 1))
        with pytest.raises(Refused):
            tensor_view(GOOD.replace(b"QK\x00", b"Q" + bad, 1))
    with pytest.raises(Refused, match="beyond 64 bits"):
        tensor_view(b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".")


def test_a_pickle_that_grows(tmp_path: Path) -> None:
    """Tuples of tuples by memo: small in the file, 2**4000 leaves when walked."""
    bomb = b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 4000 + b"."
    assert "a tuple instead of a tensor" in refusal(archive(tmp_path / "x.pt", bomb))
    assert "more than any plain tensor needs" in refusal(archive(tmp_path / "y.pt", b"\x80\x02" + b"N" * 70_000 + b"."))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), "lazily conjugated"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, "lazily conjugated or negated"),
        (lambda: torch.ones(2).to_sparse(), "sparse"),
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: {"weight": torch.ones(2)}, "a dictionary instead of a tensor"),
        (lambda: [torch.ones(2), 3], "a list instead of a tensor"),
        (lambda: (torch.ones(2),), "a tuple instead of a tensor"),
        (lambda: 3, "type int instead of a tensor"),
        (lambda: None, "type NoneType"),
        (lambda: torch.float32, r"torch\.float32"),
        (lambda: torch.nn.Linear(2, 2), "asks for"),
    ],
)
def test_what_is_no_plain_tensor_is_named(make: Any, reason: str, tmp_path: Path) -> None:
    torch.save(make(), tmp_path / "x.pt")
    with pytest.raises(DumpFormatError, match=reason):
        tensor_file.read(tmp_path / "x.pt")


def test_tensor_with_attributes_and_legacy_files(tmp_path: Path) -> None:
    tensor = torch.ones(2)
    torch.save(tensor, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "neither a zip archive" in refusal(tmp_path / "old.pt")
    tensor.note = "x"  # type: ignore[attr-defined]
    torch.save(tensor, tmp_path / "x.pt")
    assert "attributes" in refusal(tmp_path / "x.pt")


def test_compressed_archives_are_not_inflated(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "x.pt", data=bytes(100 << 20), compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    assert "compressed" in refusal(bomb)


def test_sizes_beyond_the_file(tmp_path: Path) -> None:
    assert "should have 24 bytes and has 23" in refusal(archive(tmp_path / "a.pt", data=bytes(23)))
    assert "should have" in refusal(archive(tmp_path / "b.pt", tensor_pickle("float64", (1 << 40,))))
    offset = GOOD.replace(b"QK\x00", b"QK\x01", 1)
    assert "beyond its storage" in refusal(archive(tmp_path / "c.pt", offset))
    stride = GOOD.replace(b"(K\x03K\x01t", b"(K\x04K\x01t", 1)
    assert "beyond its storage" in refusal(archive(tmp_path / "d.pt", stride))
    repeated = tensor_pickle("float32", (1 << 20, 1 << 20)).replace(b"(J\0\0\x10\0K\x01t", b"(K\0K\0t", 1)
    repeated = repeated.replace(b"\x8a\x06\0\0\0\0\0\x01", b"K\x06", 1)
    assert "repeats its 24 bytes" in refusal(archive(tmp_path / "e.pt", repeated))


def test_every_cut_file_is_noticed(tmp_path: Path) -> None:
    tensor_file.write(str(tmp_path / "x.pt"), "float32", (2, 3), bytes(24))
    raw = (tmp_path / "x.pt").read_bytes()
    for length in range(len(raw)):
        (tmp_path / "x.pt").write_bytes(raw[:length])
        refusal(tmp_path / "x.pt")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_files_are_refused_or_read(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    around = frame("float32", (2, 3))
    raw = bytearray(around.head + bytes(24) + around.tail)
    for position, value in changes:
        raw[position % len(raw)] = value
    (tmp_path / "x.pt").write_bytes(raw)
    try:
        tensor_file.read(tmp_path / "x.pt")
    except DumpFormatError:
        pass


def test_record_offsets_that_lie(tmp_path: Path) -> None:
    tensor_file.write(str(tmp_path / "x.pt"), "float32", (2, 3), bytes(24))
    raw = bytearray((tmp_path / "x.pt").read_bytes())
    entry = raw.rfind(b"PK\1\2")
    raw[entry + 42 : entry + 46] = struct.pack("<L", 5)
    (tmp_path / "x.pt").write_bytes(raw)
    assert "not where" in refusal(tmp_path / "x.pt")


def test_two_records_of_one_name(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/data/0", bytes(24))
    assert "two records" in refusal(path)
    path = archive(tmp_path / "y.pt")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("other/data.pkl", GOOD)
    assert "more than one data.pkl" in refusal(path)


def test_other_archives(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as file:
        file.writestr("readme.txt", "hello")
    assert "without a data.pkl" in refusal(tmp_path / "x.pt")
    assert "big-endian" in refusal(archive(tmp_path / "y.pt", byteorder=b"big"))
    assert "no record data/7" in refusal(archive(tmp_path / "z.pt", GOOD.replace(b"X\1\0\0\x000", b"X\1\0\0\x007")))


def test_storage_names_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    for key in ("../../secret", "/etc/passwd", "0/../0", ""):
        pickled = GOOD.replace(b"X\1\0\0\x000", b"X" + struct.pack("<L", len(key)) + key.encode())
        assert "no proper name" in refusal(archive(tmp_path / "x.pt", pickled))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "no regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refusal(tmp_path / "pipe")
    assert "No such file" in refusal(tmp_path / "missing")
    (tmp_path / "empty").touch()
    assert "it is empty" in refusal(tmp_path / "empty")


def test_a_hostile_file_needs_no_more_memory_than_its_size(tmp_path: Path) -> None:
    """A view that repeats itself to 200 GiB, read by a process that may have one."""
    pickled = (
        tensor_pickle("float32", (1 << 18, 1 << 18))
        .replace(b"(J\0\0\4\0K\x01t", b"(K\0K\0t", 1)
        .replace(b"\x8a\x05\0\0\0\0\x10", b"K\x06", 1)
    )
    path = archive(tmp_path / "x.pt", pickled)
    code = (
        "import sys, numpy\n"
        f"sys.path.insert(0, {str(Path(tensor_file.__file__).parents[2])!r})\n"
        "from msprobe.format import tensor_file\n"
        "try: tensor_file.read(sys.argv[1])\n"
        "except Exception as problem: sys.exit(0 if 'repeats' in str(problem) else str(problem))\n"
        "sys.exit('was read')"
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    result = subprocess.run([sys.executable, "-c", code, str(path)], preexec_fn=limit, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
