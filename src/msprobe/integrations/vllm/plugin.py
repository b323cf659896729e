"""What vLLM calls in every process that it starts (entry point `vllm.general_plugins`).

Without MSPROBE_CONFIG in the environment it returns at once and has imported nothing.
"""

from __future__ import annotations

import os

VARIABLE = "MSPROBE_CONFIG"
"""Names the config.json that a vLLM engine is recorded with."""


def register() -> None:
    """Watch the model runners of this process, if the environment says so; never raises."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        from msprobe.integrations.vllm import importing, runner

        importing.when_imported(runner.MODULES, lambda module: runner.watch(module, path))
    except Exception as error:
        import logging

        logging.getLogger("msprobe").error("vLLM will not be recorded: %r", error)
