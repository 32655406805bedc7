"""Sample the memory of a process and its children."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_SECONDS = 0.5


@dataclass
class Memory:
    """Resident memory of one process and everything it started, in MiB.

    :param pid: the process.
    :param samples: wall-clock second, then MiB by kind of process: ``driver``, ``jvm``, ``workers``.
    """

    pid: int
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def sample(self) -> None:
        """Take one sample."""
        resident = dict.fromkeys(("driver", "jvm", "workers"), 0.0)
        java = False
        for pid in _tree(self.pid):
            is_java = _program(pid) == "java"
            # a process that the JVM is just starting shares all of its memory until then
            if not (is_java and java):
                resident["driver" if pid == self.pid else "jvm" if is_java else "workers"] += _resident(pid)
            java = java or is_java
        self.samples.append((time.time(), resident))

    def peak(self, kind: str, begin: float = 0, end: float = float("inf")) -> float:
        """Return the peak of one kind between two moments."""
        return max((resident[kind] for at, resident in self.samples if begin <= at <= end), default=0.0)

    def peaks(self) -> dict[str, int]:
        """Return the peaks of each kind, and of all together."""
        peaks = {kind: round(self.peak(kind)) for kind in ("driver", "jvm", "workers")}
        return {**peaks, "together": round(max(sum(resident.values()) for _at, resident in self.samples))}


@contextmanager
def watched(pid: int) -> Iterator[Memory]:
    """Sample a process until the block ends."""
    memory, over = Memory(pid), threading.Event()

    def keep_sampling() -> None:
        while not over.wait(_SECONDS):
            memory.sample()

    thread = threading.Thread(target=keep_sampling, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        over.set()
        thread.join()


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    processes, new = [], [root]
    while new:
        processes += new
        new = [child for pid in new for child in children.get(pid, [])]
    return processes


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(") ")[2].split()
    return int(fields[1]) if fields else 0


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _resident(pid: int) -> float:
    """Return the proportional set size if the kernel reports it, which counts pages shared by forked processes once."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read(pid: int, name: str) -> str:
    """Return a file of ``/proc``; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
