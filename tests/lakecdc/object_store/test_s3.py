"""S3 of versitygw and moto, and through a proxy with faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakecdc.contract.errors import InputError, SourceUnavailableError, UnsupportedError
from lakecdc.object_store import proof
from lakecdc.object_store.open_catalog import open_storage
from lakecdc.object_store.s3 import S3Storage
from lakecdc.object_store.storage import Answer
from local_services.catalogs import Glue
from local_services.s3 import S3Server
from tests.lakecdc.object_store import fault_proxy as faults
from tests.lakecdc.object_store.fault_proxy import Fault, FaultProxy
from tests.lakecdc.object_store.storages import check_storage

pytestmark = pytest.mark.services
BUCKET = "s3://lake"


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glue]:
    """Start a server that checks no signatures, so that a proxy may change requests."""
    with Glue(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(moto: Glue) -> Iterator[FaultProxy]:
    with FaultProxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def behind_proxy(moto: Glue, proxy: FaultProxy) -> S3Storage:
    return S3Storage({**moto.properties, "s3.endpoint": proxy.endpoint, "s3.request-timeout": "0.5"})


@pytest.fixture
def slow(proxy: FaultProxy, behind_proxy: S3Storage) -> Iterator[S3Storage]:
    """Yield a storage behind the proxy with a timeout of half a second."""
    proxy.fault, proxy.attempts = None, 0
    yield behind_proxy
    proxy.fault = None


def test_versitygw_supports_conditional_writes(s3: S3Server) -> None:
    check_storage(open_storage("s3://lab", s3.properties), "s3://lab/kept")
    check_storage(open_storage("s3a://lab", s3.properties), "s3a://lab/kept")


def test_moto_supports_conditional_writes(moto: Glue) -> None:
    check_storage(S3Storage(moto.properties), f"{BUCKET}/kept")


def test_listings_have_several_pages(moto: Glue) -> None:
    storage = S3Storage(moto.properties)
    storage._client.meta.events.register(
        "before-parameter-build.s3.ListObjectsV2", lambda params, **_: params.update(MaxKeys=2)
    )
    locations = [f"{BUCKET}/pages/{number}" for number in range(5)]
    for location in locations:
        storage.create(location, b"")
    assert [each.location for each in storage.list(f"{BUCKET}/pages/")] == locations


@pytest.mark.parametrize(
    ("changes", "bucket", "hint"),
    [
        ({}, "nowhere", "the bucket must exist"),
        ({"s3.secret-access-key": "wrong"}, "lab", "Check the keys"),
    ],
)
def test_a_rejected_request_names_the_remedy(s3: S3Server, changes: dict[str, str], bucket: str, hint: str) -> None:
    storage, location = S3Storage({**s3.properties, **changes}), f"s3://{bucket}/lake/a"
    asks: list[Callable[[], object]] = [
        lambda: storage.create(location, b"1"),
        lambda: storage.replace(location, b"1", '"0"'),
        lambda: storage.read(location),
        lambda: list(storage.list(location)),
    ]
    for ask in asks:
        with pytest.raises(InputError, match=hint):
            ask()


def test_credentials_of_other_clients_are_accepted(s3: S3Server) -> None:
    renamed = {key: value for key, value in s3.properties.items() if "key" not in key}
    keys = {"client.access-key-id": s3.access_key, "client.secret-access-key": s3.secret_key}
    assert S3Storage({**renamed, **keys}).create("s3://lab/client", b"1") is Answer.WRITTEN


def test_a_role_is_assumed(moto: Glue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    storage = S3Storage({**moto.properties, "s3.role-arn": "arn:aws:iam::123456789012:role/lake"})
    assert storage.create(f"{BUCKET}/role", b"1") is Answer.WRITTEN
    credentials = storage._writer._request_signer._credentials
    assert credentials.method == "assume-role" and credentials.token
    assert credentials.access_key != moto.properties["s3.access-key-id"]


def test_missing_credentials_are_bad_input(moto: Glue, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage = S3Storage({"s3.endpoint": moto.endpoint, "s3.region": "us-east-1"})
    with pytest.raises(InputError, match="Unable to locate credentials.*Check the s3 settings"):
        storage.create(f"{BUCKET}/a", b"1")
    with pytest.raises(InputError, match="profile.*Check the s3 settings"):
        S3Storage({"s3.profile-name": "nobody"})


CASES: dict[str, tuple[Fault, Answer, bytes | None]] = {
    "answer dropped": (faults.drop_answer, Answer.UNCLEAR, b"1"),
    "request dropped": (faults.drop_request, Answer.UNCLEAR, None),
    "answer too late": (faults.delay(1.5), Answer.UNCLEAR, b"1"),
    # the write arrived: a refusal alone proves nothing
    "request doubled": (faults.double, Answer.REFUSED, b"1"),
    "412": (faults.answer_with(412, "PreconditionFailed"), Answer.REFUSED, None),
    "412 with status 200": (faults.answer_with(412, "PreconditionFailed", said_as=200), Answer.REFUSED, None),
    "500 with status 200": (faults.answer_with(500, "InternalError", said_as=200), Answer.UNCLEAR, None),
    "200 of something else": (lambda request, send: (200, {}, b"<html><p/></html>"), Answer.UNCLEAR, None),
    "broken 200": (lambda request, send: (200, {}, b"<Error><Code>Precond"), Answer.UNCLEAR, None),
    "409": (faults.answer_with(409, "ConditionalRequestConflict"), Answer.BUSY, None),
    "500": (faults.answer_with(500, "InternalError"), Answer.UNCLEAR, None),
    "503": (faults.answer_with(503, "SlowDown"), Answer.UNCLEAR, None),
    "404": (faults.answer_with(404, "NoSuchUpload"), Answer.UNCLEAR, None),
    "400": (faults.answer_with(400, "RequestTimeout"), Answer.UNCLEAR, None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_create_is_one_request_with_a_true_answer(proxy: FaultProxy, slow: S3Storage, case: str) -> None:
    fault, answer, there = CASES[case]
    location, proxy.fault = f"{BUCKET}/faults/{case}", fault
    assert slow.create(location, b"1") is answer
    assert proxy.attempts == 1
    stored = slow.read(location)
    assert (stored.body if stored else None) == there


@pytest.mark.parametrize("case", CASES)
def test_a_replace_is_one_request_with_a_true_answer(proxy: FaultProxy, slow: S3Storage, case: str) -> None:
    fault, answer, there = CASES[case]
    location = f"{BUCKET}/moved/{case}"
    assert slow.create(location, b"0") is Answer.WRITTEN
    before = slow.read(location)
    assert before is not None
    proxy.fault = fault
    assert slow.replace(location, b"1", before.tag) is answer
    assert proxy.attempts == 2
    after = slow.read(location)
    assert after is not None and after.body == (there or b"0")


def test_a_412_sent_with_status_200_is_refused(proxy: FaultProxy, slow: S3Storage) -> None:
    assert slow.create(f"{BUCKET}/said", b"1") is Answer.WRITTEN
    proxy.fault = faults.answer_200
    assert slow.create(f"{BUCKET}/said", b"2") is Answer.REFUSED


def test_a_store_without_conditions_is_unsupported(proxy: FaultProxy, slow: S3Storage) -> None:
    proxy.fault = faults.answer_with(501, "NotImplemented")
    with pytest.raises(UnsupportedError, match="Use a store with conditional writes"):
        slow.create(f"{BUCKET}/a", b"1")


def test_an_unreachable_store_is_unavailable(moto: Glue) -> None:
    storage = S3Storage({**moto.properties, "s3.endpoint": "http://127.0.0.1:9"})
    storage._client = storage._writer
    assert storage.create(f"{BUCKET}/a", b"1") is Answer.UNCLEAR
    with pytest.raises(SourceUnavailableError, match="Cannot read s3://lake/a.*Check that the store answers"):
        storage.read(f"{BUCKET}/a")


def test_a_proof_is_recorded_and_not_repeated(moto: Glue, proxy: FaultProxy, slow: S3Storage) -> None:
    warehouse = f"{BUCKET}/proven"
    proof.prove(slow, warehouse, rounds=1)
    assert proxy.attempts > 30
    (document,) = slow.list(warehouse)
    stored = slow.read(document.location)
    assert stored is not None and document.location == f"{warehouse}/_lakecdc/catalog/store.json"
    assert json.loads(stored.body)["stores"][f"S3 at {proxy.endpoint}"]["rounds"] == 1
    proxy.attempts = 0
    proof.prove(slow, warehouse)
    proof._proven.clear()
    proof.prove(slow, warehouse)
    assert proxy.attempts == 0
    # the same warehouse in another store
    proof.prove(S3Storage(moto.properties), warehouse, rounds=1)
    stored = slow.read(document.location)
    assert stored is not None and len(json.loads(stored.body)["stores"]) == 2


@pytest.mark.parametrize(
    ("fault", "did"),
    [
        (faults.ignore_conditions, "replaced an object that did not exist"),
        (faults.answer_with(412, "PreconditionFailed"), "refused to create an object"),
        (lambda request, send: (200, {"ETag": '"0"'}, b""), "replaced an object that did not exist"),
    ],
)
def test_a_store_that_ignores_conditions_is_refused(proxy: FaultProxy, slow: S3Storage, fault: Fault, did: str) -> None:
    proxy.fault = fault
    with pytest.raises(UnsupportedError, match=f"does not keep the conditions.*{did}"):
        proof.prove(slow, f"{BUCKET}/refused")
    assert list(slow.list(f"{BUCKET}/refused")) == []


@pytest.mark.parametrize("fault", [faults.drop_answer, faults.answer_with(503, "SlowDown")])
def test_unclear_answers_do_not_refuse_a_store(proxy: FaultProxy, slow: S3Storage, fault: Fault) -> None:
    proxy.fault = fault
    with pytest.raises(SourceUnavailableError, match="gave no clear answer"):
        proof.prove(slow, f"{BUCKET}/unclear")


def test_versitygw_passes_the_proof(s3: S3Server) -> None:
    proof.prove(S3Storage(s3.properties), "s3://lab/proven")


@pytest.mark.soak
def test_one_of_16_writers_wins_a_thousand_times(s3: S3Server) -> None:
    proof.prove(S3Storage(s3.properties), "s3://lab/raced", rounds=1000)


@pytest.mark.soak
def test_one_of_16_writers_of_local_files_wins_a_thousand_times(tmp_path: Path) -> None:
    proof.prove(open_storage(str(tmp_path), {}), str(tmp_path), rounds=1000)
