from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from msprobe import numerics


def python(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, env=environment).stdout


def test_public_names() -> None:
    for name in numerics.__all__:
        assert getattr(numerics, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        numerics.nothing  # noqa: B018


def test_importing_loads_neither_numpy_nor_torch(kernels) -> None:
    out = python("""
        import sys
        from msprobe import numerics
        import ctypes
        numbers = (ctypes.c_float * 3)(1, 2, 3)
        assert numerics.summarize(ctypes.addressof(numbers), numerics.CODE["float32"], 3)[:3] == (3.0, 1.0, 2.0)
        print([m for m in ("numpy", "torch") if m in sys.modules], numerics.HAVE_KERNELS)
    """)
    assert out.strip() == "[] True"


def test_without_kernels_numpy_does_the_work() -> None:
    out = python("""
        import sys
        sys.modules["msprobe.numerics._kernels"] = None
        import numpy as np
        from msprobe import numerics
        from msprobe.numerics import pairs
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        numerics.set_threads(2)
        class T:
            dtype, shape, data = "float32", (2, 3), memoryview(x)
        print(numerics.HAVE_KERNELS, numerics.summarize_array(x)[:3],
              numerics.summarize_strided(x.ctypes.data, numerics.CODE["float32"], (3, 2), (1, 3))[2],
              numerics.compare_arrays(T, T).equal)
    """)
    assert out.strip() == "False (5.0, 0.0, 2.5) 2.5 6"
