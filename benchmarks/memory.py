"""Measure the resident memory of a process and its descendants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SAMPLE_SECONDS = 0.5


def resident(pid: int) -> dict[str, int]:
    """Return the MiB of the Java processes and of all others, by ``jvm`` and ``python``."""
    import psutil

    now = {"jvm": 0, "python": 0}
    me = psutil.Process(pid)
    for process in (me, *me.children(recursive=True)):
        try:
            now["jvm" if process.name() == "java" else "python"] += process.memory_info().rss // 2**20
        except psutil.NoSuchProcess:
            # the worker ended meanwhile
            continue
    return now


@contextmanager
def peak_resident(pid: int) -> Iterator[dict[str, int]]:
    """Sample the resident memory of a process and its children during the ``with`` block.

    :return: peak MiB of each kind so far, and of both together as ``all``.
    """
    peak, over = {"jvm": 0, "python": 0, "all": 0}, threading.Event()
    sampler = threading.Thread(target=_sample, args=(pid, peak, over), daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        over.set()
        sampler.join()


def _sample(pid: int, peak: dict[str, int], over: threading.Event) -> None:
    import psutil

    while True:
        try:
            now = resident(pid)
        except psutil.NoSuchProcess:
            return
        now["all"] = sum(now.values())
        for kind, size in now.items():
            peak[kind] = max(peak[kind], size)
        if over.wait(_SAMPLE_SECONDS):
            return
