"""Read the server's settings, identity and log position."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.mysql.connect import Session, query, variables
from lakecdc.model.positions import Place
from lakecdc.runtime.failpoints import reach

#: setting, required value, and what is wrong with any other value
_NEEDED = (
    ("log_bin", "ON", "it writes no binary log"),
    ("binlog_format", "ROW", "its log lacks the rows that statements changed"),
    ("binlog_row_image", "FULL", "its log leaves out columns of changed rows"),
    ("binlog_row_value_options", "", "its log has only parts of JSON documents"),
    ("binlog_transaction_compression", "OFF", "its log is compressed"),
    ("log_bin_compress", "OFF", "its log is compressed"),
)
_SYNTAX_ERROR = 1064
_GTID_CHARACTERS = 2000
# ends an idle session that holds the global read lock, such as of a dead driver
_LOCKED_IDLE_SECONDS = 10


@dataclass(frozen=True)
class Server:
    """The server's properties that a run needs.

    :param fold: table names are compared without case.
    :param charsets: character set by collation number.
    """

    mariadb: bool
    identity: str
    fold: bool
    checksum: bool
    charsets: dict[int, str]


def read_server(session: Session) -> Server:
    """Read and check the server's settings.

    :raises InputError: its log cannot be used; the message names the setting and what to do.
    """
    names = [name for name, _value, _why in _NEEDED]
    identity = ("version", "server_uuid", "server_id", "gtid_domain_id", "lower_case_table_names", "binlog_checksum")
    settings = variables(session, *names, *identity)
    check_settings(settings)
    mariadb = "mariadb" in settings["version"].lower()
    uuid = settings.get("server_uuid")
    if mariadb or not uuid:
        name = f"mariadb:{settings['server_id']}:{settings.get('gtid_domain_id', '0')}"
    else:
        name = f"mysql:{uuid}"
    fold = settings.get("lower_case_table_names", "0") != "0"
    checksum = settings.get("binlog_checksum", "NONE").upper() == "CRC32"
    return Server(mariadb, name, fold, checksum, _charsets(session))


def check_settings(settings: dict[str, str]) -> None:
    """Refuse settings under which the log lacks changes."""
    for name, needed, why in _NEEDED:
        value = settings.get(name, needed)
        if value.upper() != needed:
            remedy = f"SET GLOBAL {name} = '{needed}'" if name != "log_bin" else "log_bin in its configuration"
            raise InputError(
                f"The source has {name} = {value}: {why}.",
                hint=f"Set {remedy}, also in the server's configuration file, and reconnect all open sessions.",
                setting=name,
            )


def _charsets(session: Session) -> dict[int, str]:
    # since MariaDB 10.10 a collation may belong to several character sets, with one number for each
    try:
        rows = query(
            session, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        )
    except Exception:
        rows = query(session, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
    return {int(number): str(name) for number, name in rows if number is not None and name is not None}


def log_end(session: Session, server: Server) -> tuple[Place, datetime]:
    """Return where the log ends now, and the server's clock just before.

    :raises InputError: there is no log.
    """
    clock = now(session)
    statements = ["SHOW MASTER STATUS"] if server.mariadb else ["SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"]
    for statement in statements:
        try:
            rows = query(session, statement)
        except Exception as error:
            if statement == statements[-1] or not error.args or error.args[0] != _SYNTAX_ERROR:
                raise
        else:
            if rows:
                return Place(rows[0][0], int(rows[0][1])), clock
    raise InputError("The source writes no binary log.", hint="Set log_bin in the server's configuration.")


def now(session: Session) -> datetime:
    return datetime.fromtimestamp(float(query(session, "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0]), UTC)


def begin_snapshot(session: Session, server: Server) -> tuple[Place, datetime]:
    """Begin a transaction whose snapshot is exactly the state at a place in the log; return the place and the clock.

    The end of the log is not such a place: a transaction is in the log before its rows are visible. MariaDB reports the
    place of a snapshot; MySQL needs a short global read lock, which waits until logged transactions are visible. All
    later reads of any session see these transactions too.

    :raises pymysql.MySQLError: another session holds a lock for too long.
    """
    clock = now(session)
    query(session, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if server.mariadb:
        query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = {str(name).lower(): value for name, value in query(session, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
        return Place(status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])), clock
    ((usual,),) = query(session, "SELECT @@SESSION.wait_timeout")
    query(session, f"SET SESSION wait_timeout = {_LOCKED_IDLE_SECONDS}")
    query(session, "FLUSH TABLES WITH READ LOCK")
    try:
        query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        reach("with_read_lock")
        return log_end(session, server)[0], clock
    finally:
        query(session, "UNLOCK TABLES")
        query(session, f"SET SESSION wait_timeout = {usual}")


def gtid_at(session: Session, server: Server, place: Place) -> str:
    """Return transaction identifiers up to a place; for MySQL, whose list is unbounded, some of the current ones."""
    if not server.mariadb:
        executed = str(query(session, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
        # positions must be short, and a part of the list is enough to distinguish logs
        return executed if len(executed) <= _GTID_CHARACTERS else executed[:_GTID_CHARACTERS].rpartition(",")[0]
    return str(query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.pos))[0][0] or "")
