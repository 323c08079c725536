"""versitygw, a real S3 server that computes checksums of its objects, as S3 does: tests compare kidx's with them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import pytest

from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore, free_port, served

SERVER: Final = Path(__file__).resolve().parents[2] / ".jars" / "versitygw" / "versitygw"
#: S3 takes no smaller part of an object but the last.
PART_BYTES: Final = 5 * 1024 * 1024


@dataclass
class ChecksumStore(ObjectStore):
    """The server.

    Attributes:
        client: botocore's client, which does not go through the gate and computes no checksum by itself.
    """

    client: Any = None

    def put(self, key: str, content: bytes) -> None:
        """Put an object of which the server computes CRC-64/NVME, as S3 does by default."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def put_with(self, key: str, content: bytes, algorithm: str) -> None:
        """Put an object of which the server computes a full-object checksum. It does so as it copies the object; on an
        upload it computes one of its own choice.
        """
        of_bucket = {"Bucket": BUCKET}
        self.client.put_object(**of_bucket, Key=f"{key}.as-it-came", Body=content)
        self.client.copy_object(
            **of_bucket, Key=key, CopySource=f"{BUCKET}/{key}.as-it-came", ChecksumAlgorithm=algorithm
        )
        self.client.delete_object(**of_bucket, Key=f"{key}.as-it-came")

    def put_in_parts(self, key: str, content: bytes, algorithm: str, checksum_type: str) -> None:
        """Upload an object in parts. The server computes its checksum, or one of the parts' checksums."""
        upload = self.client.create_multipart_upload(
            Bucket=BUCKET, Key=key, ChecksumAlgorithm=algorithm, ChecksumType=checksum_type
        )
        of_upload = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"]}
        parts = []
        for number, start in enumerate(range(0, len(content), PART_BYTES), 1):
            part = content[start : start + PART_BYTES]
            # A part must come with its checksum, unless it is the one that the server computes by itself.
            crc32c = base64.b64encode(google_crc32c.value(part).to_bytes(4)).decode()
            given = {"ChecksumCRC32C": crc32c} if algorithm == "CRC32C" else {}
            answer = self.client.upload_part(**of_upload, PartNumber=number, Body=part, **given)
            parts.append({"PartNumber": number, **{name: answer[name] for name in ("ETag", f"Checksum{algorithm}")}})
        self.client.complete_multipart_upload(**of_upload, MultipartUpload={"Parts": parts}, ChecksumType=checksum_type)

    def put_without(self, key: str, content: bytes) -> None:
        """Put an object without a checksum, as S3 has older ones."""
        path = self.objects / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def head(self, key: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        return answer


@contextlib.contextmanager
def checksum_store(directory: Path, *, keeps_versions: bool = False) -> Iterator[ChecksumStore]:
    """Start the server on a free port, with its objects below `directory`. Skip the test if it was not built.

    Args:
        keeps_versions: a bucket may be told to keep older versions.
    """
    if not SERVER.exists():
        pytest.skip("needs versitygw, which ./setup.sh kafka builds where there is Go")
    objects, metadata = directory / "objects", directory / "metadata"
    (objects / BUCKET).mkdir(parents=True)
    metadata.mkdir()
    port = free_port()
    credentials = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    serving = ["--port", f"127.0.0.1:{port}", "--region", CREDENTIALS["AWS_REGION"], "--quiet", "--keep-alive"]
    versions = ["--versioning-dir", str(directory / "versions")] if keeps_versions else []
    (directory / "versions").mkdir()
    where = [*versions, str(objects)] if keeps_versions else ["--sidecar", str(metadata), str(objects)]
    command = [str(SERVER), *credentials, *serving, "posix", *where]
    with served(
        command,
        port,
        directory / "log",
        lambda url, files: ChecksumStore(url, files, objects / BUCKET, client=_client(port)),
    ) as store:
        yield store


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
