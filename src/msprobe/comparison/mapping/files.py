"""Mapping files, read."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.comparison.mapping.names import Names
from msprobe.comparison.mapping.nearest import did_you_mean
from msprobe.comparison.mapping.rules import TensorRules
from msprobe.comparison.yaml_file import read_yaml
from msprobe.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


_PACKAGED = Path(__file__).parents[2] / "integrations" / "vllm"


def packaged(path: Path) -> Path:
    """The mapping file of this name that comes with msprobe (`hf_llama`), where the user has none of that name; else the path itself."""
    ours = _PACKAGED / f"{path.name}.yaml"
    return ours if len(path.parts) == 1 and not path.exists() and ours.is_file() else path


def read_mapping(path: Path) -> tuple[Names, TensorRules]:
    """`--mapping`: what it says of names, and of tensors. Raises UsageError with one sentence about what is wrong, and where."""
    from pydantic import ValidationError

    path = packaged(path)

    from msprobe.comparison.mapping.model import MappingFile

    content = read_yaml(path, "mapping file")
    if not isinstance(content, dict):
        raise UsageError(
            f"the mapping file {path} must hold fields such as `modules:` and `tensors:`, as docs/compare.md of msprobe's repository says"
        )
    try:
        return MappingFile.model_validate(content).plain()
    except ValidationError as error:
        raise UsageError(f"the mapping file {path}: {_sentence(error)}") from None


def read_names(path: Path, word: str, example: str) -> dict[str, str]:
    """`-dm`, `-cm`, `-am`: lines `name in the target: name in the golden dump`.

    Args:
        path: a YAML file.
        word: what the file is called in messages.
        example: what its lines look like.
    """
    content = read_yaml(path, word)
    if not isinstance(content, dict) or not content or not all(isinstance(text, str) and text for pair in content.items() for text in pair):
        raise UsageError(f"the {word} {path} must hold lines `{example}`, both of them texts")
    return content


def read_layers(path: Path) -> dict[str, dict[str, str]]:
    """`-lm`: `ClassName: {attribute: golden.path}`."""
    content = read_yaml(path, "layer mapping")
    if not isinstance(content, dict) or not content:
        raise UsageError(f"the layer mapping {path} must hold `ClassName: {{attribute: golden.path}}`, TopLayer for the model itself")
    for name, attributes in content.items():
        if not isinstance(name, str) or not isinstance(attributes, dict):
            raise UsageError(f"the layer mapping {path}: {name!r} must hold lines `attribute: golden.path`")
        for pair in attributes.items():
            if not all(isinstance(text, str) and text for text in pair):
                shown = reprlib.repr(pair[1])[:60]  # a file may hold what is endless when it is spelled out
                raise UsageError(f"the layer mapping {path}: {name}: `{pair[0]}: {shown}` must be two texts")
    return content


def _fields(place: tuple[int | str, ...]) -> list[str]:
    """What may stand at this place of a mapping file."""
    from msprobe.comparison.mapping import model

    inside: dict[str, type[BaseModel]] = {
        "tensors": model.TensorRule,
        "how": model.How,
        "select": model.Select,
        "shard": model.Shard,
        "prepare": model.BothPrepared,
        "target": model.Prepared,
        "golden": model.Prepared,
    }
    last = next((part for part in reversed(place) if isinstance(part, str)), "")
    return [*inside.get(last, model.MappingFile).model_fields]


def _sentence(error: ValidationError) -> str:
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])  # of `dims: 0` not that `dim` is missing
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"there is no such field{did_you_mean(str(first['loc'][-1]), _fields(first['loc'][:-1]))}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place}: {message}{more}" if place else f"{message}{more}"
