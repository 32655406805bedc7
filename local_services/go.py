"""Get a Go compiler that is new enough on every distribution."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from local_services.process import ServiceError

OLDEST = (1, 25)
TOOLCHAIN = "go1.26.8"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# Otherwise Go reads these from a user's settings file, where GOFLAGS=-mod=vendor breaks `go install`.
ENVIRONMENT: Mapping[str, str] = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOROOT": "", "CGO_ENABLED": "0"}


def run_go(go: str, *arguments: str, folder: Path, **extra: str) -> str:
    """Run the go command.

    :param folder: folder to run in, which must be in no Go module
    """
    environment = {**os.environ, **ENVIRONMENT, **extra}
    done = subprocess.run([go, *arguments], capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode:
        raise ServiceError(f"go {' '.join(arguments)} failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def version_of(text: str) -> tuple[int, int]:
    """Return major and minor version from the output of ``go version``; (0, 0) if it has none.

    :param text: for example ``go version go1.19.8 linux/amd64``
    """
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def find_go(folder: Path) -> str:
    """Return a Go that can compile the S3 server.

    Debian 12 has Go 1.19, which supports no other toolchain. As toolchains are modules, even that one can fetch a newer
    one, verified by Go's checksum database.
    """
    go = shutil.which("go")
    if go is None:
        raise ServiceError("Go is missing. Run apt-get install golang-go")
    if version_of(run_go(go, "version", folder=folder)) >= OLDEST:
        return go
    return fetch_toolchain(go, folder)


def fetch_toolchain(go: str, folder: Path) -> str:
    """Fetch a newer Go into the module cache with an older one, and return its path."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    module = f"golang.org/toolchain@v0.0.1-{TOOLCHAIN}.linux-{architecture}"
    place = Path(json.loads(run_go(go, "mod", "download", "-json", module, folder=folder))["Dir"])
    # Modules have no execute permission; newer versions of Go set it like this.
    for program in (*place.glob("bin/*"), *place.glob("pkg/tool/*/*")):
        program.chmod(0o755)
    return str(place / "bin" / "go")
