"""A forward and a backward pass with a dropout that nobody seeded: `python recording_dropout.py DUMP_PATH`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from msprobe.pytorch import PrecisionDebugger

path = sys.argv[1]
Path(f"{path}.json").write_text(json.dumps({"task": "statistics", "dump_path": path, "level": "mix", "rank": [], "step": []}))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
data = torch.randn(4, 8)
torch.seed()
debugger = PrecisionDebugger(config_path=f"{path}.json")
debugger.start(model)
model(data).sum().backward()
debugger.stop()
debugger.step()
