"""The compiled loop that compares the ranges and leader epochs of replicas, a pair at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.jit.compiler import njit

#: Two copies by their numbers; from the first of the offsets that both should have up to below the end; where the
#: shorter log ends; and whether the topic is compacted.
PAIR: Final = np.dtype(
    [
        ("one", "i8"),
        ("other", "i8"),
        ("first_offset", "i8"),
        ("end_offset", "i8"),
        ("logs_end", "i8"),
        ("is_compacted", "i8"),
    ]
)
#: How a pair compares. Numbers of offsets count those that both should have.
COMPARED: Final = np.dtype(
    [
        ("ranges", "i8"),  # the number of ranges that differ
        ("first_offset", "i8"),  # of the first of these
        ("last_offset", "i8"),
        ("straddling", "i8"),  # offsets of ranges that differ and reach beyond
        ("unknown", "i8"),  # offsets of ranges of which one copy has no digest
        ("lacks_inside", "i8"),  # of the ranges that differ, those where one copy has no batch
        ("one_lacks", "i8"),  # ranges of the other copy where this one has no batch
        ("one_lacks_first", "i8"),
        ("one_lacks_last", "i8"),
        ("other_lacks", "i8"),
        ("other_lacks_first", "i8"),
        ("other_lacks_last", "i8"),
        ("epochs_disagree", "i8"),
        ("epoch_offset", "i8"),
        ("one_epoch", "i8"),
        ("other_epoch", "i8"),
    ]
)


@njit(cache=True, nogil=True)
def compare_replica_pairs(pairs, range_bounds, first, last, digest, is_known, epoch_bounds, epoch_offset, epoch, found):
    """Compare the ranges and leader epochs of each pair of replicas, in compiled code.

    Args:
        pairs: of `PAIR`.
        range_bounds: of shape (copies + 1,): where the ranges of a copy begin, in order of their first offsets.
        first, last, digest, is_known: of ranges.
        epoch_bounds: of shape (copies + 1,): where the epochs of a copy begin, in order of offsets.
        epoch_offset, epoch: of batches of which the epoch is above all before them in their segment.
        found: of `COMPARED`, zeros.
    """
    for number in range(len(pairs)):
        if not pairs[number].is_compacted:
            _compare_ranges(pairs[number], range_bounds, first, last, digest, is_known, found[number])
        _compare_epochs(pairs[number], epoch_bounds, epoch_offset, epoch, found[number])


@njit
def _compare_ranges(pair, bounds, first, last, digest, is_known, found):
    """Ranges of both that overlap are taken together, until no further one does: their sums are of the same offsets."""
    one, one_end = bounds[pair.one], bounds[pair.one + 1]
    other, other_end = bounds[pair.other], bounds[pair.other + 1]
    while one < one_end or other < other_end:
        if other == other_end or (one < one_end and first[one] <= first[other]):
            begin = end = first[one]
        else:
            begin = end = first[other]
        difference, known = np.int64(0), True
        one_begin, other_begin = one, other
        while True:
            if one < one_end and first[one] <= end:
                difference, known, end = difference + digest[one], known and is_known[one], max(end, last[one])
                one += 1
            elif other < other_end and first[other] <= end:
                difference, known, end = difference - digest[other], known and is_known[other], max(end, last[other])
                other += 1
            else:
                break
        is_lack = known and difference != 0 and (one == one_begin or other == other_begin)
        if is_lack and begin >= pair.first_offset and end < pair.logs_end:
            # What a copy lacks before its end it lacks, whatever was committed when.
            _note_lack(found, one == one_begin, begin, end)
            if end >= pair.end_offset:
                continue
            found.lacks_inside += 1
        inside = min(end, pair.end_offset - 1) - max(begin, pair.first_offset) + 1
        if inside <= 0 or (known and difference == 0):
            continue
        if not known:
            found.unknown += inside
        elif begin < pair.first_offset or end >= pair.end_offset:
            found.straddling += inside
        else:
            if found.ranges == 0:
                found.first_offset, found.last_offset = begin, end
            found.ranges += 1


@njit
def _note_lack(found, is_one, begin, end):
    """Note a range that a copy lacks; those that follow each other are one."""
    if is_one:
        if found.one_lacks == 0:
            found.one_lacks_first = begin
        if found.one_lacks == 0 or begin != found.one_lacks_last + 1:
            found.one_lacks += 1
        found.one_lacks_last = end
    else:
        if found.other_lacks == 0:
            found.other_lacks_first = begin
        if found.other_lacks == 0 or begin != found.other_lacks_last + 1:
            found.other_lacks += 1
        found.other_lacks_last = end


@njit
def _compare_epochs(pair, bounds, offsets, epochs, found):
    """Find the first offset at which the epochs that began last are not the same. A cleaned log may have lost the first
    batches of an epoch: there it is that a batch has a smaller epoch than one of the other copy before it.
    """
    one, one_end = bounds[pair.one], bounds[pair.one + 1]
    other, other_end = bounds[pair.other], bounds[pair.other + 1]
    one_epoch = other_epoch = np.int64(-1)
    while one < one_end or other < other_end:
        if other == other_end or (one < one_end and offsets[one] <= offsets[other]):
            offset = offsets[one]
        else:
            offset = offsets[other]
        if offset >= pair.end_offset:
            break
        begins_one = begins_other = False
        while one < one_end and offsets[one] == offset:
            begins_one, one_epoch, one = True, max(one_epoch, np.int64(epochs[one])), one + 1
        while other < other_end and offsets[other] == offset:
            begins_other, other_epoch, other = True, max(other_epoch, np.int64(epochs[other])), other + 1
        following = pair.end_offset
        if one < one_end:
            following = min(following, offsets[one])
        if other < other_end:
            following = min(following, offsets[other])
        if pair.is_compacted:
            disagree = (begins_one and one_epoch < other_epoch) or (begins_other and other_epoch < one_epoch)
        else:
            disagree = one_epoch != other_epoch and following > pair.first_offset
        if disagree:
            found.epochs_disagree = 1
            found.epoch_offset = offset if pair.is_compacted else max(offset, pair.first_offset)
            found.one_epoch, found.other_epoch = one_epoch, other_epoch
            break
