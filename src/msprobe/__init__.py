"""msprobe finds where two runs of a deep-learning model part.

Importing this package imports no deep-learning framework, and nothing else that takes time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.api import assert_same, compare

__version__ = "0.1.0"
__all__ = ["__version__", "assert_same", "compare"]


def __getattr__(name: str) -> Any:
    """`msprobe.compare` and `msprobe.assert_same` are imported when they are asked for."""
    if name in ("assert_same", "compare"):
        from msprobe import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
