"""What the options that name directories mean, and which places they may not name."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.indexing.source import Source
from kidxlib.storage.location import Location, given_location, is_inside
from kidxlib.storage.log_dir import META_PROPERTIES, is_broker_log_dir
from kidxlib.storage.packed import given_packed, is_packed
from kidxlib.storage.store.s3 import SCHEME

#: How many directories, and entries of each, are looked at for a log.
_LOOKED_AT_MAX: Final = 50
_ENTRIES_MAX: Final = 200


def index_dir_to_write(option: str, path: str) -> Location:
    """The absolute path of an index directory, which need not exist: on this machine, on a file system that every
    executor mounts, or in an object store.
    """
    if not path:
        raise UsageError(f"{option} '': expected the path of a directory")
    if is_packed(path):
        raise UsageError(
            f"{option} {path}: packed index files are in a catalog; give --pack, and the catalog with --catalog"
        )
    if (place := given_location(f"{option} ", path)) is not None:
        return place
    try:
        directory = Path(os.path.realpath(path))
    except ValueError as error:  # of a NUL
        raise UsageError(f"{option} {path}: {error}") from error
    # Not pathlib's own, which raise where a directory may not be entered.
    nearest = next(above for above in (directory, *directory.parents) if os.path.exists(above))
    if not os.path.isdir(nearest):
        raise UsageError(
            f"{option} {path}: {nearest} is a file; expected a directory, or a place where one can be made"
        )
    for above in (directory, *directory.parents):
        if is_broker_log_dir(above):
            raise UsageError(
                f"{option} {path}: {above} is a broker's log dir (it holds {META_PROPERTIES}), and a broker does not "
                "start beside directories that are no partitions; expected a place of its own"
            )
    if (log := _log_in(directory)) is not None:
        raise UsageError(
            f"{option} {path}: it is a log dir, {log} is there, and its index files would be replaced; expected a "
            f"place of its own{_hint(option)}"
        )
    return directory


def _log_in(directory: Path) -> str | None:
    """The path of a log in a directory, in one of its first partitions, or in one of the partitions of its first
    sources. An index directory has none. None also where directories may not be listed.
    """
    places, looked_at = [directory], 0
    while places and looked_at < _LOOKED_AT_MAX:
        place, looked_at = places.pop(0), looked_at + 1
        try:
            with os.scandir(place) as entries:
                inside = list(itertools.islice(entries, _ENTRIES_MAX))
        except OSError:
            continue
        for entry in inside:
            if entry.name.endswith(LOG_SUFFIX):
                return entry.path
            is_source = place == directory and parse_partition_directory(entry.name) is None
            if entry.is_dir(follow_symlinks=False) and (is_source or parse_partition_directory(entry.name) is not None):
                places.append(Path(entry.path))
    return None


def existing_index_dir(option: str, path: str) -> Location:
    """The absolute path of an index directory that a build has made, or its place in an object store. With
    `packed:<catalog>!/<source>`, the index files of a source that a build has packed in a catalog.
    """
    if (packed := given_packed(path)) is not None:
        try:
            if packed.exists():
                return packed
        except OSError as error:
            raise UsageError(f"{option} {path}: {error.strerror}") from error
        raise UsageError(
            f"{option} {path}: no catalog with packed index files is there; expected one that was built with --pack"
        )
    if (place := given_location(f"{option} ", path)) is not None:
        try:
            if place.exists():
                return place
        except OSError as error:
            raise UsageError(f"{option} {path}: {error.strerror}") from error
    if not os.path.isdir(path):
        raise UsageError(f"{option} {path}: no such directory; expected an index directory that a build has made")
    return Path(os.path.realpath(path))


def ensure_no_overlap(
    index_dir: Location | None, catalog: str | None, sources: Iterable[Source], *, option: str = "--index-dir"
) -> None:
    """Refuse an index directory or a catalog (a path or URL) inside or around a source; and index files among tables,
    as VACUUM would delete them.
    """
    directories = [(f"source {source.path}", str(source.path)) for source in sources]
    written = []
    if index_dir is not None:
        written.append((f"{option} {index_dir}", str(index_dir)))
    if catalog is not None:
        written.append((f"--catalog {catalog}", re.sub("^s3[an]://", SCHEME, catalog)))  # Hadoop's names of the same
    for number, (what, path) in enumerate(written):
        for other_what, other in directories + written[:number]:
            if is_inside(path, other) or is_inside(other, path):
                raise UsageError(f"{what} and {other_what}: one is inside the other; keep them apart{_hint(what)}")


def _hint(option: str) -> str:
    """The library has no option that writes beside logs."""
    return " (--in-place writes beside the segments)" if option.startswith("--index-dir") else ""
