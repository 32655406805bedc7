"""Clients of S3 and DynamoDB by pyiceberg's properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakecdc.contract.errors import InputError

_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0


def s3_client(
    properties: Mapping[str, str], *, attempts: int = 6, connections: int = 32, hashes_bodies: bool = True
) -> Any:
    """Return a client of S3; see :func:`aws_client`.

    :param hashes_bodies: signs a body's SHA-256 over plain HTTP, not only its checksum as over TLS.
    """
    return aws_client("s3", properties, attempts=attempts, connections=connections, hashes_bodies=hashes_bodies)


def aws_client(
    service: str,
    properties: Mapping[str, str],
    *,
    attempts: int = 6,
    connections: int = 32,
    hashes_bodies: bool = True,
) -> Any:
    """Return a boto3 client, which threads may share; boto3 finds unset properties itself.

    :param service: ``s3`` or ``dynamodb``.
    :param properties: pyiceberg's, beginning with the service's name or ``client``.
    :param attempts: total per request.
    :param connections: maximum that the client keeps, one per thread.
    """
    try:
        from botocore.config import Config
    except ImportError as error:
        raise InputError(
            f"Cannot use {service} without boto3.", hint="Install boto3 where this process runs."
        ) from error
    from botocore.exceptions import BotoCoreError

    proxy = properties.get("s3.proxy-uri")
    # the only way to set it, because botocore decides by the URL
    signing = {} if hashes_bodies else {"payload_signing_enabled": False}
    config = Config(
        s3={"addressing_style": _addressing(properties), **signing},
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=connections,
        connect_timeout=float(properties.get("s3.connect-timeout") or _CONNECT_SECONDS),
        read_timeout=min(float(properties.get("s3.request-timeout") or _READ_SECONDS), _READ_SECONDS),
        proxies={"http": proxy, "https": proxy} if proxy else None,
    )
    try:
        endpoint = properties.get(f"{service}.endpoint")
        return _session(service, properties).client(service, endpoint_url=endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise InputError(
            f"Cannot open {service}: {str(error).rstrip('.')}.",
            hint=f"Check the {service} settings of the catalog's connection.",
        ) from error


def _addressing(properties: Mapping[str, str]) -> str:
    """Return where requests name the bucket: in the path if an endpoint is set, as in pyiceberg's Arrow."""
    virtual = properties.get("s3.force-virtual-addressing")
    if virtual is None and (path := properties.get("s3.path-style-access")) is not None:
        virtual = "false" if path.lower() == "true" else "true"
    if virtual is not None:
        return "virtual" if virtual.lower() == "true" else "path"
    return "path" if properties.get("s3.endpoint") else "auto"


def _session(service: str, properties: Mapping[str, str]) -> Any:
    import boto3

    def first(name: str) -> str | None:
        return properties.get(f"{service}.{name}") or properties.get(f"client.{name}")

    session = boto3.session.Session(
        aws_access_key_id=first("access-key-id"),
        aws_secret_access_key=first("secret-access-key"),
        aws_session_token=first("session-token"),
        region_name=first("region"),
        profile_name=first("profile-name"),
    )
    role = first("role-arn")
    return _in_role(session, role, first("role-session-name") or "lakecdc") if role else session


def _in_role(session: Any, role: str, name: str) -> Any:
    """Return a session with the credentials of a role, renewed before they expire."""
    import boto3
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    def sts(service: str, **arguments: Any) -> Any:
        keys = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return session.client(service, **{key: arguments[key] for key in keys})

    fetcher = AssumeRoleCredentialFetcher(sts, session.get_credentials(), role, extra_args={"RoleSessionName": name})
    core = botocore.session.get_session()
    # botocore assumes roles only by profile; libraries set this member to assume one
    core._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return boto3.session.Session(botocore_session=core, region_name=session.region_name)
