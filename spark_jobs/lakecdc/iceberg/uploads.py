"""Write files that appear only when they are closed; one whose writing failed leaves nothing."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakecdc.object_store.s3 import ask, bucket_and_key, encryption
from lakecdc.object_store.s3_client import s3_client

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)

#: size of a part of a file in S3, except the last; S3 takes 10,000 parts, so a file has at most 80 GiB
PART_BYTES = 8 * 1024 * 1024
# parts that a process sends at once for all its files
_SENT_AT_ONCE = 4


class Output(ABC):
    """A file that is being written, also by Arrow.

    An exception in its ``with`` block, a failed write or a missing close discards it; it cannot be closed afterwards.
    """

    # until the file is begun
    closed = True
    _size = 0
    _failure: BaseException | None = None

    def __init__(self, location: str) -> None:
        self._location = location

    def write(self, data: Any) -> int:
        """Add bytes."""
        if self._failure:
            raise self._failure
        if self.closed:
            raise ValueError(f"{self._location} is closed")
        count = memoryview(data).nbytes
        self._or_discard(lambda: self._take(data))
        self._size += count
        return count

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._size

    def flush(self) -> None:  # noqa: B027
        """Do nothing: the file does not exist before it is closed."""

    def close(self) -> None:
        """Finish the file; nothing happens if it is closed or discarded.

        :raises BaseException: the error of an earlier write.
        """
        if self._failure:
            raise self._failure
        if not self.closed:
            self._or_discard(self._finish)
            self.closed = True

    def discard(self) -> None:
        """Leave nothing, without raising; nothing happens if it is closed."""
        if not self.closed:
            self.closed = True
            try:
                self._drop()
            except Exception as error:
                log.warning("%s: parts were left: %s", self._location, error)

    def _or_discard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
            self.discard()
            raise

    @abstractmethod
    def _take(self, data: Any) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    @abstractmethod
    def _drop(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind:
            self.discard()
        else:
            self.close()

    def __del__(self) -> None:
        self.discard()


class Elsewhere(Output):
    """A file outside of S3, visible while it is written."""

    def __init__(self, io: FileIO, location: str) -> None:
        super().__init__(location)
        self._io, self._stream = io, io.new_output(location).create(overwrite=True)
        self.closed = False

    def _take(self, data: Any) -> None:
        self._stream.write(data)

    def _finish(self) -> None:
        self._stream.close()

    def _drop(self) -> None:
        with suppress(Exception):
            self._stream.close()
        self._io.delete(self._location)


class Upload(Output):
    """A file in S3: one request up to the size of a part, otherwise parts that threads send while it is written.

    :param properties: pyiceberg's storage properties.
    """

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        super().__init__(location)
        bucket, key = bucket_and_key(location)
        self._object, self._encryption = {"Bucket": bucket, "Key": key}, encryption(properties)
        self._client, self._part = _client(tuple(sorted(properties.items()))), bytearray()
        self._upload: dict[str, str] = {}
        self._sent: list[Future[dict[str, Any]]] = []
        self.closed = False

    def _take(self, data: Any) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            if len(self._part) == PART_BYTES:
                self._send()
            room = PART_BYTES - len(self._part)
            self._part += rest[:room]
            rest = rest[room:]

    def _send(self) -> None:
        if not self._upload:
            answer = self._request(self._client.create_multipart_upload, **self._encryption)()
            self._upload = {"UploadId": answer["UploadId"]}
        pool, free = _senders()
        free.acquire()
        # threads do not have this object: it is discarded where it is dropped
        sent = pool.submit(self._request(self._client.upload_part, PartNumber=len(self._sent) + 1, Body=self._part))
        sent.add_done_callback(lambda _: free.release())
        self._part = bytearray()
        self._sent.append(sent)
        for before in self._sent[-_SENT_AT_ONCE:]:
            if before.done():
                before.result()

    def _finish(self) -> None:
        if not self._upload:
            self._request(self._client.put_object, Body=self._part, **self._encryption)()
        else:
            self._send()
            parts = [{"PartNumber": number, "ETag": sent.result()["ETag"]} for number, sent in enumerate(self._sent, 1)]
            self._request(self._client.complete_multipart_upload, MultipartUpload={"Parts": parts})()
        self._part = bytearray()

    def _drop(self) -> None:
        self._part = bytearray()
        # a part that arrives after the abort would stay
        wait([sent for sent in self._sent if not sent.cancel()])
        if self._upload:
            self._request(self._client.abort_multipart_upload)()

    def _request(self, operation: Callable[..., Any], **arguments: Any) -> Callable[[], Any]:
        return partial(ask, "write", self._location, partial(operation, **self._object, **self._upload, **arguments))


# a client keeps its connections, and a task writes many files
@lru_cache(maxsize=4)
def _client(properties: tuple[tuple[str, str], ...]) -> Any:
    # hashes by client and server take longer than everything else; Arrow's S3 signs only checksums too
    return s3_client(dict(properties), hashes_bodies=False)


@lru_cache(maxsize=1)
def _senders() -> tuple[ThreadPoolExecutor, threading.Semaphore]:
    return ThreadPoolExecutor(_SENT_AT_ONCE, "upload"), threading.Semaphore(_SENT_AT_ONCE)
