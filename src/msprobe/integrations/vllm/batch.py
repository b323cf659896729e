"""Which rows of a step's tensors belong to which request: vLLM computes the tokens of several requests in one tensor."""

from __future__ import annotations

from typing import Any

import xxhash


def batch_of(runner: Any, scheduler_output: Any) -> dict[str, Any]:
    """What meta.json says under `batch`, from what lies on the host; nothing is read from a device.

    Args:
        runner: a GPUModelRunner that has prepared the inputs of this step.
        scheduler_output: what its execute_model was given.

    Returns:
        `{"tokens": n, "requests": [{"id", "rows": [a, b], "positions": [first, last + 1], "prompt_tokens", "prompt", "sequence", "lora"}]}`
    """
    batch = getattr(runner, "input_batch", None)
    if batch is None:  # model runner V2 makes one for each step
        batch = runner.execute_model_state.input_batch
    scheduled = scheduler_output.num_scheduled_tokens
    computed = getattr(batch, "num_computed_tokens_cpu", None)
    if computed is None:
        computed = getattr(batch, "num_computed_tokens_np", None)
    requests: list[dict[str, Any]] = []
    row = 0
    for index, identity in enumerate(batch.req_ids[: batch.num_reqs]):
        count = int(scheduled[identity])
        request: dict[str, Any] = {"id": str(identity), "rows": [row, row + count]}
        if computed is not None:
            first = int(computed[index])
            request["positions"] = [first, first + count]
        request.update(_tokens(batch, index, request.get("positions")))
        request.update(_adapter(batch, index))
        requests.append(request)
        row += count
    return {"tokens": row, "requests": requests}


def parallel(config: Any) -> dict[str, int] | None:
    """What meta.json says under `parallel`: over how many ranks the model is distributed, and how; None where there is one."""
    known = config.parallel_config
    sizes = {kind: int(getattr(known, f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline")}
    return sizes if max(sizes.values()) > 1 else None


def empty_weights(model: Any) -> dict[str, Any] | None:
    """What meta.json says under `empty_weights`: the parameters that have no elements, and why; None where all have some."""
    names = [name for name, parameter in model.named_parameters() if not parameter.numel()]
    return {"why": "vLLM has repacked them for its kernels and keeps no readable copy", "parameters": names} if names else None


def _tokens(batch: Any, index: int, positions: list[int] | None) -> dict[str, Any]:
    """How long the prompt is, and fingerprints of its token ids and of all up to the last one of this step: ids are others in every run.

    With asynchronous scheduling the host does not know yet what was generated, and has negative numbers in its place.
    """
    lengths, tokens = getattr(batch, "num_prompt_tokens", None), getattr(batch, "token_ids_cpu", None)
    if lengths is None or tokens is None:
        return {}
    length = int(lengths[index])
    found: dict[str, Any] = {"prompt_tokens": length, "prompt": _fingerprint(tokens[index, :length])}
    sequence = tokens[index, : positions[1]] if positions is not None else tokens[index, :0]
    if sequence.size and sequence.min() >= 0:
        found["sequence"] = _fingerprint(sequence)
    return found


def _adapter(batch: Any, index: int) -> dict[str, Any]:
    """The LoRA adapter of the request, where it has one."""
    numbers = getattr(batch, "request_lora_mapping", None)
    number = int(numbers[index]) if numbers is not None else 0
    if not number:
        return {}
    known = (getattr(batch, "lora_id_to_lora_request", None) or {}).get(number)
    return {"lora": str(getattr(known, "lora_name", number))}


def _fingerprint(tokens: Any) -> str:
    return xxhash.xxh64_hexdigest(tokens.astype("<i4").tobytes())
