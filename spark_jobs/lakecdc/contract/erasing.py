"""Options of ``erase_rows``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions, check_quarantine_table
from lakecdc.contract.protection import ApprovableOptions


@dataclass(frozen=True)
class EraseRowsOptions(ApprovableOptions, JobOptions):
    """Options of ``erase_rows``. One of the first three selects the rows; without one the job fails.

    No option contains key values.

    :param keys_table: ``namespace.name`` of a table with the keys, in columns named as the table's key columns.
    :param keys_uri: URI of a file or folder with the keys: ``.parquet``, ``.csv`` with a header, or ``.json``.
    :param condition: SQL over columns outside of the key; it selects the keys of matching rows in the table or its
        history table.
    :param history_tables: history table by table.
    :param further_tables: by table, others with the same key columns, such as exported changes and dimensions.
    :param quarantine_table: as for ``ingest``.
    :param documents_uri: folder of the jobs' specs and reports, which are searched for the keys too.
    :param drop_refs: tags and branches that may be dropped because they keep rows, as names or patterns such as
        ``lakecdc-day-*``.
    :param drop_consumers: consumers that may lose their position, as names or patterns.
    """

    keys_table: str | None = None
    keys_uri: str | None = None
    condition: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    further_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quarantine_table: str | None = None
    documents_uri: str | None = None
    drop_refs: tuple[str, ...] = ()
    drop_consumers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {"keys_table": self.keys_table, "keys_uri": self.keys_uri, "condition": self.condition}
        given = [name for name, value in named.items() if value]
        if len(given) > 1:
            raise SpecError(
                f"options.{' and options.'.join(given)} are set together.", hint="Set one to select the rows."
            )
        check_quarantine_table(self.quarantine_table)

    def refuse_key_in_condition(self, key: Sequence[str], table: str) -> None:
        """Raise a :class:`SpecError` if the condition uses a key column, since a spec must not contain key values."""
        words = {word.lower() for word in re.findall(r"\w+", self.condition or "")}
        if used := [column for column in key if column.lower() in words]:
            raise SpecError(
                f"options.condition uses {used[0]!r}, which is part of the key.",
                table=table,
                hint="Use options.keys_table or options.keys_uri, so that no spec or log contains keys.",
            )
