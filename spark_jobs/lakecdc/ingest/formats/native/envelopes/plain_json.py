"""JSON objects that are rows; the rules are those of ``formats.plain_json``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lakecdc.ingest.formats.native.envelopes.envelope import Envelope, whole
from lakecdc.ingest.formats.native.exact import exact_instant, instant

_NUMBER = "regexp_full_match(placed, '-?\\d{1,19}')"


def _kind(mine: str, op: str = "u") -> str:
    return f"CASE WHEN gone THEN 'x' WHEN a IS NULL THEN 'odd' WHEN {mine} THEN '{op}' END"


def _ordered_by(envelope: Envelope, name: str) -> Envelope:
    """Messages whose order a member of the row tells, a number or a time."""
    position = f"CASE WHEN {_NUMBER} THEN {whole('placed')} ELSE {instant('placed')} END"
    fits = f"({_NUMBER} AND {whole('placed')} IS NOT NULL) OR ({exact_instant('placed')})"
    strange = (f"op != 'x' AND NOT coalesce({fits}, false)", "an order of another form")
    return replace(envelope, beside={"placed": name}, position=position, turned=True, odd=(strange,))


ENVELOPE = Envelope(
    shape=lambda image, key: image,
    image="e",
    pointer="''",
    by_hand=True,
    kind=_kind,
    record_key='CASE WHEN "value" IS NULL THEN decode("key") END',
    key=lambda column, text: f"CASE kind WHEN 'x' THEN record_key.{column} ELSE {text} END",
    time_us="stamped",
    stamped=True,
    ordered_by=_ordered_by,
    kind_of_added=partial(_kind, op="c"),
)
