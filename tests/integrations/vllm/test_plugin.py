"""The entry point: nothing without MSPROBE_CONFIG; with it, the module of the runner is watched when it is imported."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, reload
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from msprobe.integrations.vllm import importing, plugin, runner
from pytorch.capturing import environment


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with two modules, importable."""
    root = tmp_path / "pretended"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "one.py").write_text("value = 1\n")
    (root / "two.py").write_text("from pretended import one\n1 / one.value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    finders = list(sys.meta_path)
    yield "pretended"
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        if name.startswith("pretended"):
            del sys.modules[name]


def test_modules_are_met_when_they_are_imported(package: str) -> None:
    met: list[ModuleType] = []
    importing.when_imported(["pretended.one", "pretended.two"], met.append)
    assert met == [] and "pretended" not in sys.modules
    two = import_module("pretended.two")
    one = sys.modules["pretended.one"]
    assert met == [one, two]
    assert type(one.__loader__).__name__ == "SourceFileLoader" and one.__spec__.loader is one.__loader__
    assert not any(isinstance(finder, importing._Finder) for finder in sys.meta_path)
    reload(one)
    assert met == [one, two]


def test_a_module_that_another_finder_finds(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As an editable installation has it."""
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("value = 2\n")

    class Editable:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return spec_from_file_location(name, elsewhere) if name == "pretended.three" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable])
    met: list[ModuleType] = []
    importing.when_imported(["pretended.three"], met.append)
    assert import_module("pretended.three").value == 2 and len(met) == 1


def test_what_is_imported_already_is_met_at_once(package: str) -> None:
    one = import_module("pretended.one")
    met: list[ModuleType] = []
    importing.when_imported(["pretended.one"], met.append)
    assert met == [one]


def test_errors_of_the_action_do_not_reach_the_import(package: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(module: ModuleType) -> None:
        raise AttributeError("GPUModelRunner")

    importing.when_imported(["pretended.one"], broken)
    assert import_module("pretended.one").value == 1


def test_errors_of_the_module_pass(package: str) -> None:
    Path(import_module("pretended").__file__ or "").with_name("one.py").write_text("value = 0\n")
    met: list[ModuleType] = []
    importing.when_imported(["pretended.two"], met.append)
    with pytest.raises(ZeroDivisionError):
        import_module("pretended.two")
    assert met == []


def test_with_the_variable_the_runners_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setenv(plugin.VARIABLE, "config.json")
    monkeypatch.setattr(importing, "when_imported", lambda names, action: asked.append(tuple(names)))
    plugin.register()
    assert asked == [runner.MODULES]


def test_an_error_at_the_start_does_not_reach_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "config.json")
    monkeypatch.setattr(importing, "when_imported", None)
    plugin.register()


CHILD = """
import sys
before = set(sys.modules)
from msprobe.integrations.vllm.plugin import register
finders = list(sys.meta_path)
register()
assert sys.meta_path == finders
print(sorted(name for name in set(sys.modules) - before if "." not in name or name.startswith("msprobe")))
"""


def test_without_the_variable_nothing_happens() -> None:
    variables = {key: value for key, value in environment().items() if key != plugin.VARIABLE}
    done = subprocess.run([sys.executable, "-c", CHILD], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = eval(done.stdout)
    assert {"msprobe", "msprobe.integrations", "msprobe.integrations.vllm", "msprobe.integrations.vllm.plugin"} <= set(loaded)
    assert not {"torch", "numpy", "pydantic", "yaml", "xxhash", "logging"} & set(loaded)
    assert len([name for name in loaded if name.startswith("msprobe")]) == 4
