"""Python writes files to the same place and with the same credentials as the table's FileIO."""

from __future__ import annotations

import re
from pathlib import Path

from lakecdc.iceberg.file_io import discard_folder, new_folder, output, storage_properties, to_pyiceberg
from tests.conftest import Lake


def test_only_storage_settings_reach_the_tasks() -> None:
    java = {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.path-style-access": "true",
        "s3.secret-access-key": "k",
        "client.region": "eu-central-1",
        "jdbc.password": "of the catalog",
        "uri": "jdbc:postgresql://h/d",
        "warehouse": "s3://warehouse",
    }
    assert to_pyiceberg(java) == {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.force-virtual-addressing": "false",
        "s3.secret-access-key": "k",
        "client.region": "eu-central-1",
    }
    assert to_pyiceberg({"s3.path-style-access": "false"}) == {"s3.force-virtual-addressing": "true"}


def test_written_files_lie_below_the_data_location_and_can_be_discarded(lake: Lake) -> None:
    name = lake.new_name("io")
    lake.sql(f"CREATE TABLE lake.{name} (id int) USING iceberg")
    table = lake.table(name)
    folder = new_folder(table, "deletes")
    assert re.fullmatch(rf"{table.location}/data/lakecdc-\w+-\d{{8}}T\d{{6}}Z-\w+/deletes-[^/]+", folder)
    location = f"{folder}/Zürich %2F €.parquet"
    with output(storage_properties(table), location) as stream:
        stream.write(b"abc")
    assert Path(location.removeprefix("file:")).read_bytes() == b"abc"
    assert table.java.io().newInputFile(location).getLength() == 3
    discard_folder(table, folder)
    assert not Path(folder.removeprefix("file:")).exists()
    discard_folder(table, folder)


def test_folder_follows_the_tables_own_data_path(lake: Lake) -> None:
    name = lake.new_name("io")
    elsewhere = f"file:{lake.folder}/elsewhere"
    lake.sql(f"CREATE TABLE lake.{name} (id int) USING iceberg TBLPROPERTIES ('write.data.path'='{elsewhere}')")
    assert new_folder(lake.table(name), "deletes").startswith(elsewhere)
