"""Builds the optional C kernels; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "msprobe.numerics._kernels",
            sources=["src/msprobe/numerics/_kernels.c"],
            extra_compile_args=["-O3", "-fno-math-errno"],
            libraries=["m", "pthread"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            py_limited_api=True,
            optional=True,  # no compiler: the install succeeds and numpy does the work
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
