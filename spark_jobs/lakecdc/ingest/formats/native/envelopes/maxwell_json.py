"""Maxwell's messages; the rules are those of ``formats.maxwell_json``."""

from __future__ import annotations

from lakecdc.ingest.formats.maxwell_json import LAST_OF_TRANSACTION, NO_ROW_EVENTS
from lakecdc.ingest.formats.native.envelopes.envelope import Envelope, no_whole, times, whole

_MEMBERS = ("type", "database", "table", "ts", "xid", "xoffset", "position")
_OPS = """CASE type WHEN 'insert' THEN 'c' WHEN 'update' THEN 'u' WHEN 'delete' THEN 'd'
  WHEN 'bootstrap-insert' THEN 'r' END"""
# binlog.000012:4567
_FILE = "TRY_CAST(nullif(regexp_extract(\"position\", '(\\d+):\\d+$', 1), '') AS BIGINT)"
_PLACE = "TRY_CAST(nullif(regexp_extract(\"position\", ':(\\d+)$', 1), '') AS BIGINT)"
_NTH = f"coalesce({whole('xoffset')}, {LAST_OF_TRANSACTION})"


def _kind(mine: str) -> str:
    return f"""CASE WHEN gone THEN NULL WHEN {_OPS} IS NOT NULL THEN CASE WHEN {mine} THEN {_OPS} END
      WHEN type IN {NO_ROW_EVENTS} THEN NULL ELSE 'odd' END"""


ENVELOPE = Envelope(
    shape=lambda image, key: {**dict.fromkeys(_MEMBERS, "VARCHAR"), "old": key, "data": image},
    members={name: f'e."{name}"' for name in _MEMBERS},
    image="e.data",
    pointer="'/data'",
    before="e.old",
    source_table='concat_ws(\'.\', "database", "table")',
    kind=_kind,
    position=f"CASE WHEN op = 'r' THEN 0 ELSE coalesce({times(_FILE, 1 << 32, _PLACE)}, {whole('ts')}, 0) END",
    ordinal=times(f"coalesce({whole('xid')}, 0)", LAST_OF_TRANSACTION + 1, _NTH),
    rank="CASE WHEN op = 'r' THEN 0 ELSE 8 END",
    time_us=times(whole("ts"), 1_000_000),
    odd=(no_whole("ts", "xid", "xoffset"),),
)
