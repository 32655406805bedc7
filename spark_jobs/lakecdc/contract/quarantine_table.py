"""The option ``quarantine_table`` of the jobs that have one."""

from __future__ import annotations

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.names import quarantine_of


def check_quarantine_table(named: str | None) -> None:
    """Refuse a name of quarantines that no target can have one by.

    :raises SpecError: it has no namespace, or other fields than ``{namespace}`` and ``{table}``.
    """
    try:
        parts = quarantine_of("namespace.table", named).split(".")
    except (KeyError, IndexError, ValueError):
        parts = []
    if len(parts) < 2 or not all(parts):
        raise SpecError(
            f"options.quarantine_table is {named!r}.",
            hint='It must be "namespace.name"; {namespace} and {table} in it are replaced by those of each target.',
        )
