"""From a path to the JSON object in the file, with messages that say where it is broken."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

from msprobe.config.messages import printable, show
from msprobe.config.paths import current_directory
from msprobe.errors import ConfigError

_LARGEST_FILE = 16 << 20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_object(path: str, warn: Callable[[str], None]) -> dict[str, Any]:
    """Reads a UTF-8 JSON file, with or without byte-order mark, whose root is an object.

    `warn` gets a line for each name that appears twice in one object (the last one counts).
    Raises ConfigError: no such file, not a file, unreadable, not UTF-8, not JSON, not an object.
    """
    text = _decode(path, _read(path))

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        twice: dict[str, None] = {}
        for name, value in items:
            if name in result:
                twice[name] = None
            result[name] = value
        for name in twice:
            warn(f"{printable(path)}: {show(name)} appears more than once in one object: the last value counts")
        return result

    try:
        found = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise ConfigError(_broken(path, text, error)) from None
    except RecursionError:
        raise ConfigError(f"{printable(path)}: the objects and lists in it are nested too deeply") from None
    except ValueError:
        raise ConfigError(f"{printable(path)}: contains a number with too many digits") from None
    if not isinstance(found, dict):
        raise ConfigError(f'{printable(path)}: must contain one JSON object, such as {{"task": "statistics"}}, but contains {show(found)}')
    return found


def _read(path: str) -> bytes:
    shown = printable(path)
    hint = "check the path, or leave config_path out to use the defaults"
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{shown or show(path)}: no such file (looked in {current_directory()}); {hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{shown}: is a directory, config_path must name the file in it") from None
    except PermissionError:
        raise ConfigError(f"{shown}: no permission to read this file") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read ({error.strerror or error}); {hint}") from None
    except ValueError:
        raise ConfigError(f"config_path is {show(path)}: not a possible file name; {hint}") from None
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{shown}: larger than {_LARGEST_FILE >> 20} MB, this cannot be a configuration file")
    return data


def _decode(path: str, data: bytes) -> str:
    if data.startswith(_UTF16):
        raise ConfigError(f"{printable(path)}: is in UTF-16, save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{printable(path)}: is not UTF-8 (line {line}, byte 0x{data[error.start]:02x}), save it as UTF-8") from None


def _broken(path: str, text: str, error: json.JSONDecodeError) -> str:
    hint = _hint(text, error)
    return f"{printable(path)}: not valid JSON at line {error.lineno}, column {error.colno}: {hint or error.msg}"


def _hint(text: str, error: json.JSONDecodeError) -> str | None:
    """What is probably wrong; the parser's own words differ between Python versions and rarely say it."""
    here, before = text[error.pos :], text[: error.pos].rstrip()
    ahead = here.lstrip()
    if not text.strip():
        return 'the file is empty, it must contain at least {"dump_path": "..."}'
    if ahead.startswith(("//", "/*", "#")):
        return "JSON has no comments, remove the comment"
    if (before.endswith(",") and ahead[:1] in ("}", "]")) or (ahead.startswith(",") and ahead[1:].lstrip()[:1] in ("}", "]")):
        return "remove the comma before the closing bracket"
    if not ahead:
        return "the file ends too early, a closing bracket is missing"
    if error.msg.startswith("Unterminated string"):
        return "the closing double quote of a string is missing"
    if error.msg.startswith("Invalid \\escape"):
        return 'a backslash in a string must be written twice ("\\\\"), or use / in paths'
    if error.msg.startswith("Invalid control character"):
        return "the closing double quote of a string is missing, or there is a line break or tab in it"
    if error.msg.startswith("Extra data"):
        return "there is something after the end of the object"
    if ahead.startswith("'"):
        return 'use double quotes (") around names and strings'
    word = re.match(r"[A-Za-z_]\w*", ahead)
    if word:
        json_word = {"True": "true", "False": "false", "None": "null"}.get(word[0])
        return f"write {json_word} instead of {word[0]}" if json_word else f"put double quotes around {word[0]}"
    if "delimiter" in error.msg:
        wanted = "a colon (:)" if "':'" in error.msg else "a comma"
        return f"{wanted} is missing before this place"
    return None
