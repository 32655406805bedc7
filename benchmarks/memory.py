"""Memory that a process and those it has started have resident."""

from __future__ import annotations


def resident(pid: int) -> dict[str, int]:
    """Return the MiB of the Java processes and of all others, by ``jvm`` and ``python``."""
    import psutil

    now = {"jvm": 0, "python": 0}
    me = psutil.Process(pid)
    for process in (me, *me.children(recursive=True)):
        try:
            now["jvm" if process.name() == "java" else "python"] += process.memory_info().rss // 2**20
        except psutil.NoSuchProcess:
            # a worker has ended meanwhile
            continue
    return now
