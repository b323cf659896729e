"""Small dumps for the tests, written as the recorder writes them."""

from __future__ import annotations

import csv
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.format import tensor_file

Json = dict[str, Any]


def tensor(value: float = 1.0, /, dtype: str = "float32", shape: tuple[int, ...] = (2, 3), **fields: Any) -> Json:
    """A record of a tensor whose elements lie around `value`; `fields` replaces or adds keys."""
    record: Json = {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype}",
        "shape": list(shape),
        "Max": value + 1.0,
        "Min": value - 1.0,
        "Mean": value,
        "Norm": abs(value) * 2.0 + 0.5,
        "requires_grad": False,
    }
    record.update(fields)
    return record


def statistics(maximum: Any, minimum: Any, mean: Any, norm: Any, **fields: Any) -> Json:
    """A record of a tensor with these statistics."""
    return tensor(1.0, **{"Max": maximum, "Min": minimum, "Mean": mean, "Norm": norm, **fields})


def api(inputs: list[Any], outputs: list[Any], **kwargs: Any) -> Json:
    return {"input_args": inputs, "input_kwargs": kwargs, "output": outputs}


def module(inputs: list[Any], outputs: list[Any], **parameters: Any) -> Json:
    return {"input_args": inputs, "input_kwargs": {}, "output": outputs, "parameters": parameters}


def backward(inputs: list[Any], outputs: list[Any]) -> Json:
    return {"input": inputs, "output": outputs}


def write_dump(
    directory: Path,
    data: Json,
    *,
    task: str = "statistics",
    level: str = "mix",
    construct: dict[str, str | None] | None = None,
    stack: dict[str, list[str]] | None = None,
    name: str = "dump.json",
    framework: str = "pytorch",
) -> Path:
    """Writes dump.json and, where given, construct.json and stack.json; returns the path of dump.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = str(directory / "dump_tensor_data") if task == "tensor" else None
    content = {"task": task, "level": level, "framework": framework, "dump_data_dir": tensors, "data": data}
    (directory / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    if construct is not None:
        (directory / "construct.json").write_text(json.dumps(construct), encoding="utf-8")
    if stack is not None:
        groups = {str(i): [[entry], frames] for i, (entry, frames) in enumerate(stack.items())}
        (directory / "stack.json").write_text(json.dumps(groups), encoding="utf-8")
    return directory / name


def frame(path: str, line: int, function: str, source: str) -> str:
    return f"File {path}, line {line}, in {function}, \n {source}"


def save_array(directory: Path, name: str, array: Any, dtype: str | None = None) -> Json:
    """Writes `array` as a tensor file and returns its record."""
    array = np.asarray(array)
    shape = array.shape
    folder = directory / "dump_tensor_data"
    folder.mkdir(parents=True, exist_ok=True)
    tensor_file.write(str(folder / name), dtype or str(array.dtype), shape, np.ascontiguousarray(array).tobytes())
    finite = array.size and array.dtype.kind == "f"
    extreme = finite and not np.all(np.abs(array.astype(float)) < 1e300)
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype or array.dtype}",
        "shape": list(shape),
        "Max": float(array.max()) if finite else None,
        "Min": float(array.min()) if finite else None,
        "Mean": math.fsum(array.flat) / array.size if finite and not extreme else None,
        "Norm": math.hypot(*array.astype(float).flat) if finite else None,
        "requires_grad": False,
        "data_name": name,
    }


def tensor_call(directory: Path, output: Any, given: Any = (1.0, 2.0), name: str = "Torch.op.0.forward", dtype: str | None = None) -> Path:
    """A tensor dump of one call with one input and one output."""
    data = {name: api([save_array(directory, f"{name}.input.0.pt", given)], [save_array(directory, f"{name}.output.0.pt", output, dtype)])}
    return write_dump(directory, data, task="tensor", stack={})


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def malicious(path: Path, marker: Path) -> None:
    """A .pt whose pickle would create `marker` when it is run."""
    code = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", code)
        archive.writestr("archive/version", "3\n")
