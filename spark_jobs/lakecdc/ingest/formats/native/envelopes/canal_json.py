"""Canal's flat messages; the rules are those of ``formats.canal_json``."""

from __future__ import annotations

from lakecdc.ingest.formats.canal_json import DDL, OPS, ROWS_BITS, columns, doubted
from lakecdc.ingest.formats.native.envelopes.envelope import Envelope, no_whole, times, whole

_MEMBERS = ("type", "database", "table", "es", "ts", "id", "isDdl", "sql")
_TYPE = "upper(type)"
_OP = OPS.format(_TYPE)
_TRUNCATE = f"({_TYPE} = 'TRUNCATE' OR regexp_matches(sql, '(?i)^\\s*truncate\\b'))"
_ES = f"coalesce({whole('es')}, {whole('ts')}, 0)"


def _kind(mine: str) -> str:
    return f"""CASE WHEN gone THEN NULL WHEN coalesce({_TRUNCATE}, false) THEN CASE WHEN {mine} THEN 'odd' END
      WHEN {_OP} IS NOT NULL THEN CASE WHEN a IS NULL THEN 'odd' WHEN {mine} THEN {_OP} END
      WHEN coalesce("isDdl" = 'true' OR {_TYPE} IN {DDL}, false) THEN NULL ELSE 'odd' END"""


ENVELOPE = Envelope(
    shape=lambda image, key: {
        **dict.fromkeys(_MEMBERS, "VARCHAR"),
        "mysqlType": "MAP(VARCHAR, VARCHAR)",
        "old": [key],
        "data": [image],
    },
    members={name: f'e."{name}"' for name in _MEMBERS},
    rows="e.data",
    image="image",
    pointer="'/data/' || nth",
    told='e."mysqlType"',
    fields_told=columns,
    doubted=doubted,
    before="e.old[nth + 1]",
    source_table='concat_ws(\'.\', "database", "table")',
    kind=_kind,
    position=f"CASE WHEN op = 'r' THEN 0 ELSE {_ES} END",
    ordinal=times(f"coalesce({whole('id')}, 0)", 1 << ROWS_BITS, "nth"),
    rank="CASE WHEN op = 'r' THEN 0 ELSE 8 END",
    time_us=times(_ES, 1000),
    odd=(no_whole("es", "ts", "id"),),
)
