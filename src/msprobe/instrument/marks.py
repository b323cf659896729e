"""The marks by which `msprobe disable` knows the lines that `msprobe enable` has put in.

`debugger.stop()  # +msprobe 1a2b` is a line of ours. `# +msprobe 1a2b was: if bad: continue` says what the next line was before it was
changed. The four digits are a checksum of what was written, so that lines edited since are told apart. Neither depends on the
indentation or on the number of the line: both may change.
"""

from __future__ import annotations

import re
import zlib

from msprobe.instrument.source import line_end

_OURS = re.compile(r"(?P<indent>[ \t\f]*)(?P<code>.*?)  # \+msprobe (?P<sum>[0-9a-f]{4})[ \t]*")
_WAS = re.compile(r"(?P<indent>[ \t\f]*)# \+msprobe (?P<sum>[0-9a-f]{4}) was: (?P<code>.*)", re.DOTALL)
ANY = "# +msprobe "
"""What every marked line contains."""


def _checksum(*parts: str) -> str:
    return f"{zlib.crc32(chr(0).join(parts).encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"


def mark(code: str) -> str:
    """A line of ours, without indentation and line end."""
    return f"{code}  {ANY}{_checksum(code)}"


def was(old: str, new: str) -> str:
    """The comment in front of a line that was changed from `old` to `new`, both without indentation and line end."""
    return f"{ANY}{_checksum(old.rstrip(), new.rstrip())} was: {old}"


def ours(line: str) -> bool:
    """Whether we have put this line in, and nobody has edited it since."""
    found = _OURS.fullmatch(line.rstrip("\r\n"))
    return found is not None and found["sum"] == _checksum(found["code"].rstrip())


def old_line(comment: str, line: str) -> str | None:
    """What `line` was before, where `comment` is the one in front of it and nobody has edited either; else None."""
    found = _WAS.fullmatch(comment.rstrip("\r\n"))
    bare = line.rstrip("\r\n")
    code = bare.lstrip(" \t\f")
    if found is None:
        return None
    if found["sum"] != _checksum(found["code"].rstrip(), code.rstrip()):  # editors strip what is at the end of lines
        return None
    return bare[: len(bare) - len(code)] + found["code"] + line_end(line)


def told(comment: str) -> str | None:
    """The old line that a comment of ours tells of, whatever has become of the line itself; None for any other line."""
    found = _WAS.fullmatch(comment.rstrip("\r\n"))
    return None if found is None else found["code"]


def marked(line: str) -> bool:
    """Whether the line carries a mark, edited or not."""
    return _OURS.fullmatch(line.rstrip("\r\n")) is not None or told(line) is not None
