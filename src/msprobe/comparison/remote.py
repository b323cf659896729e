"""Dumps that lie where only fsspec reaches (`s3://`, `gs://`, `memory://` ...): listed here, fetched where they are compared.

Needs fsspec, of the extra `msprobe[cluster]`, and what fsspec itself needs for the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, cast

from msprobe.comparison.inputs import DumpPair, Plan, make_plan
from msprobe.comparison.judging.reference import with_reference
from msprobe.comparison.temporary import temporary_directory
from msprobe.errors import UsageError
from msprobe.format import layout

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_KEPT = frozenset({layout.DUMP, layout.DEBUG})
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "oss": "ossfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "hdfs": "pyarrow",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
}
"""Protocol -> what fsspec needs for it."""


class UrlPath(PurePosixPath):
    """The path of a remote file, for messages; keeps the two slashes that a path would make one."""

    def __str__(self) -> str:
        return re.sub(r"\A([a-zA-Z0-9+.-]+):/(?!/)", r"\1://", super().__str__())


def is_url(path: str | Path) -> bool:
    """Whether a path is one for fsspec. A Path has lost one of the two slashes."""
    return _URL.match(str(path)) is not None and not Path(path).exists()


def local_path(path: str | Path) -> str | Path:
    """A `file://` URL as the path it means; anything else as it is."""
    text = str(path)
    return re.sub(r"\Afile:/+", "/", text) if text.startswith("file:/") else path


def plan_of(target: str | Path, golden: str | Path, options: Any) -> tuple[Plan, dict[int, tuple[str, ...]]]:
    """The plan of paths of which at least one is a URL (of target, golden dump and reference), and for each of its pairs (by its place)
    the two or three directories to fetch.

    Raises UsageError as make_plan does, and where fsspec is missing or cannot reach a path.
    """
    with temporary_directory() as temporary:
        paths = {"target": target, "golden": golden}
        if options.reference is not None:
            paths["reference"] = options.reference
        stand_ins = [_stand_in(path, Path(temporary, side)) for side, path in paths.items()]
        roots = [(local, shown) for local, shown in stand_ins if local != shown]
        try:
            plan = make_plan(Path(stand_ins[0][0]), Path(stand_ins[1][0]), options.steps, options.ranks)
            if options.reference is not None:
                plan = with_reference(plan, Path(stand_ins[0][0]), Path(stand_ins[2][0]))
        except UsageError as error:
            raise UsageError(_shown(str(error), roots)) from None
    urls: dict[int, tuple[str, ...]] = {}
    pairs: list[DumpPair] = []
    for place, pair in enumerate(plan.pairs):
        files = [pair.target, pair.golden, *([pair.reference] if pair.reference is not None else [])]
        texts = [_shown(str(path), roots) for path in files]
        urls[place] = tuple(text.rpartition("/")[0] for text in texts)
        there = [*map(_path, texts), None]
        pairs.append(replace(pair, target=_path(texts[0]), golden=_path(texts[1]), reference=there[2]))
    problems, notes = (tuple(_shown(text, roots) for text in texts) for texts in (plan.problems, plan.notes))
    return replace(plan, pairs=tuple(pairs), problems=problems, notes=notes), urls


def fetch(url: str, into: Path) -> None:
    """Copies one dump directory, with its tensor files, to a local one. A local path is linked. Raises UsageError."""
    if not is_url(url):
        into.symlink_to(Path(url).absolute(), target_is_directory=True)
        return
    with _told(url) as system:
        root = system._strip_protocol(url)
        into.mkdir(parents=True)
        for path in system.find(root):
            file = into / _inside(path, root)
            file.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(path, str(file))


def _stand_in(path: str | Path, into: Path) -> tuple[str, str]:
    """A local path with the same dump files in it, all empty, and what it is called in messages."""
    path = local_path(path)
    if not is_url(path):
        return str(path), str(path)
    url = re.sub(r"\A([a-zA-Z0-9+.-]+):/+", r"\1://", str(path)).rstrip("/")
    with _told(url) as system:
        root = system._strip_protocol(url)
        if system.isfile(root):
            root = root.rpartition("/")[0]
            url = url.rpartition("/")[0]
        found = [file for file in system.find(root) if file.rpartition("/")[2] in _KEPT]
        if not found:
            raise UsageError(f"the path {url} does not exist, or holds no dump: no {layout.DUMP} in it")
        for file in found:
            local = into / _inside(file, root)
            local.parent.mkdir(parents=True, exist_ok=True)
            local.touch()
    return str(into), url


def _inside(path: str, root: str) -> Path:
    """The rest of a path below `root`; a name that would lead out of it is refused."""
    rest = PurePosixPath(str(path).removeprefix(root).lstrip("/"))
    if ".." in rest.parts:
        raise UsageError(f"{path} leaves its directory; it was not fetched")
    return Path(rest)


@contextmanager
def _told(url: str) -> Iterator[Any]:
    """The file system of a URL. What goes wrong with it becomes a UsageError."""
    try:
        fsspec = import_module("fsspec")
    except ImportError:
        raise UsageError(f"{url} is read with fsspec, which is not installed: pip install fsspec") from None
    try:
        yield fsspec.core.url_to_fs(url)[0]
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(_needs(url, error)) from None
    except Exception as error:  # every file system has errors of its own
        raise UsageError(f"{url} cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else error!r}") from None


def _needs(url: str, error: ImportError) -> str:
    """What fsspec lacks for a protocol: it knows the package by name, and says so in words of its own."""
    protocol = url.partition(":")[0]
    package = _PACKAGES.get(protocol) or error.name or ""
    if package in _PACKAGES.values() and find_spec(package) is not None:
        cause = error.__cause__ or error
        return (
            f"{url} cannot be read: {package} is installed, and importing it failed: {type(cause).__name__}: {' '.join(str(cause).split())}"
        )
    how = f": pip install {package}" if package else f"; fsspec says: {' '.join(str(error).split())}"
    return f"{url} needs {package or 'a package'} besides fsspec for {protocol}://, which is not installed{how}"


def _shown(text: str, roots: list[tuple[str, str]]) -> str:
    for local, shown in roots:
        text = text.replace(local, shown)
    return text


def _path(text: str) -> Path:
    return cast(Path, UrlPath(text)) if is_url(text) else Path(text)
