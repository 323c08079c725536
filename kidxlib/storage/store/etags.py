"""Listings of an S3 store that say the ETag of each object, which pyarrow's file system leaves out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, Final

from kidxlib.storage.store.client import answered, connect
from kidxlib.storage.store.requests import Kind, count
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus

_NS_PER_S: Final = 1_000_000_000


def objects_with_etags(directory: ObjectPath) -> Iterator[ObjectPath]:
    """The objects right in a directory, in the order of their keys; none where nothing lies in it. One request for a
    thousand of them.

    Raises:
        OSError: the store refuses it, or has not answered.
    """
    bucket, _, key = directory.key.partition("/")
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "Delimiter": "/"}
    try:
        while True:
            page = answered(lambda: _page(asked))
            for each in page.get("Contents", ()):
                if each["Key"] != asked["Prefix"]:  # an empty object that stands for the directory
                    yield ObjectPath(f"{bucket}/{each['Key']}", _status(each))
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]
    except OSError as error:
        raise OSError(errno.EIO, error.strerror or str(error), str(directory)) from error


def _page(asked: dict[str, Any]) -> dict[str, Any]:
    count(Kind.LIST)
    page: dict[str, Any] = connect().list_objects_v2(**asked)
    return page


def _status(each: dict[str, Any]) -> ObjectStatus:
    written_ns = int(each["LastModified"].timestamp()) * _NS_PER_S
    return ObjectStatus(int(each["Size"]), written_ns, each.get("ETag", ""))
