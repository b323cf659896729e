"""A model runner in the shape of vLLM's, without vLLM: what its engine calls, and what is read of it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

VOCABULARY, WIDTH = 11, 4


class Net(nn.Module):
    """Token ids to logits; counts what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if (tokens < 0).any():
            raise ValueError("a wrong token")
        return self.mix(self.embed(tokens))


class InputBatch:
    """What is read of vLLM's class of this name."""

    def __init__(self, requests: dict[str, list[int]], computed: dict[str, int]) -> None:
        self.req_ids: list[str | None] = [*requests, None]  # places of requests to come
        self.num_reqs = len(requests)
        self.num_computed_tokens_cpu = np.array([computed[name] for name in requests] + [0])
        self.num_prompt_tokens = np.array([len(tokens) for tokens in requests.values()] + [0])
        self.token_ids_cpu = np.zeros((self.num_reqs + 1, 16), np.int32)
        for row, tokens in enumerate(requests.values()):
            self.token_ids_cpu[row, : len(tokens)] = tokens


def scheduled(**counts: int) -> SimpleNamespace:
    """What the scheduler gives: how many tokens of each request are computed."""
    return SimpleNamespace(num_scheduled_tokens=counts, total_num_scheduled_tokens=sum(counts.values()))


def configuration(
    *, eager: bool = True, mode: int = 0, graphs: Any = 0, replicas: int = 1, replica: int = 0, tensor: int = 1
) -> SimpleNamespace:
    """A VllmConfig."""
    return SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=eager),
        compilation_config=SimpleNamespace(mode=SimpleNamespace(value=mode), cudagraph_mode=SimpleNamespace(value=graphs)),
        parallel_config=SimpleNamespace(
            data_parallel_size=replicas,
            data_parallel_index=replica,
            tensor_parallel_size=tensor,
            pipeline_parallel_size=1,
            world_size=2,
            rank=1,
        ),
    )


def runner_module() -> ModuleType:
    """A module `gpu_model_runner` of its own, with a class that nobody has changed."""

    class GPUModelRunner:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config
            self.model = Net()
            self.prompts: dict[str, list[int]] = {}
            self.computed: dict[str, int] = {}
            self.waiting: torch.Tensor | None = None

        def get_model(self) -> nn.Module:
            return self.model

        @torch.inference_mode()
        def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> str | None:
            if not scheduler_output.total_num_scheduled_tokens:
                return "nothing to do"
            counts = scheduler_output.num_scheduled_tokens
            self.input_batch = InputBatch({name: self.prompts[name] for name in counts}, self.computed)
            tokens = [self.prompts[name][self.computed[name] :][:count] for name, count in counts.items()]
            hidden = self.model(torch.tensor([token for some in tokens for token in some]))
            for name, count in counts.items():
                self.computed[name] += count
            if intermediate_tensors == "pooling":
                return "pooled"
            self.waiting = self.model.head(hidden[-1])
            return None

        @torch.inference_mode()
        def sample_tokens(self, grammar_output: Any) -> int:
            logits, self.waiting = self.waiting, None
            assert logits is not None
            return int(torch.softmax(logits, -1).argmax())

    module = ModuleType("vllm.v1.worker.gpu_model_runner")
    module.GPUModelRunner = GPUModelRunner  # type: ignore[attr-defined]
    return module


def ready(runner: Any, **prompts: list[int]) -> Any:
    """The runner, with these requests."""
    runner.prompts.update(prompts)
    runner.computed.update(dict.fromkeys(prompts, 0))
    return runner
