"""The YAML files that a user writes, read: mapping files, the configuration of merge_result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe.errors import UsageError

_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # what PyYAML's readers of dates, numbers and so on let out
_BITS = 63  # no number that such a file needs is larger
_DIGITS = 4000  # Python reads no more of them, and says so in words that help nobody here
_SHOWN = 40


def read_yaml(path: Path, word: str) -> Any:
    """What the file holds, as plain values.

    Args:
        path: the file.
        word: what it is called in messages.

    Raises:
        UsageError: it cannot be read, is no YAML, or a key stands twice in it; one sentence, with the line where that is known.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """A key that stands twice would silently replace the first one; a date that is none raises what is no error of YAML."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                line = node.start_mark.line + 1
                raise UsageError(f"the {word} {path}: `{twice}` stands twice, at line {line} and below; put it in one place")
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            if not isinstance(node, yaml.ScalarNode):
                return super().construct_object(node, deep)
            kind = str(node.tag).rpartition(":")[2]
            try:
                found = super().construct_object(node, deep) if kind != "int" or len(node.value) <= _DIGITS else 1 << _BITS
                if isinstance(found, int) and found.bit_length() > _BITS:
                    raise ValueError("the number is too large")
            except _WRONG as error:
                shown = node.value if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]}..."
                raise UsageError(
                    f"the {word} {path} is not valid YAML: line {node.start_mark.line + 1}: `{shown}` is taken for a value of type {kind},"
                    f" and it is none ({error}); put it into quotation marks if it is a name"
                ) from None
            return found

    try:
        return yaml.load(path.read_bytes(), Loader)
    except FileNotFoundError:
        raise UsageError(f"the {word} {path} does not exist") from None
    except IsADirectoryError:
        raise UsageError(f"the {word} {path} is a directory") from None
    except OSError as error:
        raise UsageError(f"the {word} {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"the {word} {path} is nested too deep") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"the {word} {path} is not valid YAML: {error}") from None
