"""Whether the source of a spec can be read, without Spark: ``python -m lakecdc.probes.source_checks < spec.json``.

It prints a JSON list of :class:`lakecdc.contract.findings.Finding`. What a job asks of its source when it starts is
asked here by the same functions; nothing is made, moved or locked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakecdc.contract.findings import Finding, tried
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import loads, parse_spec
from lakecdc.probes import preflight

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec


def main() -> int:
    """Check the source of the spec that stands on the standard input.

    :return: 0, whatever has been found.
    """
    found = list(findings(parse_spec(loads(sys.stdin.read()))))
    print(json.dumps([finding.facts() for finding in found]))
    return 0


def findings(spec: JobSpec) -> Iterator[Finding]:
    """Look at a spec's source.

    :param spec: of a job that feeds tables.
    """
    source = spec.source
    if isinstance(source, PostgresSource):
        from lakecdc.ingest.sources.postgres import checks as postgres

        yield from postgres.findings(spec, source)
    elif isinstance(source, MysqlSource):
        from lakecdc.ingest.sources.mysql import checks as mysql

        yield from mysql.findings(spec, source)
    elif isinstance(source, KafkaSource):
        from lakecdc.ingest.sources.kafka import checks as kafka

        yield from kafka.findings(spec, source)
    elif isinstance(source, FilesSource):
        for path in source.paths:
            yield tried("source files", _path, path)
    elif isinstance(source, JdbcSource):
        yield tried("source", _jdbc, source)


def _path(path: str) -> str:
    preflight.check_path(path)
    return path if preflight.is_local(path) else f"{path}, which only the job can look at"


def _jdbc(source: JdbcSource) -> str:
    preflight.check_jdbc(source)
    return f"{source.url} takes the login" if source.dialect != "sqlite" else f"{source.url} is there"


if __name__ == "__main__":
    sys.exit(main())
