"""Secrets are references that the job resolves."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import is_secret, mask, refuse_literals, resolve


def test_references_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKE_SECRET", "from-env")
    (tmp_path / "s").write_text("from-file\n")
    given = {"a": {"env": "LAKE_SECRET"}, "b": [{"file": str(tmp_path / "s")}], "c": 1}
    assert resolve(given, "x") == {"a": "from-env", "b": ["from-file"], "c": 1}


def test_missing_references_are_reported_with_their_path() -> None:
    with pytest.raises(SpecError, match=r"catalog\.token refers to the environment variable NOT_SET"):
        resolve({"token": {"env": "NOT_SET"}}, "catalog")
    with pytest.raises(SpecError, match="cannot be read"):
        resolve({"file": "/nowhere/at/all"}, "catalog")


SECRET = [
    *("password", "passwd", "sslpassword", "jdbc.password", "ssl.keystore.password", "ssl.truststore.password"),
    *("s3.secret-access-key", "s3.session-token", "s3.sse.key", "s3.sse.md5", "gcs.encryption-key"),
    *("adls.account-key", "adls.connection-string", "adls.sas-token", "adls.auth.shared-key.account.key"),
    *("token", "credential", "header.Authorization", "header.Cookie", "header.X-Api-Key"),
    *("ssl.key.pem", "ssl.keystore.key", "sasl.jaas.config", "sasl.oauthbearer.config", "scram_client_key"),
]
PLAIN = [
    *("uri", "warehouse", "s3.access-key-id", "s3.region", "s3.sse.type", "s3.signer.uri", "adls.account-name"),
    *("ssl_key", "sslkey", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.location", "ssl.keystore.location"),
    *("key", "primary_key", "sasl.username", "passfile", "encryption.key-id"),
]


@pytest.mark.parametrize("key", SECRET)
def test_keys_named_like_secrets_need_references(key: str) -> None:
    with pytest.raises(SpecError, match="as a literal"):
        refuse_literals({"catalog": {"properties": {key: "x"}}}, "spec")
    refuse_literals({"catalog": {"properties": {key: {"env": "X"}}}}, "spec")


def test_plain_values_are_accepted() -> None:
    refuse_literals({"uri": "postgresql://user@db/x", "s3.access-key-id": "AK", "dsn": "host=a user=b"}, "spec")
    assert [name for name in PLAIN if is_secret(name, "x")] == []


def test_lists_of_secrets_are_secret() -> None:
    with pytest.raises(SpecError, match=r"spec\.passwords"):
        refuse_literals({"passwords": ["x"]}, "spec")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@db and password='a b' x", "postgresql://u:***@db and password=*** x"),
        ("postgresql+psycopg2://u:p/w@db/d", "postgresql+psycopg2://u:***@db/d"),
        ("mysql://u:80/80@db/d", "mysql://u:***@db/d"),
        ("https://u:p@w@db/d", "https://u:***@db/d"),
        ("host=a sslpassword=b  passwd = c", "host=a sslpassword=***  passwd=***"),
        (r"host=a password='it\'s it' user=u", "host=a password=*** user=u"),
        ("jdbc:mysql://h/d?user=u&password=x", "jdbc:mysql://h/d?user=u&password=***"),
        ("https://u:12345/x@h", "https://u:***@h"),
        ("jdbc:oracle:thin:scott/tiger@//h:1521/d", "jdbc:oracle:thin:scott/***@//h:1521/d"),
        ("password: hunter2", "password: ***"),
        ("  client_secret: 'a b' # x", "  client_secret: *** # x"),
        ("sent Bearer eyJhbGciOi.x-y_z, refused", "sent Bearer ***, refused"),
        ("fs.azure.account.key.a.dfs.core.windows.net abc", "fs.azure.account.key.a.dfs.core.windows.net ***"),
        ("fs.s3a.secret.key\tabc", "fs.s3a.secret.key ***"),
        (r'{"a": "{\"password\": \"x y\"}"}', r'{"a": "{\"password\": ***}'),
        ("password='a b", "password=***"),
        (f"{'x.' * 200}password=a", f"{'x.' * 200}password=***"),
        ("AccountName=a;AccountKey=b==;Endpoint=c", "AccountName=a;AccountKey=***"),
        ("https://a.blob/c?sv=1&sig=x%3D", "https://a.blob/c?sv=1&sig=***"),
        ("Authorization: Basic dTpw", "Authorization: ***"),
        ("Set-Cookie: a=b; c=d\nServer: x", "Set-Cookie: ***\nServer: x"),
        ("{'basic': {'username': 'u', 'password': 'x y'}}", "{'basic': {'username': 'u', 'password': ***}}"),
        (
            'PlainLoginModule required username="u" password="p w";',
            'PlainLoginModule required username="u" password=***;',
        ),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize("most", range(18, 26))
def test_truncated_passwords_stay_masked(most: int) -> None:
    assert "hunter" not in mask(f"postgresql://user:hunter22@{'x' * 100}", most)


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://db:8020/accounts/me@example.com",
        "jdbc:oracle:thin:@//h:1521/d",
        "struct<a: int, token: string>",
        "The Bearer token. The basic authentication.",
        "fs.s3a.secret.key is not set",
        "shop.api_tokens: 5 rows were written",
        "abfss://lake@account.dfs.core.windows.net/p",
        "s3://b/token=5/x.json",
        "postgresql://u@h:5432/d",
        "Key (token)=(5) already exists",
        "The column 'password' is not there.",
    ],
)
def test_other_text_is_not_masked(text: str) -> None:
    assert mask(text) == text
