"""Objects of a store that are written only if nobody else has written them meanwhile: the store decides."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import ClientError

from kidxlib.storage.store.client import answered, connect, status_of
from kidxlib.storage.store.requests import Kind, count
from kidxlib.storage.store.s3 import ObjectPath

#: Answers that the condition does not hold: it was written, is being written, or has gone.
_WRITTEN: Final = 412
_BEING_WRITTEN: Final = 409
_GONE: Final = 404


def put_object_if(path: ObjectPath, content: bytes, etag: str | None) -> bool:
    """Write an object with one request, on a condition.

    Args:
        etag: what it has now, as `ObjectStatus` has it; None where there must be none.

    Returns:
        Whether it was written. False also where it was, and the answer was lost: what is there then is `content`.

    Raises:
        OSError: the store refuses it, or has not answered.
    """
    bucket, _, key = path.key.partition("/")
    condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

    def put() -> bool:
        count(Kind.PUT)
        try:
            connect().put_object(Bucket=bucket, Key=key, Body=content, **condition)
        except ClientError as error:
            if status_of(error) in (_WRITTEN, _BEING_WRITTEN) or (etag is not None and status_of(error) == _GONE):
                return False
            raise
        return True

    return answered(put)
