"""The ``source`` part of an ingest spec: where changes come from, one module per type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.target import Target

Source = FilesSource | JdbcSource | KafkaSource | MysqlSource | PostgresSource
_TYPES: dict[str, type[Source]] = {
    "files": FilesSource,
    "jdbc": JdbcSource,
    "kafka": KafkaSource,
    "mysql": MysqlSource,
    "postgres": PostgresSource,
}


def parse_source(document: Any, targets: tuple[Target, ...]) -> Source:
    """Check the spec's ``source``.

    :param targets: the tables it is to feed.
    :raises SpecError: an unknown type, or a target that this source cannot feed.
    """
    if not isinstance(document, Mapping):
        raise SpecError("source must be an object.")
    kind = document.get("type")
    if kind not in _TYPES:
        raise SpecError(f"source.type is {kind!r}.", hint=f"It must be one of {', '.join(_TYPES)}.")
    source = fields.parse(_TYPES[kind], document, "source")
    source.check_targets(targets)
    _check_shards(source, targets)
    return source


def _check_shards(source: Source, targets: tuple[Target, ...]) -> None:
    for target in targets:
        if target.source_tables and not target.is_pattern and not hasattr(source, "format"):
            raise SpecError(
                f"Several tables of a source of type {source.type!r} cannot feed one target.",
                table=target.table,
                hint='Put "{table}" into the target\'s name, or read the shards through Kafka.',
            )
