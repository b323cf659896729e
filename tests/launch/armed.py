"""Stands for the start of Python below `msprobe run`, in a process where torch is loaded already: `armed.py script.py arguments...`."""

import os
import runpy
import sys

sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
if "MSPROBE_RUN" in os.environ:
    from msprobe.launch.arming import arm

    arm()
runpy.run_path(sys.argv[0], run_name="__main__")
