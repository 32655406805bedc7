"""Only old unfinished uploads of the table are aborted."""

from __future__ import annotations

import time

import pytest

from lakecdc.maintain.orphans.storage import abort_old
from local_services.s3 import S3Server
from local_services.s3_gateway import gateway_to

pytestmark = pytest.mark.services
DAY = 24 * 3600


def now_ms(days: float) -> int:
    return int((time.time() + days * DAY) * 1000)


def test_only_old_uploads_below_the_folder_are_aborted(s3: S3Server) -> None:
    client = s3.client()
    for key in ("t/data/a.parquet", "t/data/p=1/b.parquet", "t/metadata/m.avro", "t/data2/c.parquet"):
        client.create_multipart_upload(Bucket="lab", Key=key)

    def left() -> set[str]:
        return {each["Key"] for each in client.list_multipart_uploads(Bucket="lab").get("Uploads", [])}

    before, folder = left(), "s3a://lab/t/data"
    assert abort_old(s3.properties, folder, now_ms(6.9), dry_run=False) == {"uploads_old": 0, "uploads_aborted": 0}
    assert abort_old(s3.properties, folder, now_ms(7.1), dry_run=True) == {"uploads_old": 2, "uploads_aborted": 0}
    assert left() == before
    with gateway_to(s3.port, refuses=lambda kind, _: kind == "ListMultipartUploads") as gateway:
        refused = abort_old({**s3.properties, "s3.endpoint": gateway.endpoint}, folder, now_ms(7.1), dry_run=False)
    assert "AccessDenied" in refused["uploads_note"]
    assert left() == before
    assert abort_old(s3.properties, folder, now_ms(7.1), dry_run=False) == {"uploads_old": 2, "uploads_aborted": 2}
    assert left() == {"t/metadata/m.avro", "t/data2/c.parquet"}
    assert abort_old({}, "file:/t/data", now_ms(7.1), dry_run=False) == {}
