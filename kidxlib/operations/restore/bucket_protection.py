"""Whether a restored cluster could delete from a bucket, as far as that can be seen from here, and why a bucket is not
attached.

A leader deletes remote segments by its own log start, leader epochs and retention. A mistake in one of these, or a
second cluster with the same topics, takes the only copy. So nothing is attached until somebody has said how deletion is
made impossible, and that the cluster which wrote the bucket no longer lives.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import describe_error
from kidxlib.operations.restore.new_nodes import NewBroker
from kidxlib.storage.location import Location, not_packed
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal.options import needing_packages

_OPTION: Final = "--bucket-protected"
_ROOT_USER_ID: Final = 0


class Protected(enum.StrEnum):
    """How deletion is made impossible, as somebody says."""

    VERSIONING = "versioning"  # the store keeps what is deleted as an older version
    READ_ONLY = "read-only"  # the brokers may not delete


def protection_of(
    bucket: Location,
    directories: Iterable[Location],
    said: Protected | None,
    brokers: Sequence[NewBroker],
    *,
    is_cluster_stopped: bool,
) -> tuple[list[str], list[str]]:
    """Check what somebody says of a bucket. `directories` are those of the partitions in it.

    Returns:
        What was found, a line each; and why the bucket is not attached, each with what to do.
    """
    seen: list[str] = []
    refusals: list[str] = []
    if not is_cluster_stopped:
        refusals.append(
            f"{bucket}: two clusters on one bucket delete each other's segments: give --living-cluster-stopped once no "
            "node of the cluster that wrote it runs, or will be started again; else name a copy of the bucket"
        )
    if said is None:
        refusals.append(
            f"{bucket}: a leader that starts with too little deletes remote segments: make that impossible first, and "
            f"say how: {_OPTION} versioning (the store keeps what is deleted) or read-only (the brokers may not delete)"
        )
    place = not_packed(bucket)
    if isinstance(place, ObjectPath):
        if said is Protected.VERSIONING:
            _check_store_versioning(place, seen, refusals)
        elif said is Protected.READ_ONLY:
            seen.append("read-only, as you say: kidx cannot see what the brokers' credentials may do")
    elif said is Protected.VERSIONING:
        refusals.append(
            f"{bucket}: a directory keeps no versions: mount it read-only for the brokers, and give {_OPTION} read-only"
        )
    elif said is Protected.READ_ONLY:
        _check_directory_modes(place, directories, brokers, seen, refusals)
    return seen, refusals


def _check_directory_modes(
    bucket: Path, directories: Iterable[Location], brokers: Sequence[NewBroker], seen: list[str], refusals: list[str]
) -> None:
    """Whether a directory is mounted read-only, or the owners of new log dirs may remove nothing in it. Mode bits
    count; access control lists are not read.
    """
    if os.statvfs(bucket).f_flag & os.ST_RDONLY:
        seen.append("read-only: it is mounted so")
        return
    places = dict.fromkeys([bucket, *(Path(str(each)) for each in directories)])
    places |= dict.fromkeys(place.parent for place in places if place != bucket)
    status = {place: place.stat() for place in places}
    for owner in sorted({path.stat().st_uid for broker in brokers for path in broker.log_dirs if path.is_dir()}):
        if owner == _ROOT_USER_ID:
            refusals.append(
                f"{bucket}: {_OPTION} read-only, and the new log dirs are root's, whom no permission stops: mount it "
                "read-only for the brokers; or give the log dirs to the user that they run as"
            )
        elif (place := next((each for each in places if _may_write(status[each], owner)), None)) is not None:
            refusals.append(
                f"{place}: {_OPTION} read-only, and user {owner}, the owner of the new log dirs, may remove what is in "
                "it: mount it read-only for the brokers, or take that permission away"
            )
        else:
            seen.append(
                f"read-only: user {owner}, the owner of the new log dirs, may remove nothing in it, by its mode"
            )


def _may_write(status: os.stat_result, user: int) -> bool:
    if status.st_uid == user:
        return bool(status.st_mode & 0o200)
    return bool(status.st_mode & (0o020 if status.st_gid in _groups_of_user(user) else 0o002))


def _groups_of_user(user: int) -> list[int]:
    import pwd  # not on every system

    try:
        account = pwd.getpwuid(user)
    except KeyError:
        return []
    return os.getgrouplist(account.pw_name, account.pw_gid)


def _check_store_versioning(bucket: ObjectPath, seen: list[str], refusals: list[str]) -> None:
    with needing_packages(f"{_OPTION} versioning"):
        from kidxlib.storage.store.client import bucket_lifecycle, bucket_versioning
    try:
        status = bucket_versioning(bucket)
    except OSError as error:
        refusals.append(
            f"{bucket}: the store does not say whether it keeps versions: {describe_error(error)}; give {_OPTION} "
            "read-only if the brokers may not delete"
        )
        return
    if status != "Enabled":
        refusals.append(
            f"{bucket}: {_OPTION} versioning, and the store says that versioning is {status or 'off'}: turn it on "
            "(aws s3api put-bucket-versioning), or give read-only"
        )
        return
    seen.append("versioning: the store says that it is on")
    try:
        seen += _lifecycle_removals(bucket_lifecycle(bucket))
    except OSError as error:
        seen.append(f"the store does not say whether a lifecycle removes older versions: {describe_error(error)}")


def _lifecycle_removals(rules: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What the rules of a lifecycle remove, whatever they are filtered by."""
    for rule in rules:
        if rule.get("Status") != "Enabled":
            continue
        name = rule.get("ID") or "without a name"
        if "NoncurrentVersionExpiration" in rule:
            days = rule["NoncurrentVersionExpiration"].get("NoncurrentDays")
            yield f"lifecycle rule {name}: what was deleted is gone after {days} days: bring it back before"
        if "Expiration" in rule:
            yield f"lifecycle rule {name}: it deletes objects by itself: {rule['Expiration']}"
