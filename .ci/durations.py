"""Print the slowest folders, files and tests of junit reports.

Standard library only, as it also runs after a failed setup.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

SHOWN = 30


def main() -> None:
    """Print the lists of each report that exists."""
    for name in sys.argv[1:]:
        if Path(name).is_file():
            show(Path(name))


def show(report: Path) -> None:
    """Print the slowest files and tests of one report.

    :param report: junit XML as pytest writes it.
    """
    tests: dict[str, float] = defaultdict(float)
    files: dict[str, float] = defaultdict(float)
    folders: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        seconds = float(case.get("time", 0))
        module = case.get("classname", "")
        tests[f"{module}::{case.get('name')}"] += seconds
        files[module] += seconds
        folders[".".join(part for part in module.split(".") if not part.startswith(("test_", "Test")))] += seconds
    print(f"=== slowest of {report.stem}: {sum(files.values()):.0f} s in {len(tests)} tests, {len(files)} files")
    for title, counted in (("folders", folders), ("files", files), ("tests", tests)):
        print(f"--- {title}")
        for name, seconds in sorted(counted.items(), key=lambda each: -each[1])[:SHOWN]:
            print(f"{seconds:7.1f} s  {name}")


if __name__ == "__main__":
    main()
