from __future__ import annotations

import pytest

from msprobe.comparison.stacks import Frame, frames_of, locate, parse_frame

from .dumps import frame

TORCH = frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1811, "_call_impl", "return inner()")
LIBRARY = frame("/venv/lib/python3.11/site-packages/transformers/llama.py", 7, "forward", "h = self.mlp(h)")
STANDARD = frame("/usr/lib/python3.12/threading.py", 1010, "run", "self._target()")
USER = frame("/home/me/my model, v2.py", 118, "forward", "return self.down(h)")
SCRIPT = frame("/home/me/train.py", 9, "<module>", "model(x)")


def test_a_frame_is_taken_apart() -> None:
    assert parse_frame(USER) == Frame("/home/me/my model, v2.py", 118, "forward", "return self.down(h)")
    assert str(parse_frame(USER)) == "/home/me/my model, v2.py:118 in forward: return self.down(h)"
    assert parse_frame("no frame") is None


def test_the_user_s_line() -> None:
    user, library = locate([TORCH, STANDARD, TORCH, USER, SCRIPT])
    assert user is not None and user.line == 118
    assert library is None


def test_the_library_s_line_is_told_as_well() -> None:
    user, library = locate([TORCH, LIBRARY, TORCH, SCRIPT])
    assert user is not None and user.path == "/home/me/train.py"
    assert library is not None and library.path.endswith("transformers/llama.py")


def test_when_everything_is_installed_the_nearest_line_is_told() -> None:
    user, library = locate([TORCH, LIBRARY])
    assert user is not None and user.line == 7
    assert library is None
    assert locate([TORCH]) == (None, None)
    assert locate([]) == (None, None)


@pytest.mark.parametrize(
    "path", ["/src/torch/nn/modules/linear.py", "/opt/msprobe/pytorch/debugger.py", "C:\\py\\Lib\\site-packages\\torch\\x.py"]
)
def test_frames_of_torch_and_of_msprobe_are_skipped(path: str) -> None:
    assert locate([frame(path, 1, "f", "x")]) == (None, None)


def test_a_directory_of_the_user_may_be_called_torch() -> None:
    user, _ = locate([frame("/home/me/torch/train.py", 1, "f", "x")])
    assert user is not None


def test_backward_and_gradients_have_the_frames_of_their_forward() -> None:
    stacks = {"Torch.a.0.forward": [USER], "Module.fc.Linear.forward.0": [SCRIPT], "Module.fc.Linear.forward.1": [USER]}
    assert frames_of("Torch.a.0.backward", stacks) == [USER]
    assert frames_of("Torch.a.0.backward.pass1", stacks) == [USER]
    assert frames_of("Module.fc.Linear.backward.1", stacks) == [USER]
    assert frames_of("Module.fc.Linear.parameters_grad.0", stacks) == [SCRIPT]
    assert frames_of("Torch.b.0.forward", stacks) == ()
