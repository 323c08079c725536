"""The mapping of an index file's bytes into memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.opened_file import map_log, open_log
from kidxlib.storage.store.s3 import ObjectPath, is_object


def map_file(path: str) -> NDArray[np.uint8]:
    """The bytes of a file, mapped read-only for as long as the result lives; an object is read as a whole.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
        LogChangedError: another process truncated it at this moment.
    """
    if is_object(path):
        return np.frombuffer(ObjectPath.of(path).read_bytes(), np.uint8)
    try:
        with open_log(path) as (descriptor, version):
            return map_log(descriptor, version.size).window(0)[1]
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, path) from error
        raise
