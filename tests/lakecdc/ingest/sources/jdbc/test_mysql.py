"""A MariaDB database through the MySQL driver, which is downloaded for this test alone."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest

from local_services.mariadb import MariaDB
from tests.conftest import Lake
from tests.lakecdc.ingest.killing import Run
from tests.lakecdc.ingest.sources.jdbc.conftest import Fed


@pytest.mark.services
@pytest.mark.soak
def test_values_that_spark_would_misread_are_exact(lake: Lake, tmp_path: Path) -> None:
    columns = (
        "id bigint unsigned PRIMARY KEY, v int, flag tinyint(1), bits bit(9), made year, took time(6), n decimal(65,30)"
    )
    values = "18446744073709551615, 1, 5, 258, 0, '-838:59:59.5', 12345678901234567890123456789012345.5"
    with tempfile.TemporaryDirectory(prefix="lakecdc-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with MariaDB(Path(folder) / "data") as server:
            with server.connect() as session, session.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop")
                cursor.execute(f"CREATE TABLE shop.t ({columns})")
                cursor.execute(f"INSERT INTO shop.t VALUES ({values})")
            fed = Fed(lake, f"jdbc:mysql://127.0.0.1:{server.port}/shop", "shop.t", user="root", cursor_column="v")
            report = Run(tmp_path, fed.spec(full_load=True), "").report()
    assert report["tables"][0]["outcome"] == "done", report
    assert fed.rows("id, flag, bits, made, took, n") == [
        (Decimal(2**64 - 1), 5, 258, 0, "-838:59:59.500000", f"12345678901234567890123456789012345.5{'0' * 29}")
    ]
