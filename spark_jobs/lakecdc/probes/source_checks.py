"""Check a spec's source without Spark: ``python -m lakecdc.probes.source_checks < question.json``.

The question is that of :mod:`lakecdc.probes.preflight`, the output a JSON list of
:class:`lakecdc.contract.findings.Finding`. The checks are the functions that a job runs when it starts; nothing is
created, moved or locked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.findings import Finding, tried
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.probe_api import start_findings
from lakecdc.probes import jdbc_checks, local_files
from lakecdc.probes.preflight import read_question

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.metadata.positions import Position


def main() -> int:
    """Check the source of the spec on standard input; return 0, whatever the result."""
    document, positions = read_question()
    results = list(findings(parse_spec(document), positions))
    print(json.dumps([finding.facts() for finding in results]))
    return 0


def findings(spec: JobSpec, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check a feeding spec's source; ``positions`` are of tables that were fed, None if unknown."""
    source = spec.source
    if isinstance(source, FilesSource):
        for path in source.paths:
            yield tried("source files", _path, path)
    elif isinstance(source, JdbcSource):
        yield from jdbc_checks.findings(spec, source)
    else:
        yield from start_findings(spec, positions)


def _path(path: str) -> str:
    local_files.check_path(path)
    return path if local_files.is_local(path) else f"{path}, which only the job can look at"


if __name__ == "__main__":
    sys.exit(main())
