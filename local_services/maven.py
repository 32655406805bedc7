"""Command lines of Maven."""

from __future__ import annotations

from pathlib import Path


def copy_dependencies(pom: Path, folder: Path) -> list[str]:
    """Return the command that copies a pom's runtime dependencies into a folder."""
    return [*maven(pom), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]


def maven(pom: Path | None = None) -> list[str]:
    """Return the command without goals, in batch mode without progress; its output still begins with a colour reset."""
    return ["mvn", "-B", "-ntp", "-q", "-Dstyle.color=never", *(["-f", str(pom)] if pom else [])]
