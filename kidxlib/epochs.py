"""A partition's leader epochs: where each began, as `LeaderEpochFileCache` and its checkpoint file keep them."""

from __future__ import annotations


class LeaderEpochs:
    """Leader epochs with the offset at which each began; epochs and offsets both increase."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []

    def is_news(self, epoch: int) -> bool:
        """Whether recovery assigns this epoch when it meets it in a batch: it is above all known ones."""
        return not self._entries or epoch > self._entries[-1][0]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch that is news at an offset, 0 or above (`LeaderEpochFileCache.assign`).

        Entries that do not begin before it are dropped.
        """
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    def checkpoint(self) -> bytes:
        """The content of a `leader-epoch-checkpoint` (`LeaderEpochCheckpointFile`, version 0); empty without epochs."""
        if not self._entries:
            return b""  # Kafka makes the file, and writes to it with the first epoch
        lines = ["0", str(len(self._entries)), *(f"{epoch} {offset}" for epoch, offset in self._entries)]
        return "".join(f"{line}\n" for line in lines).encode()
