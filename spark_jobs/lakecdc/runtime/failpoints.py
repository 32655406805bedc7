"""Named points where a test can kill or pause a job, to prove that nothing is lost or done twice.

``LAKECDC_FAILPOINT=before_commit=kill`` ends the process there with SIGKILL; ``before_commit=pause:/tmp/flag`` creates
the file ``/tmp/flag`` and waits until it is removed; ``before_commit=raise`` raises. ``before_commit@2=kill`` means the
second time.
"""

from __future__ import annotations

import collections
import os
import signal
import threading
import time
from pathlib import Path

VARIABLE = "LAKECDC_FAILPOINT"
_passes: collections.Counter[str] = collections.Counter()
_counting = threading.Lock()


def reach(moment: str) -> None:
    """Pass a named point, such as ``before_commit``; without a failpoint this has no effect."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return
    where, _, action = setting.partition("=")
    name, _, nth = where.partition("@")
    if name != moment:
        return
    with _counting:
        _passes[moment] += 1
        hit = _passes[moment] == int(nth or 1)
    if hit:
        _act(moment, action)


def _act(moment: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("pause:"):
        flag = Path(action.removeprefix("pause:"))
        flag.touch()
        while flag.exists():
            time.sleep(0.05)
    else:
        raise RuntimeError(f"fail point {moment}")
