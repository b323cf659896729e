from __future__ import annotations

import json
from pathlib import Path

import pytest

from msprobe.config import reference
from msprobe.config.available import NOT_YET
from msprobe.config.file_model import SECTIONS, ConfigFile, LoadSection

DOCS = Path(__file__).parent.parent.parent / "docs"
ENGLISH = (DOCS / "config.md").read_text(encoding="utf-8")
CHINESE = (DOCS / "zh" / "config.md").read_text(encoding="utf-8")


def test_the_tables_are_up_to_date() -> None:
    assert reference.renew(ENGLISH) == ENGLISH, "run: python -m msprobe.config.reference docs/config.md"


def test_all_tables_are_there() -> None:
    for name in ("common", "load", "not_yet", *(name for name, model in SECTIONS.items() if model.model_fields)):
        assert f"<!-- table: {name} -->\n{reference.table(name)}\n<!-- end -->" in ENGLISH


def test_the_script_renews_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: overflow_check -->\nold\n<!-- end -->\nb\n")
    assert reference.main([str(page)]) == 0
    assert page.read_text() == f"a\n<!-- table: overflow_check -->\n{reference.table('overflow_check')}\n<!-- end -->\nb\n"


@pytest.mark.parametrize(
    ("name", "model"),
    [("common", ConfigFile), ("load", LoadSection), *((name, model) for name, model in SECTIONS.items() if model.model_fields)],
)
def test_the_chinese_page_has_every_field_with_its_default(name: str, model: type[ConfigFile]) -> None:
    rows = [line.split(" | ") for line in CHINESE.splitlines() if line.startswith("| `")]
    shared = set(SECTIONS["statistics"].model_fields) if name in ("tensor", "nan_check") else set()
    for field_name, field in model.model_fields.items():
        if (model is ConfigFile and field_name in (*SECTIONS, "load")) or field_name in shared:
            assert f"{field_name}" in CHINESE
            continue
        default = "必选" if field.is_required() or field_name == "dump_path" else f"`{json.dumps(field.default)}`"
        assert any(row[0] == f"| `{field_name}`" and row[2] == default for row in rows), field_name


def test_the_chinese_page_names_what_is_not_there_yet() -> None:
    part = CHINESE.partition("## 尚未实现")[2].partition("\n## ")[0]
    for row in NOT_YET:
        name = row.field.removeprefix("section.")
        assert name in part or any(word in part for word in row.feature.replace("(", " ").replace(")", " ").split()), row
