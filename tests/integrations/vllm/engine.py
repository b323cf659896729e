"""Runs vLLM for test_vllm.py, in the environment that has it: `engine.py WHAT DIRECTORY`; prints one line of JSON last.

WHAT: model       writes tiny models with random weights
      plain       in-process and unwatched; then by hand: with a range of tokens, and by the template for GPUModelRunner
      recorded    in-process, by MSPROBE_CONFIG; then transformers with the same weights, and with a fault
      several     in-process: prompts that begin alike, samples of one prompt; an engine after another; then transformers with what came out
      ranks       tensor-parallel on two ranks, which are processes; then transformers
      processes   with engine and worker in processes of their own
      compiled    not eager
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROMPTS = [[1, 5, 7, 9, 11, 13, 17, 19, 23, 29, 31, 37], [1, 20, 21, 300, 301]]
FEW = 3


def model(path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    net = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(1 + 0.1 * torch.randn(parameter.shape) if "norm" in name else 0.08 * torch.randn(parameter.shape))
    net.save_pretrained(path / "model")


def engine(path: Path, **settings: Any) -> Any:
    from vllm import LLM

    given = {"dtype": "float32", "max_model_len": 256, "max_num_seqs": 4, "seed": 0, "enable_prefix_caching": False, "enforce_eager": True}
    return LLM(model=str(path / "model"), skip_tokenizer_init=True, **{**given, **settings})


def generate(llm: Any, prompts: list[list[int]]) -> list[Any]:
    """Tokens, and what is known of their probabilities to the last bit."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=FEW, ignore_eos=True, logprobs=2, detokenize=False)
    found = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    return [
        [
            list(one.outputs[0].token_ids),
            [[(token, known.logprob.hex()) for token, known in step.items()] for step in one.outputs[0].logprobs],
        ]
        for one in found
    ]


def plain(path: Path) -> Any:
    from msprobe.pytorch import PrecisionDebugger

    llm = engine(path)
    kind = type(llm.llm_engine.model_executor.driver_worker.model_runner)
    untouched = "msprobe" not in str(vars(kind.__mro__[1]).keys()) and kind.execute_model.__module__.startswith("vllm")
    results = {"batch": generate(llm, PROMPTS), "single": generate(llm, PROMPTS[:1]), "untouched": untouched}
    runner = llm.llm_engine.model_executor.driver_worker.model_runner
    debugger = PrecisionDebugger(dump_path=str(path / "by_hand"), task="statistics", level="mix")
    debugger.start(model=runner.get_model(), token_range=[1, 2])
    results["range"] = generate(llm, PROMPTS)
    debugger.stop()
    debugger.step()

    execute = kind.execute_model

    def execute_model(self: Any, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        """As the skill's template has it written into the class."""
        self.debugger.start(model=self.model)
        try:
            return execute(self, scheduler_output, intermediate_tensors)
        finally:
            self.debugger.stop()
            self.debugger.step()

    kind.execute_model = execute_model
    runner.debugger = debugger
    results["template"] = generate(llm, PROMPTS)
    return results


def recorded(path: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    llm = engine(path)
    results = {"batch": generate(llm, PROMPTS)}
    from msprobe.pytorch import PrecisionDebugger

    net = AutoModelForCausalLM.from_pretrained(path / "model", dtype=torch.float32).eval()

    def run(tokens: list[int]) -> None:
        with torch.no_grad():
            PrecisionDebugger.start(net)
            net(input_ids=torch.tensor([tokens]), use_cache=False)
            PrecisionDebugger.stop()
            PrecisionDebugger.step()

    whole = [[*prompt, *tokens] for prompt, (tokens, _) in zip(PROMPTS, results["batch"], strict=True)]
    run(whole[0])
    run(whole[1])
    with torch.no_grad():
        net.model.layers[1].mlp.down_proj.weight.mul_(1.02)
    run(whole[1])
    return results


def transformers_of(path: Path, sequences: list[list[int]]) -> None:
    """A step with a forward of each."""
    import torch
    from transformers import AutoModelForCausalLM

    from msprobe.pytorch import PrecisionDebugger

    net = AutoModelForCausalLM.from_pretrained(path / "model", dtype=torch.float32).eval()
    PrecisionDebugger(config_path=os.environ["MSPROBE_CONFIG"])
    PrecisionDebugger.set_init_step(100)
    for tokens in sequences:
        with torch.no_grad(), PrecisionDebugger.record(net):
            net(input_ids=torch.tensor([tokens]), use_cache=False)


def several(path: Path) -> Any:
    import gc
    import weakref

    from vllm import SamplingParams

    llm = engine(path, max_num_seqs=8)
    sampling = [
        SamplingParams(temperature=heat, n=n, seed=3, max_tokens=FEW, ignore_eos=True, detokenize=False) for heat, n in ((0, 1), (1.5, 2))
    ]
    prompts = [PROMPTS[0][:3], PROMPTS[0]]
    found = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    sequences = [[*prompt, *sample.token_ids] for prompt, one in zip(prompts, found, strict=True) for sample in one.outputs]
    gone = weakref.ref(llm.llm_engine.model_executor.driver_worker.model_runner.model)
    del llm
    gc.collect()
    results = {"sequences": sequences, "gone": gone() is None, "next": generate(engine(path), PROMPTS)}
    transformers_of(path, sequences)
    return results


def ranks(path: Path) -> Any:
    results = {"single": generate(engine(path, tensor_parallel_size=2), PROMPTS[:1])}
    transformers_of(path, [PROMPTS[0]])
    return results


def processes(path: Path) -> Any:
    llm = engine(path)
    return {"single": generate(llm, PROMPTS[:1])}


def compiled(path: Path) -> Any:
    return {"single": generate(engine(path, enforce_eager=False), PROMPTS[:1])}


if __name__ == "__main__":
    os.environ["VLLM_CACHE_ROOT"] = sys.argv[2] + "/cache"
    print("\n" + json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))), flush=True)
