"""The lines of the CSV as text, many at once: to the byte what the `csv` module makes of `report_csv.rows`, several times as fast.

Half of a row are numbers, and Python's `repr` of floats takes ten times as long as orjson, four times as long as ujson. Both spell
floats with the same digits; only exponents are written otherwise (`1e-7`, and orjson's `0.00001`), and put right afterwards.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import orjson
import ujson

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ONE_DIGIT = (5, 6, 7, 8, 9)  # a smaller number of zeros is written out
_POSITIVE_EXPONENT = re.compile(r"e[0-9]")
_SPECIAL = re.compile(r'[,"\r\n]')
_NO_NUMBER = re.compile(r'["a-df-zA-Z{]')
_NUMBERS = frozenset({float, int})
_FORMULA = frozenset("=+-@\t\r＝＋－＠")
_NEGATIVE = re.compile(r"-(?:inf|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?%?)")  # as measurers, and result files, spell numbers


def spell(numbers: Sequence[Sequence[Any]]) -> list[str | None]:
    """`,`-joined numbers of each group as Python spells them; None where a group holds anything but finite floats and integers."""
    text = _dumped(numbers)
    if text is not None and _NO_NUMBER.search(text) is None and text.count("[") == len(numbers) + 1:
        return [*text[2:-2].split("],[")] if numbers else []
    plain = [index for index, group in enumerate(numbers) if _NUMBERS.issuperset(map(type, group))]
    text = _dumped([numbers[index] for index in plain])
    if text is None:
        return [_spelled(group) for group in numbers]
    found: list[str | None] = [None] * len(numbers)
    for index, part in zip(plain, text[2:-2].split("],["), strict=False):
        found[index] = None if "n" in part or "N" in part else part  # NaN or an infinity: null, or as ujson writes them
    return found


class Cells(Sequence[str]):
    """Cells that hold no comma, kept as the text that the file will have: a fifth of the memory of a tuple."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.split(","))

    def __len__(self) -> int:
        return self.text.count(",") + 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.text.split(",")[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (Cells, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def joined(cells: Sequence[str]) -> str:
    """Cells without a comma or quotation mark, `,`-joined."""
    return cells.text if type(cells) is Cells else ",".join(cells)


def spell_array(numbers: npt.NDArray[np.float64], unit: str = "") -> list[str]:
    """`,`-joined numbers of each row of a two-dimensional array, all finite, as Python spells them, each with `unit` behind it."""
    import numpy as np

    if not numbers.size:
        return [""] * len(numbers)
    # From 0.0001 down Python writes an exponent, and ujson does; orjson is faster, and begins at 0.00001.
    small = np.abs(numbers)
    if ((small < 1e-4) & (small > 9e-6)).any():
        text: str = ujson.dumps(numbers.tolist())
    else:
        text = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    digits = [digit for digit in _ONE_DIGIT if ((small >= 0.99 * 10.0**-digit) & (small < 1.01 * 10.0 ** (1 - digit))).any()]
    text = _with_exponents(text, digits)
    if unit:
        text = text.replace(",", f"{unit},").replace(f"]{unit},[", f"{unit}],[").replace("]]", f"{unit}]]")
    return text[2:-2].split("],[")


def dumped_floats(numbers: bytes) -> bytes:
    """A JSON list of the float64 of this machine that stand in `numbers`, all finite."""
    values = array("d")
    values.frombytes(numbers)
    return orjson.dumps(values.tolist())


def _dumped(numbers: Any) -> str | None:
    try:
        text = orjson.dumps(numbers).decode()
    except (TypeError, ValueError):  # an integer beyond 64 bits, half of a surrogate pair
        return None
    if "0.0000" in text:  # from 0.0001 down Python, and ujson, write an exponent
        text = ujson.dumps(numbers)
    return _with_exponents(text)


def _with_exponents(text: str, digits: Sequence[int] = _ONE_DIGIT) -> str:
    """Exponents of two digits and with a sign, as Python writes them. `digits`: the negative one-digit exponents that there may be."""
    if "e" in text:
        for digit in digits:
            text = text.replace(f"e-{digit},", f"e-0{digit},").replace(f"e-{digit}]", f"e-0{digit}]")
        if _POSITIVE_EXPONENT.search(text) is not None:
            text = _POSITIVE_EXPONENT.sub(lambda match: f"e+{match[0][1]}", text)
    return text


def _spelled(group: Sequence[Any]) -> str | None:
    for value in group:
        if type(value) is not int and (type(value) is not float or value - value != 0.0):
            return None
    return ",".join(map(repr, group))


def cell(text: str) -> str:
    """A text as a field: see `content`; quoted where need be."""
    text = content(text)
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


def printable(value: Any) -> Any:
    """A text without control characters; anything else as it is."""
    if type(value) is str and not value.isprintable():
        return "".join(c if c.isprintable() or ord(c) > 159 else c.encode("unicode_escape").decode() for c in value)
    return value


def harmless(text: str) -> str:
    """A recorded text. One that a spreadsheet would run as a formula gets an apostrophe in front."""
    return "'" + text if text and text[0] in _FORMULA else text


def content(value: Any) -> Any:
    """What a cell holds, in every CSV that is written: of a text no control character, so that one line of the file is one row and nothing
    in it commands a terminal, and nothing that a spreadsheet would run; but a negative number that is spelled out already stays one."""
    if type(value) is str and value[:1] in _FORMULA and _NEGATIVE.fullmatch(value) is None:
        value = harmless(value)
    return printable(value)


def lines_of(rows: Iterator[Sequence[Any]]) -> Iterator[str]:
    """Rows of any cells as text."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    while some := [[content(value) for value in row] for row in islice(rows, 1000)]:
        writer.writerows(some)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()
