from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import msprobe
from msprobe.cli import main as cli

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "compare" in capsys.readouterr().out
    assert cli.main(["-V"]) == cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["msprobe", msprobe.__version__] * 2


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--target_path" in text and "--exit-zero" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nonsense"], "unknown command 'nonsense'; there are: compare"),
        (["graph_visualize"], "the command 'graph_visualize' is not available yet"),
        (["--nonsense"], "--nonsense"),
        (["compare"], "-tp/--target_path, -gp/--golden_path"),
        (["compare", "-tp", "a", "-gp", "b", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1 and captured.out == ""


def test_no_arguments_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "compare" in capsys.readouterr().out


def test_python_m_msprobe() -> None:
    done = subprocess.run([sys.executable, "-m", "msprobe", "-V"], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["msprobe", msprobe.__version__]


def test_the_command_line_imports_no_framework_and_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "pandas", "rich", "pydantic", "yaml", "mindspore", "transformers"]
    loaded = python(f"import sys, msprobe.cli.main; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_comparing_statistics_imports_no_framework_and_no_numpy(tmp_path: Path) -> None:
    sample = ROOT / "tests" / "golden" / "analysis" / "stats_edge"
    loaded = python(
        "import sys, msprobe.cli.main as m;"
        f"m.main(['compare', '-tp', {str(sample / 'target')!r}, '-gp', {str(sample / 'golden')!r}, '-o', {str(tmp_path)!r}]);"
        "print([m for m in ('torch', 'numpy', 'pandas', 'rich', 'pydantic') if m in sys.modules])"
    )
    assert loaded.splitlines()[-1] == "[]"


def test_comparing_tensors_imports_no_framework(tmp_path: Path) -> None:
    from comparison.dumps import tensor_call

    path = tensor_call(tmp_path / "a", [1.0])
    other = tensor_call(tmp_path / "b", [2.0])
    loaded = python(
        "import sys, msprobe.cli.main as m;"
        f"m.main(['compare', '-tp', {str(path)!r}, '-gp', {str(other)!r}, '-o', {str(tmp_path / 'o')!r}]);"
        "print([m for m in ('torch', 'pandas', 'rich', 'pydantic') if m in sys.modules])"
    )
    assert loaded.splitlines()[-1] == "[]"


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    assert cli.main(["compare"]) == 130
    assert capsys.readouterr().err == ""


def test_an_error_in_cleaning_up_after_an_interruption_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """shutil.rmtree closes a directory twice where Ctrl-C comes behind the first time."""

    def interrupt(argv: list[str]) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            os.close(-1)

    monkeypatch.setattr(cli, "_run", interrupt)
    assert cli.main(["compare"]) == 130
    assert capsys.readouterr().err == ""


def test_a_fault_of_ours_is_called_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(argv: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["compare"]) == 2
    assert "please report it" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves(unbuffered: str, tmp_path: Path) -> None:
    """`msprobe ... | head`: no traceback, no complaint when Python flushes at exit."""
    sample = ROOT / "tests" / "golden" / "analysis" / "stats_edge"
    start = "import sys; sys.stdin.read(); from msprobe.cli.main import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", start, "compare", "-tp", str(sample / "target"), "-gp", str(sample / "golden"), "-o", str(tmp_path)],
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_every_command_has_a_module_with_both_functions() -> None:
    import importlib

    for name, text in cli.COMMANDS.items():
        module = importlib.import_module(f"msprobe.cli.{name}")
        assert callable(module.add_arguments) and callable(module.run)
        assert re.match(r"[a-z]", text)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["compare", "--htlm"], "did you mean --html?"),
        (["compare", "-tp", "a", "-gp", "b", "--excat-zero"], "did you mean --exit-zero?"),
        (["compare", "--accept_dtype"], "did you mean --accept-dtype?"),
        (["compare", "--jbos=3"], "did you mean --jobs?"),
        (["merge_result", "-i", "a", "--output_dri", "b"], "did you mean --output_dir?"),
        (["--vesrion"], "did you mean --version?"),
        (["comapre"], "did you mean compare?"),
    ],
)
def test_the_nearest_option_is_named(argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    assert hint in capsys.readouterr().err


def test_nothing_is_suggested_where_nothing_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--colour-of-the-sky"]) == cli.main(["compare", "-tp", "a", "-gp", "b", "surplus"]) == 2
    assert "did you mean" not in capsys.readouterr().err
