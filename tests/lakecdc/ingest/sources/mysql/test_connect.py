"""Sessions that cannot be used, without a server."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pymysql
import pytest

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.ingest.sources.mysql.connect import Address, connect
from local_services.process import free_port


def where(port: int) -> Address:
    return Address(MysqlSource(host="127.0.0.1", port=port, user="u", password=None, ssl="disabled"), "p")


def test_connection_errors_give_the_systems_reason() -> None:
    with pytest.raises(SourceUnavailableError, match="cannot be reached: Connection refused") as caught:
        connect(where(free_port()))
    assert "Can't connect" not in str(caught.value)


def test_a_session_without_keep_alive_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = MagicMock()
    session._sock.setsockopt.side_effect = OSError(22, "Invalid argument")
    monkeypatch.setattr(pymysql, "connect", lambda **_: session)
    with pytest.raises(SourceUnavailableError, match="Invalid argument"):
        connect(where(1))
    session.close.assert_called_once()
