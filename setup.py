"""Builds the optional C kernels; everything else is in pyproject.toml."""

from __future__ import annotations

import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# CPython without the GIL has no stable ABI yet; there the kernels are built for the one version.
STABLE_ABI = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str, source: str, depends: list[str] | None = None) -> Extension:
    """An extension module of the stable ABI; without a compiler the install succeeds, and Python does the work."""
    return Extension(
        name,
        sources=[source],
        depends=depends or [],
        define_macros=[("Py_LIMITED_API", "0x030A0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        optional=True,
    )


class BuildKernels(build_ext):
    """Adds the flags that depend on which compiler was found."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "msvc":
            ext.extra_compile_args = ["/O2", "/fp:precise", "/std:c11"]
        else:
            # No contraction: results must not depend on whether the CPU has fused multiply-add.
            ext.extra_compile_args = ["-std=gnu99", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
            ext.libraries = ["m", "pthread"] if self.compiler.compiler_type == "unix" else ["m"]
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[
        extension("msprobe.numerics._kernels", "src/msprobe/numerics/_kernels.c", sorted(glob("src/msprobe/numerics/csrc/*"))),
        extension("msprobe.comparison._rows", "src/msprobe/comparison/_rows.c", sorted(glob("src/msprobe/comparison/_*.h"))),
        extension("msprobe.comparison._entries", "src/msprobe/comparison/_entries.c", sorted(glob("src/msprobe/comparison/_*.h"))),
        extension("msprobe.comparison._measuring", "src/msprobe/comparison/_measuring.c", sorted(glob("src/msprobe/comparison/_*.h"))),
        extension("msprobe.comparison._csv_rows", "src/msprobe/comparison/_csv_rows.c", sorted(glob("src/msprobe/comparison/_*.h"))),
        extension("msprobe.comparison.alignment._marks", "src/msprobe/comparison/alignment/_marks.c"),
        extension("msprobe.comparison.judging._verdicts", "src/msprobe/comparison/judging/_verdicts.c"),
        extension("msprobe.comparison.judging._weighing", "src/msprobe/comparison/judging/_weighing.c"),
        extension(
            "msprobe.format._tensor_files",
            "src/msprobe/format/_tensor_files.c",
            [*sorted(glob("src/msprobe/format/csrc/*")), "src/msprobe/numerics/csrc/crc32.h"],
        ),
        extension("msprobe.recording._frames", "src/msprobe/recording/_frames.c", ["src/msprobe/recording/csrc/walk.h"]),
        extension(
            "msprobe.writer._entry", "src/msprobe/writer/_entry.c", ["src/msprobe/writer/csrc/entry.h", "src/msprobe/numerics/csrc/base.h"]
        ),
        extension(
            "msprobe.writer._tensor_queue",
            "src/msprobe/writer/_tensor_queue.c",
            [
                *sorted(glob("src/msprobe/writer/csrc/*")),
                *sorted(glob("src/msprobe/format/csrc/*")),
                "src/msprobe/numerics/csrc/crc32.h",
            ],
        ),
        extension(
            "msprobe.pytorch.dump._hot",
            "src/msprobe/pytorch/dump/_hot.c",
            [
                *sorted(glob("src/msprobe/pytorch/dump/csrc/*")),
                "src/msprobe/numerics/csrc/shared.h",
                "src/msprobe/recording/csrc/walk.h",
            ],
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if STABLE_ABI else {},
)
