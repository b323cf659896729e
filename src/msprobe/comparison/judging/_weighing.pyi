from collections.abc import Callable
from typing import Any

def weigh(
    rows: tuple[Any, ...],
    seen: dict[Any, Any],
    bounds: Callable[[str, str], tuple[Any, ...]],
    agreements: tuple[Any, Any],
    numbers: tuple[float, float, float, float, float],
    is_module: bool,
    is_listed: bool,
    parted: bool,
    /,
) -> tuple[Any, ...] | None: ...
