"""versitygw, a real S3 server that computes checksums of what it stores, as S3 does: ours are compared with them."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import pytest
from pyarrow.fs import S3FileSystem

from tests.faults.processes import end_gently, while_it_runs
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore, gate

SERVER: Final = Path(__file__).resolve().parents[2] / ".jars" / "versitygw" / "versitygw"
#: S3 takes no smaller part of an object but the last.
PART_BYTES: Final = 5 * 1024 * 1024


@dataclass
class ChecksumStore(ObjectStore):
    """The server.

    Attributes:
        client: botocore's, which does not go through the gate. It computes no checksum unless it is given one.
    """

    client: Any = None

    def put(self, key: str, content: bytes) -> None:
        """An object of which the server has computed CRC-64/NVME, as S3 does by default."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def put_with(self, key: str, content: bytes, algorithm: str) -> None:
        """An object of which the server has computed a full-object checksum: one of its own it computes in any case."""
        of_bucket = {"Bucket": BUCKET}
        self.client.put_object(**of_bucket, Key=f"{key}.as-it-came", Body=content)
        self.client.copy_object(
            **of_bucket, Key=key, CopySource=f"{BUCKET}/{key}.as-it-came", ChecksumAlgorithm=algorithm
        )
        self.client.delete_object(**of_bucket, Key=f"{key}.as-it-came")

    def put_in_parts(self, key: str, content: bytes, algorithm: str, checksum_type: str) -> None:
        """An object that is uploaded in parts, of which the server computes the checksum, or one of their checksums."""
        upload = self.client.create_multipart_upload(
            Bucket=BUCKET, Key=key, ChecksumAlgorithm=algorithm, ChecksumType=checksum_type
        )
        of_upload = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"]}
        parts = []
        for number, start in enumerate(range(0, len(content), PART_BYTES), 1):
            part = content[start : start + PART_BYTES]
            # A part has to come with its checksum, but for the one that the server takes by itself.
            crc32c = base64.b64encode(google_crc32c.value(part).to_bytes(4)).decode()
            given = {"ChecksumCRC32C": crc32c} if algorithm == "CRC32C" else {}
            done = self.client.upload_part(**of_upload, PartNumber=number, Body=part, **given)
            found = {name: done[name] for name in ("ETag", f"Checksum{algorithm}")}
            parts.append({"PartNumber": number, **found})
        self.client.complete_multipart_upload(**of_upload, MultipartUpload={"Parts": parts}, ChecksumType=checksum_type)

    def put_without(self, key: str, content: bytes) -> None:
        """An object without a checksum, as S3 has them of the time before it computed any."""
        path = self.objects / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def head(self, key: str) -> dict[str, Any]:
        """What the server says of an object."""
        found: dict[str, Any] = self.client.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        return found


@contextlib.contextmanager
def checksum_store(directory: Path) -> Iterator[ChecksumStore]:
    """Start the server on a free port, with its objects below `directory`. Skips the test where it was not built."""
    if not SERVER.exists():
        pytest.skip("needs versitygw, which ./setup.sh kafka builds where there is Go")
    objects, metadata = directory / "objects", directory / "metadata"
    (objects / BUCKET).mkdir(parents=True)
    metadata.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    credentials = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    serving = ["--port", f"127.0.0.1:{port}", "--region", CREDENTIALS["AWS_REGION"], "--quiet", "--keep-alive"]
    command = [str(SERVER), *credentials, *serving, "posix", "--sidecar", str(metadata), str(objects)]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)

    def listens() -> bool | None:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0 or None

    try:
        while_it_runs(process, listens)
        with gate(port) as (passing, endpoint):
            store = ChecksumStore(endpoint, _files(port), objects / BUCKET, client=_client(port))
            passing.store = store
            yield store
    finally:
        end_gently(process)


def _files(port: int) -> S3FileSystem:
    return S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region=CREDENTIALS["AWS_REGION"],
        endpoint_override=f"http://127.0.0.1:{port}",
    )


def _client(port: int) -> Any:
    import botocore.session  # a quarter of a second, for which not every test waits
    from botocore.config import Config

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name=CREDENTIALS["AWS_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(request_checksum_calculation="when_required"),
    )
