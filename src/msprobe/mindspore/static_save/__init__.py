"""save, save_grad and step: single values of compiled graphs and of PyNative, each as one `.npy`."""

from __future__ import annotations

from msprobe.mindspore.static_save.calls import save, save_grad, step

__all__ = ["save", "save_grad", "step"]
