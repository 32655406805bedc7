"""GoldenGate's messages; the rules are those of ``formats.ogg_json``."""

from __future__ import annotations

from lakecdc.ingest.formats.native.envelopes.envelope import Envelope, digits
from lakecdc.ingest.formats.native.exact import exact_instant, instant

_MEMBERS = ("op_type", "table", "pos", "op_ts")
_OPS = "CASE upper(op_type) WHEN 'I' THEN 'c' WHEN 'U' THEN 'u' WHEN 'D' THEN 'd' END"


def _kind(mine: str) -> str:
    return f"""CASE WHEN gone THEN NULL WHEN {_OPS} IS NOT NULL OR upper(op_type) = 'T' THEN
      CASE WHEN {mine} THEN coalesce({_OPS}, 'odd') END ELSE 'odd' END"""


ENVELOPE = Envelope(
    shape=lambda image, key: {**dict.fromkeys(_MEMBERS, "VARCHAR"), "before": key, "after": image},
    members={"op_type": "e.op_type", "of_table": 'e."table"', "trail": "e.pos", "op_ts": "e.op_ts"},
    image="e.after",
    pointer="'/after'",
    before="e.before",
    source_table="of_table",
    kind=_kind,
    key=lambda column, text: f"CASE kind WHEN 'd' THEN b.{column} ELSE {text} END",
    position=f"coalesce({digits('trail')}, 0)",
    time_us=instant("op_ts"),
    odd=((f"op_ts IS NOT NULL AND NOT ({exact_instant('op_ts')})", "a time of another form"),),
)
