"""The names in index directories. Those in an object store are listed some ahead of the one that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from kidxlib.storage.directory import Directory, list_directory
from kidxlib.storage.store.at_once import in_order
from kidxlib.storage.store.s3 import is_object


class Listings:
    """The names in directories that are asked for in an order that is known. Use as a context.

    Args:
        coming: the directories that will be asked for, in that order. Some may be left out, and others asked for.
    """

    def __init__(self, coming: Sequence[Directory] = ()) -> None:
        in_store = [directory for directory in coming if is_object(directory.root)]
        self._names = in_order(list_directory, in_store)
        self._coming: Iterator[tuple[Directory, list[str]]] = zip(in_store, self._names, strict=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._names.close()

    def names_in(self, directory: Directory) -> list[str]:
        """The names in a directory; none where it does not exist.

        Raises:
            PublishError: an object store does not list it, or one of those that were to come before.
        """
        if is_object(directory.root):
            for listed, names in self._coming:
                if listed == directory:
                    return names
        return list_directory(directory)
