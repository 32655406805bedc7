"""Define the ``source`` of a spec, one module per type of source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import refuse_literals
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.iceberg import IcebergSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.target import Target

Source = FilesSource | IcebergSource | JdbcSource | KafkaSource | MysqlSource | PostgresSource
#: types that feed tables
FEEDING = ("files", "jdbc", "kafka", "mysql", "postgres")
#: types with tables that can be compared
WITH_TABLES = ("iceberg", "jdbc", "mysql", "postgres")
#: parts of a source that name tables and columns, which may be called ``token`` or ``password``
_DATA = ("routes", "text")


def parse_source(document: Any, targets: tuple[Target, ...], types: Sequence[str] = FEEDING) -> Source:
    """Parse and check the spec's ``source``.

    :param targets: the tables that it feeds or is compared with.
    :param types: types that it may have.
    :raises SpecError: a literal secret, an unknown type, or a target that this source cannot feed.
    """
    if not isinstance(document, Mapping):
        raise SpecError("source must be an object.")
    refuse_literals(document, "source", names_are_data=_DATA)
    if document.get("type") not in types:
        raise SpecError(f"source.type is {document.get('type')!r}.", hint=f"It must be one of {', '.join(types)}.")
    source: Source = fields.coerce(Source, document, "source")
    # a database knows the keys of its tables
    if not isinstance(source, JdbcSource | MysqlSource | PostgresSource):
        source.check_targets(targets)
    _check_messages(source, targets)
    return source


def _check_messages(source: Source, targets: tuple[Target, ...]) -> None:
    for target in targets:
        if target.source_tables and not target.is_pattern and not hasattr(source, "format"):
            raise SpecError(
                f"Several tables of a source of type {source.type!r} cannot feed one target.",
                table=target.table,
                hint='Put "{table}" into the target\'s name, or read the shards through Kafka.',
            )
        if target.fold_case and (not hasattr(source, "format") or getattr(source, "has_rows", False)):
            raise SpecError(
                "fold_case is for messages.",
                table=target.table,
                hint="Use the source's names of columns, and rename them with clean.rename.",
            )
