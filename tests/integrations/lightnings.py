"""Small Lightning modules of all kinds of optimization; also a rank of a distributed training."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from integrations.ranks import leave_group

warnings.filterwarnings("ignore")


def modules(package: str) -> dict[str, type]:
    """The modules below, as LightningModule of this package."""
    L = importlib.import_module(package)
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Automatic(L.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.drop, self.head = nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)
            self.losses: list[float] = []
            self.fails: BaseException | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.drop(torch.relu(self.fc(x))))

        def loss(self, batch: Any) -> torch.Tensor:
            x, y = batch
            loss = F.cross_entropy(self(x), y)
            self.losses.append(loss.item())
            return loss

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            if self.fails is not None and batch_idx == 1:
                raise self.fails
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.loss(batch)

        test_step = validation_step

        def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    class Gan(Automatic):
        """Two optimizers by hand, both in each batch."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.fc.parameters(), lr=0.1), torch.optim.SGD(self.head.parameters(), lr=0.1)], []

    class Accumulates(Automatic):
        """Accumulates by hand, and steps the optimizer past Lightning."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.manual_backward(self.loss(batch) / 2)
            if batch_idx % 2:
                optimizer = self.optimizers().optimizer
                optimizer.step()
                optimizer.zero_grad()

    return {"automatic": Automatic, "gan": Gan, "accumulates": Accumulates}


def loader(length: int = 12) -> Any:
    generator = torch.Generator().manual_seed(3)
    data = torch.utils.data.TensorDataset(torch.randn(length, 4, generator=generator), torch.randint(0, 3, (length,), generator=generator))
    return torch.utils.data.DataLoader(data, batch_size=2)


def trainer(package: str, directory: Path, *callbacks: Any, **arguments: Any) -> Any:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(directory),
        "limit_train_batches": 4,
        "limit_val_batches": 2,
        "num_sanity_val_steps": 1,
    }
    return importlib.import_module(package).Trainer(callbacks=list(callbacks), **{**settings, **arguments})


def outcome(module: Any) -> list[str]:
    """Losses and weights, every bit of them."""
    weights = [hashlib.sha256(p.detach().float().numpy().tobytes()).hexdigest() for p in module.parameters()]
    return [*map(repr, module.losses), *weights, hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()]


def trained(directory: Path, package: str, *callbacks: Any) -> tuple[int, list[str]]:
    torch.manual_seed(1)
    module = modules(package)["automatic"]()
    made = trainer(package, directory, *callbacks, devices=2, strategy="ddp", limit_train_batches=2, use_distributed_sampler=True)
    made.fit(module, loader(), loader())
    return made.global_rank, outcome(module)


def main(directory: Path, package: str) -> None:
    from msprobe.integrations.lightning import MsprobeCallback

    torch.set_num_threads(1)
    _, without = trained(directory, package)
    rank, recorded = trained(directory, package, MsprobeCallback(level="mix", task="statistics", dump_path=str(directory / "dump")))
    (directory / f"outcome{rank}.json").write_text(json.dumps([without, recorded]))
    leave_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
