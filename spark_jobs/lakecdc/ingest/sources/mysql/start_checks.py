"""Whether positions are those that tables can go on from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.model.positions import BinlogPosition

if TYPE_CHECKING:
    from lakecdc.ingest.sources.mysql.connect import Session
    from lakecdc.ingest.sources.mysql.server import Server
    from lakecdc.metadata.positions import Position

TYPE = "mysql"


def check_identity(name: str, position: Position, server: Server, where: str) -> None:
    """Refuse a position that another source has given.

    :param name: the table.
    :param where: the server is, for messages.
    :raises InputError: saying what differs.
    """
    if position.source != TYPE:
        raise InputError(f"The table was fed from a source of type {position.source}.", table=name)
    if position.identity != server.identity:
        raise InputError(
            f"Its position {BinlogPosition.of(position.offsets)} belongs to the log of {position.identity}, but the "
            f"server at {where} is {server.identity}: another server, a restored one, or a replica "
            "that was promoted. Positions mean nothing in another server's log.",
            table=name,
            hint='Give the right source.host, or run once with "reload": ["*"] in options to load the tables anew.',
        )


def check_place(session: Session, server: Server, name: str, at: BinlogPosition, created: Callable[[str], int]) -> None:
    """Refuse a position that the log does not hold any more.

    :param name: the table.
    :param created: when a log file was made.
    :raises InputError: saying why.
    """
    wrong = servers.check_place(session, server, at.place, at.gtid)
    if not wrong and at.created and at.created != created(at.place.file):
        wrong = f"The log file {at.place.file} was made anew at the source, whose log was reset"
    if wrong:
        raise full_load_needed(wrong, name)
