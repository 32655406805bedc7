"""Read the envelopes of change events: one module a format, in plain Python, without a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakecdc.ingest.envelopes import canal, debezium, debezium_flat, dms, golden_gate, maxwell, plain
from lakecdc.ingest.envelopes.json_values import UnreadableError, parse_json
from lakecdc.ingest.envelopes.message import Envelope, Message, Rows, refuse_bad_names

_FORMATS: dict[str, Rows] = {
    "debezium-json": debezium.read,
    # its records come as the JSON that Debezium would have written
    "debezium-avro": debezium.read,
    "debezium-flat-json": debezium_flat.read,
    "canal-json": canal.read,
    "maxwell-json": maxwell.read,
    "ogg-json": golden_gate.read,
    "dms-json": dms.read,
}


def find_rows(format_name: str, order_by: str | None = None, *, only_added: bool = False) -> Rows:
    """Return how the rows of a format are read.

    :param order_by: of format ``json``: member of a row that tells the order.
    :param only_added: of format ``json``: each message is a row of its own, not the newer state of another.
    :raises KeyError: the format is not JSON.
    """
    if format_name == "json":
        return partial(plain.read, order_by, "c" if only_added else "u")
    return _FORMATS[format_name]


def read_message(rows: Rows, message: Message) -> Iterator[Envelope]:
    """Read the rows of a message; whatever it holds, it ends in envelopes."""
    try:
        value = None if message.value is None else parse_json(message.value)
        yield from map(refuse_bad_names, rows(message, value))
    except UnreadableError as error:
        yield Envelope(None, source_table=message.topic, problem=(error.rule, str(error)))
