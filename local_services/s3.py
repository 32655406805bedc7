"""An S3 server with conditional writes (versitygw) as a local process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from local_services.install import VERSITYGW
from local_services.process import Service, ServiceError

REGION = "us-east-1"


class S3Server(Service):
    """An S3 endpoint over a folder; buckets are its sub-folders.

    Keys ``a`` and ``a/b`` cannot both exist, as objects are files.

    :param folder: folder of the buckets, created if missing and kept after ``stop``
    :param port: port to listen on; a free one if None
    :param access_key: the one account's access key id
    :param secret_key: the one account's secret access key
    """

    name = "s3"

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        access_key: str = "lakecdc-access",
        secret_key: str = "lakecdc-secret",
    ) -> None:
        self.folder = folder.absolute()
        self.access_key = access_key
        self.secret_key = secret_key
        super().__init__(self.folder.with_name(f"{self.folder.name}.s3.log"), port)

    @property
    def endpoint(self) -> str:
        """Return the address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Return the settings of a FileIO on this server, by the names of pyiceberg and of Iceberg's Java side."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": REGION,
            "s3.path-style-access": "true",
            "s3.force-virtual-addressing": "false",
        }

    @property
    def aws_environment(self) -> dict[str, str]:
        """Return environment variables that give any AWS client access."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def client(self) -> Any:
        """Return a boto3 client without retries, as tests examine the first answer."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5),
        )

    def create_bucket(self, name: str) -> None:
        """Create a bucket, unless it exists."""
        if not (self.folder / name).is_dir():
            self.client().create_bucket(Bucket=name)

    def prepare(self) -> None:
        """Create the folder."""
        if not VERSITYGW.exists():
            raise ServiceError("The S3 server is missing. Run python -m local_services.install")
        self.folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        # Store metadata beside the objects where the file system has no extended attributes, such as some tmpfs.
        sidecar = [] if has_attributes(self.folder) else ["--sidecar", str(self._sidecar())]
        return [str(VERSITYGW), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", *sidecar, str(self.folder)]

    def environment(self) -> Mapping[str, str]:
        """Return the account; other users could see it on the command line."""
        return {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key, "VGW_REGION": REGION}

    def is_ready(self) -> bool:
        """Return whether buckets can be listed."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.client().list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    def _sidecar(self) -> Path:
        # Not `<folder>.metadata`: the server compares the two paths as text and would consider it inside.
        folder = self.folder.with_name(f"metadata-of-{self.folder.name}")
        folder.mkdir(exist_ok=True)
        return folder


def has_attributes(folder: Path) -> bool:
    """Return whether files in an existing folder can have extended attributes."""
    try:
        os.setxattr(folder, "user.lakecdc", b"1")
        os.removexattr(folder, "user.lakecdc")
    except OSError:
        return False
    return True
