"""Task structure writes names, parents and stacks, and no record."""

from __future__ import annotations

import json
from pathlib import Path

from msprobe.writer.structure import StructureWriter


def test_no_entry_is_written_and_names_are(tmp_path: Path) -> None:
    writer = StructureWriter(tmp_path / "rank0", task="structure", level="mix")
    entry = writer.add("Torch.relu.0.forward", {"output": [1]})
    writer.add_call("Torch.relu.0.forward", None)
    writer.add_stack("Torch.relu.0.forward", 1, ["File train.py, line 1"])
    writer.finish(entry)
    assert entry.done
    writer.close()
    read = {name: json.loads((tmp_path / "rank0" / f"{name}.json").read_text(encoding="utf-8")) for name in ("dump", "construct", "stack")}
    assert read["dump"]["data"] == {}
    assert read["construct"] == {"Torch.relu.0.forward": None}
    assert "Torch.relu.0.forward" in json.dumps(read["stack"])
