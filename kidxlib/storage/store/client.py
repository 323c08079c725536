"""The client of an object store for what pyarrow's file system does not offer: checksums, and writes on a condition.

It is botocore's, and finds credentials, region and endpoint as the other does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    SSLError,
)

from kidxlib.storage.store.retries import STATUSES, TRIES, NotNow, answer_of
from kidxlib.storage.store.s3 import endpoint, region

#: Requests that a process has on their way at a time.
AT_ONCE: Final = 32

_NOT_FOUND: Final = 404
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60

_T = TypeVar("_T")


def connect() -> Any:
    """botocore's client of the store that the environment names: one for all threads of this process."""
    return _connected(endpoint(), region())


@functools.cache
def _connected(url: str | None, region: str | None) -> Any:
    settings = Config(
        max_pool_connections=AT_ONCE,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": 1},  # `answer_of` makes requests again, as those of the other client
    )
    return botocore.session.get_session().create_client("s3", endpoint_url=url, region_name=region, config=settings)


def answered(request: Callable[[], _T], tries_to_reach: int = TRIES) -> _T:
    """What the store answers to a request of this client. Errors are those of `_plainly`, once it was made in vain as
    often as `answer_of` makes it.
    """
    return answer_of(functools.partial(_plainly, request), tries_to_reach=tries_to_reach, why_not_now=_why_not_now)


def _plainly(request: Callable[[], _T]) -> _T:
    """What a request gives, and botocore's errors as those of an operating system.

    Raises:
        FileNotFoundError: there is no such object or bucket.
        PermissionError: the store refuses it.
        OSError: there is no answer.
    """
    try:
        return request()
    except ClientError as error:
        of_answer = error.response["Error"]
        message = f"HTTP {status_of(error)}: {of_answer.get('Message') or of_answer.get('Code')}"
        if str(status_of(error)) in STATUSES:
            raise OSError(message) from error
        raise (FileNotFoundError if status_of(error) == _NOT_FOUND else PermissionError)(message) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error


def _why_not_now(error: OSError) -> NotNow | None:
    match error.__cause__:
        case ClientError() as answer:
            return STATUSES.get(str(status_of(answer)))
        case EndpointConnectionError() | ConnectTimeoutError() | ProxyConnectionError():
            return NotNow.UNREACHED
        case SSLError():
            return None
        case HTTPClientError():
            return NotNow.DROPPED
        case _:
            return None


def status_of(error: ClientError) -> int:
    """The HTTP status of an answer."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
