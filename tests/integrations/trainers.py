"""A small model, its data and a Trainer of transformers; also a rank of a distributed training (run under torchrun)."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import transformers
from transformers import Trainer, TrainingArguments
from transformers.utils import logging

from integrations.ranks import leave_group

logging.set_verbosity_error()


class Net(nn.Module):
    """Two layers with dropout; gives the loss as the models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop, self.head = nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.drop(torch.relu(self.fc(x))))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, length: int = 12) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x, self.labels = torch.randn(length, 4, generator=generator), torch.randint(0, 3, (length,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": self.labels[index]}


class Losses(transformers.TrainerCallback):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.losses += [logs[key] for key in ("loss", "grad_norm", "eval_loss") if key in logs]


def trainer(directory: Path, *callbacks: Any, kind: type[Trainer] = Trainer, model: nn.Module | None = None, **arguments: Any) -> Trainer:
    settings: dict[str, Any] = {
        "output_dir": str(directory / "out"),
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 6,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }
    torch.manual_seed(1)
    return kind(
        model=Net() if model is None else model,
        args=TrainingArguments(**{**settings, **arguments}),
        train_dataset=Data(),
        eval_dataset=Data(),
        callbacks=list(callbacks),
    )


def outcome(made: Trainer, losses: Losses) -> list[str]:
    """Losses and weights, every bit of them."""
    weights = [hashlib.sha256(p.detach().numpy().tobytes()).hexdigest() for p in made.model.parameters()]
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    return [*map(repr, losses.losses), *weights, state]


def trained(directory: Path, *callbacks: Any) -> list[str]:
    losses = Losses()
    made = trainer(directory, losses, *callbacks, gradient_accumulation_steps=2, max_steps=2)
    made.train()
    return outcome(made, losses)


def main(directory: Path) -> None:
    from msprobe.integrations.transformers import MsprobeCallback

    torch.set_num_threads(1)
    found = [trained(directory)]
    found.append(trained(directory, MsprobeCallback(level="mix", task="statistics", dump_path=str(directory / "dump"))))
    (directory / f"outcome{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    leave_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
