"""Install Debian packages without starting their daemons."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")


def install(packages: Sequence[str]) -> None:
    """Install packages with apt-get, as root."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    with no_daemons(POLICY):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def no_daemons(policy: Path) -> Iterator[None]:
    """Keep packages from starting their daemons during the block; an existing policy stays.

    :param policy: the script that Debian's packages run first; its exit status 101 forbids the start
    """
    if policy.exists() or not policy.parent.is_dir():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()
