"""The file that tells merge_result which calls and which columns to take."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, NamedTuple

from msprobe.comparison.yaml_file import read_yaml
from msprobe.errors import UsageError

_KEYS = ("api", "compare_index")


class MergeConfig(NamedTuple):
    """What to merge.

    Attributes:
        api: begins of the names of calls (`Distributed.all_reduce`), all calls where empty.
        compare_index: columns, those with a measurement where empty.
    """

    api: tuple[str, ...] = ()
    compare_index: tuple[str, ...] = ()

    def takes(self, name: str) -> str | None:
        """Which of `api` a row belongs to; "" when all are taken, None when it is left out.

        A name counts from a dot on and to a dot: `mul` takes `Torch.mul.0.forward.input.0` and not `Torch.matmul.…`.
        """
        if not self.api:
            return ""
        return next((api for api in self.api if f".{api}." in f".{name}."), None)


def read_config(path: Path) -> MergeConfig:
    """Reads it: YAML with `api` and `compare_index`, a list each; what is missing or empty means all.

    Raises:
        UsageError: it does not exist, is no such file, or names an unknown key.
    """
    content = read_yaml(path, "configuration")
    if content is None:
        return MergeConfig()
    if not isinstance(content, dict):
        raise UsageError(f"the configuration {path} must hold the keys {' and '.join(_KEYS)}, a list each")
    for key in content:
        if key not in _KEYS:
            close = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(_KEYS)}"
            raise UsageError(f"the configuration {path} has an unknown key {key!r}; {hint}")
    return MergeConfig(*(_texts(content.get(key), key, path) for key in _KEYS))


def _texts(value: Any, key: str, path: Path) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UsageError(f"{key} in {path} must be a list of names, as in\n{key}:\n- Distributed.all_reduce")
    return tuple(dict.fromkeys(one.strip().strip(".") for one in value))
