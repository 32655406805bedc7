"""Global transaction identifiers, as the log's events tell them and as a position keeps them."""

from __future__ import annotations

import struct
from uuid import UUID

GTID, ANONYMOUS, TAGGED, MARIADB = 33, 34, 42, 162
#: fields of a tagged identifier, which come in this order
_FLAGS, _UUID, _NUMBER, _TAG = range(4)


def gtid_of(event: bytes, kind: int, server: int) -> str:
    """Return the identifier of the transaction that an event begins; empty if it has none.

    Layouts: MySQL's classes ``Gtid_event`` and ``Gtid_log_event`` (``mysql/serialization``), MariaDB's "GTID_EVENT".

    :param event: with its header.
    :param server: number of the server that wrote the event.
    """
    if kind == MARIADB:
        sequence, domain = struct.unpack_from("<QI", event, 19)
        return f"{domain}-{server}-{sequence}"
    if kind == GTID:
        return f"{UUID(bytes=event[20:36])}:{int.from_bytes(event[36:44], 'little')}"
    return _tagged(event) if kind == TAGGED else ""


def _tagged(event: bytes) -> str:
    at = 19
    # version, size, and the last field that a reader has to know
    for _ in range(3):
        _value, at = _integer(event, at)
    source, number, tag = b"", 0, ""
    while not tag:
        field, at = _integer(event, at)
        value, at = _integer(event, at)
        if field == _UUID:
            octets = [value]
            for _ in range(15):
                value, at = _integer(event, at)
                octets.append(value)
            source = bytes(octets)
        elif field == _NUMBER:
            # the lowest bit is the sign
            number = value >> 1
        elif field == _TAG:
            tag, at = event[at : at + value].decode(), at + value
    return f"{UUID(bytes=source)}:{tag}:{number}"


def _integer(event: bytes, at: int) -> tuple[int, int]:
    """Return an integer behind as many set bits as it has further bytes, and where it ends."""
    first = event[at]
    further = (first ^ (first + 1)).bit_length() - 1
    end = at + 1 + further
    value = int.from_bytes(event[at:end], "little")
    return value >> min(further + 1, 8), end


def merged_gtid(before: str, last: str) -> str:
    """Return what was read last, by replication domain, after another transaction.

    :param before: the same before it.
    :param last: the transaction's identifier; empty if there was none.
    """
    if not last or ":" in last:
        return last or before
    domains = {part.split("-")[0]: part for part in (*filter(None, before.split(",")), last)}
    return ",".join(domains.values())
