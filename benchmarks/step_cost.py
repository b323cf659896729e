"""Time one training step with or without a precision debugger.

usage: python step_cost.py {none|statistics|tensor} {L0|L1|mix} {statistics|md5|xor|async} {s|m|l} [steps]

Runs under whichever `msprobe` the interpreter has, so the same file measures this project and the reference tool,
each from its own virtual environment. Prints one line:
RES <arguments> median_ms <x> first_ms <y> bytes_per_step <n> files_per_step <k> rss_step20_mb <m> rss_last_mb <m>

With DROP_STEPS in the environment, what a step wrote is removed before the next begins, outside of the time measured: files then take
memory that the system has already, and what is measured is less a matter of how fast a virtual machine is given more.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import torch
from workload import Model, batch, train

task, level, summary, size = sys.argv[1:5]
steps = int(sys.argv[5]) if len(sys.argv) > 5 else 12
torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("THREADS", "2")))


def resident_mb():
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


debugger = out = None
if task != "none":
    out = tempfile.mkdtemp(dir=os.environ.get("DUMP_DIR", "."))
    config = {
        "task": task,
        "dump_path": os.path.join(out, "dump"),
        "rank": [],
        "step": [],
        "level": level,
        "extra_info": True,
        "async_dump": summary == "async",
        "risk_level": "ALL",
        task: {
            "scope": [],
            "list": ["Tensor", "Functional", "Torch", "Module"] if summary == "async" and task == "tensor" else [],
            "data_mode": ["all"],
            "summary_mode": "statistics" if summary == "async" else summary,
        },
    }
    path = os.path.join(out, "config.json")
    with open(path, "w") as f:
        json.dump(config, f)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=path)

size_bytes = files = 0


def size_up():
    """Count what lies in the dump."""
    global size_bytes, files
    seen = set()
    for root, _, names in os.walk(out):
        for name in names:
            st = os.stat(os.path.join(root, name))
            files += 1
            if st.st_ino not in seen:  # a hard-linked file takes its space once
                seen.add(st.st_ino)
                size_bytes += st.st_size


model = Model(size)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
times = []
rss_step20 = 0.0
for number in range(1, steps + 1):
    ids = batch(size)
    began = time.perf_counter()
    if debugger:
        debugger.start(model=model)
    train(model, optimizer, ids)
    if debugger:
        debugger.stop()
        debugger.step()
    times.append(time.perf_counter() - began)
    if out and "DROP_STEPS" in os.environ:
        size_up()
        for name in os.listdir(os.path.join(out, "dump")):
            shutil.rmtree(os.path.join(out, "dump", name))
    if number == 20:
        rss_step20 = resident_mb()
rss_last = resident_mb()

if out:
    size_up()
    if "KEEP_DUMP" not in os.environ:
        shutil.rmtree(out)
print(
    "RES",
    task,
    level,
    summary,
    size,
    "median_ms",
    round(1e3 * statistics.median(times[1:]), 2),
    "first_ms",
    round(1e3 * times[0], 1),
    "bytes_per_step",
    size_bytes // steps,
    "files_per_step",
    files // steps,
    "rss_step20_mb",
    round(rss_step20, 2),
    "rss_last_mb",
    round(rss_last, 2),
)
