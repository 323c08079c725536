"""Leader epochs increase with their offsets, whatever is assigned and whatever is cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs

OFFSETS = st.integers(0, 30)
ASSIGNED = st.lists(st.builds(EpochEntry, st.integers(0, 9), OFFSETS), max_size=12)


def epoch_at(epochs: LeaderEpochs, offset: int) -> int | None:
    return max((entry.epoch for entry in epochs.entries if entry.start_offset <= offset), default=None)


@given(ASSIGNED)
def test_what_is_assigned_last_holds_and_all_increases(assigned: list[EpochEntry]) -> None:
    epochs = LeaderEpochs(assigned)
    pairs = [(entry.epoch, entry.start_offset) for entry in epochs.entries]
    for column in zip(*pairs, strict=True):
        assert list(column) == sorted(set(column))
    if assigned:
        assert epochs.last is not None and epochs.last.epoch == assigned[-1].epoch
        assert epochs.last.start_offset <= assigned[-1].start_offset
        assert (epochs.first, epochs.last) == (epochs.entries[0], epochs.entries[-1])
        assert [epoch for epoch in range(11) if epochs.is_new_epoch(epoch)] == list(range(epochs.last.epoch + 1, 11))


@given(ASSIGNED, OFFSETS, OFFSETS)
def test_a_part_of_the_log_has_the_epochs_of_the_whole(assigned: list[EpochEntry], start: int, end: int) -> None:
    epochs = LeaderEpochs(assigned)
    part = epochs.within(start, end)
    for offset in range(start, end):
        assert epoch_at(part, offset) == epoch_at(epochs, offset)
    assert all(entry.start_offset >= start for entry in part.entries)
    assert all(entry.start_offset < max(end, start + 1) for entry in part.entries)
    assert set(part.entries[1:]) <= set(epochs.entries)


def test_a_checkpoint_is_kafkas_text_and_empty_without_epochs() -> None:
    epochs = LeaderEpochs([EpochEntry(0, 0), EpochEntry(3, 17), EpochEntry(4, 2**40)])
    assert epochs.checkpoint() == b"0\n3\n0 0\n3 17\n4 1099511627776\n"
    assert LeaderEpochs().checkpoint() == b""
