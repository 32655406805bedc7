"""Messages of AWS DMS; the rules are those of ``formats.dms_json``."""

from __future__ import annotations

from collections.abc import Sequence

from lakecdc.ingest.formats.dms_json import OLD_PREFIX
from lakecdc.ingest.formats.native.envelopes.envelope import Envelope
from lakecdc.ingest.formats.native.exact import exact_instant, instant

_METADATA = ("operation", "record-type", "schema-name", "table-name", "commit-timestamp", "timestamp")
_OPS = """CASE m."operation" WHEN 'load' THEN 'r' WHEN 'insert' THEN 'c' WHEN 'update' THEN 'u'
  WHEN 'delete' THEN 'd' END"""
_MOMENT = 'coalesce(m."commit-timestamp", m."timestamp")'


def _kind(mine: str) -> str:
    return f"""CASE WHEN gone THEN NULL WHEN m."operation" = 'truncate-table' THEN CASE WHEN {mine} THEN 'odd' END
      WHEN m."record-type" = 'control' AND m."operation" IS NOT NULL THEN NULL
      WHEN {_OPS} IS NOT NULL THEN CASE WHEN {mine} THEN {_OPS} END ELSE 'odd' END"""


def _columns(names: Sequence[str]) -> list[str]:
    # a column may be called so by itself
    return [n for n in names if not (n.startswith(OLD_PREFIX) and n.removeprefix(OLD_PREFIX) in names)]


ENVELOPE = Envelope(
    shape=lambda image, key: {
        "metadata": dict.fromkeys(_METADATA, "VARCHAR"),
        "before-image": key,
        "data": image,
    },
    members={"m": "e.metadata"},
    image="e.data",
    pointer="'/data'",
    before='e."before-image"',
    old_prefix=OLD_PREFIX,
    columns=_columns,
    source_table='concat_ws(\'.\', m."schema-name", m."table-name")',
    kind=_kind,
    position=f"CASE WHEN op = 'r' THEN 0 ELSE coalesce({instant(_MOMENT)}, 0) END",
    rank="CASE WHEN op = 'r' THEN 0 ELSE 8 END",
    time_us=instant(_MOMENT),
    odd=((f"{_MOMENT} IS NOT NULL AND NOT ({exact_instant(_MOMENT)})", "a time of another form"),),
)
