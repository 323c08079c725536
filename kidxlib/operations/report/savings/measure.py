"""Measures what producers with other settings would have written of the topics of a catalog."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from kidxlib.operations.report.savings.codecs import CODECS, SHORT_SIGHTED
from kidxlib.operations.report.savings.producer import NO_ESTIMATE, Contents, Producer, settled_ratio
from kidxlib.operations.report.savings.reading import read_sample
from kidxlib.operations.report.savings.sample import TopicSample, places_of, samples_of
from kidxlib.operations.report.savings.saving import TopicSavings, WrittenBatches
from kidxlib.tables.protocol import TablesToRead

KIB: Final = 1024
#: Kafka's default, and larger ones.
BATCH_SIZES: Final = (16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB)
#: Bytes of records that are read of a topic.
BYTES_MAX: Final = 4 * 1024 * KIB


def measure_savings(
    tables: TablesToRead,
    sample: int,
    seed: int = 0,
    *,
    topics: Collection[str] | None = None,
    sources: Collection[str] | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    codecs: Sequence[str] = CODECS,
    bytes_max: int = BYTES_MAX,
    has_just_started: bool = False,
) -> list[TopicSavings]:
    """Read some batches of each topic, and lay their records down as producers with other settings would.

    Logs are read where the catalog has them; what is not there, or has changed, is said in `not_read`. Topics that
    brokers write themselves are left out.

    Args:
        tables: of a catalog.
        sample: how many batches of each topic are read at most, markers of transactions not counted.
        seed: which ones are; the same of the same catalog each time.
        topics, sources: these alone; None for all.
        batch_sizes: of `batch.size`, in bytes.
        codecs: names of `compression.type`.
        bytes_max: how many bytes the records of a topic may take, decompressed; fewer batches are read then.
        has_just_started: producers have just started, and take a ratio of 1 for that of their first batches; else they
            have run for a while.

    Returns:
        One for each topic of which there are batches, in the order of their names. Its settings are in the order of
        codecs, then of sizes.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    samples = samples_of(tables, sample, seed, topics, sources)
    places = places_of(tables, samples)
    settings = [(codec, batch_size) for codec in codecs for batch_size in batch_sizes]
    measure = partial(
        _measured, places=places, settings=settings, bytes_max=bytes_max, has_just_started=has_just_started
    )
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="kidx-savings") as pool:
        return list(pool.map(measure, samples))


def _measured(
    sample: TopicSample,
    places: Mapping[tuple[Any, ...], Mapping[str, Any]],
    settings: Sequence[tuple[str, int]],
    bytes_max: int,
    *,
    has_just_started: bool,
) -> TopicSavings:
    """What was measured of a topic."""
    read = read_sample(sample, places, bytes_max)
    contents = Contents([each.records() for each in read.producers.values() if len(each)])
    return TopicSavings(
        topic=sample.topic,
        segments=sample.segments,
        batches=sample.batches,
        log_bytes=sample.log_bytes,
        sampled_segments=read.segments,
        sampled_batches=read.batches,
        sampled_bytes=read.batch_bytes,
        records=sum(map(len, read.producers.values())),
        record_bytes=read.record_bytes,
        producers=len(contents.records),
        with_settings=_written(contents, settings, has_just_started=has_just_started),
        not_read=read.not_read,
    )


def _written(
    contents: Contents, settings: Sequence[tuple[str, int]], *, has_just_started: bool
) -> list[WrittenBatches]:
    """What producers with each of some settings write."""
    if not contents.records:
        return []
    most = max(range(len(contents.records)), key=lambda number: len(contents.records[number].bodies))
    found, before = [], dict[str, Producer]()
    for codec, batch_size in settings:
        if has_just_started:
            ratio = NO_ESTIMATE
        elif codec in SHORT_SIGHTED and codec in before:  # to try it anew takes as long as to write
            ratio = before[codec].settled_ratio
        else:
            ratio = settled_ratio(contents, most, codec, batch_size)
        producer = before[codec] = Producer(codec, batch_size, ratio)
        for number in range(len(contents.records)):
            producer.write(contents, number)
        found.append(producer.written)
    return found
