"""Several Python threads that ask the kernels at the same time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from msprobe.numerics import CODE


def wrong_answers(kernels: Any, callers: int, size: int) -> list[object]:
    """What is not as it should be, of the statistics of arrays whose elements are all the caller's number."""
    arrays = [np.full(size, number, np.float32) for number in range(callers)]
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(10):
            got = kernels.summarize(arrays[number].ctypes.data, CODE["float32"], size)
            if got[:3] != (number, number, number):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong
