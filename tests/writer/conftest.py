"""Reading back what a writer left, strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def strict(path: Path) -> Any:
    """The document in `path`; fails on repeated keys and on any text other than that of `json.dumps` (dump.json by 2)."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a key comes twice"
        return dict(pairs)

    text = path.read_text()
    document = json.loads(text, object_pairs_hook=unique)
    assert text == json.dumps(document, indent=2 if path.name == "dump.json" else 1)
    return document


@pytest.fixture(name="strict")
def strict_fixture() -> Any:
    return strict


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long runs only where they are asked for: `-m slow`."""
    if "slow" not in config.option.markexpr:
        for item in items:
            if item.path.parent == Path(__file__).parent and item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="long; run with -m slow"))
