"""Asks replicas in other log dirs whether a partition's records are those of a topic id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.engine.protocol import Engine
from kidxlib.errors import UsageError
from kidxlib.operations.compare.comparison import Kind
from kidxlib.operations.compare.place import DirectoryPair, MetadataOfPlaces, Place, list_place
from kidxlib.operations.compare.replica import compare_pairs
from kidxlib.operations.recover.broker import LogDir
from kidxlib.run.known_topics import KnownTopics
from kidxlib.text.words import counted

#: After such a finding nobody knows whether both replicas have the same records.
_KINDS_SPEAKING_AGAINST: Final = (Kind.DIFFERS, Kind.NOT_COMPARABLE)


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a replica says of a topic id.

    Attributes:
        confirms: None where the replica says nothing.
        text: names the replica, and says what it has.
    """

    confirms: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Replicas:
    """Log dirs, or copies of them, that have replicas of a broker's partitions."""

    places: Sequence[Place]
    known: KnownTopics
    engine: Engine

    def testimonies(self, log_dir: LogDir, name: str, topic_id: str) -> Iterator[Testimony]:
        """What each place says of the partition with the directory `name`, whose topic has this id by the metadata."""
        if not self.places:
            return
        of_broker = list_place(str(log_dir.path / name))
        here = of_broker.directories.get(name)
        known = MetadataOfPlaces(self.known, [str(log_dir.path)])
        if here is None or here.problem is not None:
            return
        for place in self.places:
            there = place.directories.get(name)
            if there is None:
                yield Testimony(None, f"{place.name} has no {name}")
            elif there.problem is not None:
                yield Testimony(None, f"{there.path}: {there.problem}")
            elif there.topic_id != topic_id:
                has = "no topic id that can be read" if there.topic_id is None else f"topic id {there.topic_id}"
                yield Testimony(None, f"{there.path} has {has}, and the metadata {topic_id}")
            else:
                yield _testimony_of_replica(DirectoryPair(here, there), of_broker, place, known, self.engine)


def _testimony_of_replica(
    pair: DirectoryPair, one: Place, other: Place, known: MetadataOfPlaces, engine: Engine
) -> Testimony:
    [comparison] = compare_pairs([pair], one, other, known, engine)
    against = [finding for finding in comparison.findings() if finding.kind in _KINDS_SPEAKING_AGAINST]
    where = f"{pair.other.path}, a replica with that topic id,"
    if differing := [finding for finding in against if finding.kind is Kind.DIFFERS]:
        first, last = differing[0].first_offset, differing[0].last_offset
        return Testimony(False, f"{where} has other batches at offsets {first}–{last}")
    if against:
        return Testimony(None, f"{where} cannot be compared to its end: {against[0].detail}")
    if not comparison.same_batches:
        cleaned = " above what a cleaner has worked on" if comparison.cleaned_to else ""
        return Testimony(None, f"{where} has no batch in common with it{cleaned}")
    return Testimony(
        True, f"{where} has {counted(comparison.same_batches, 'batch')} in common, and no other ones there"
    )


def places_of_replicas(texts: Sequence[str], log_dirs: Sequence[Path]) -> list[Place]:
    """The places that somebody has named with `--replica`; none may be one of the broker's log dirs."""
    places = [list_place(text) for text in texts]
    for place in places:
        own = {str(path.resolve()) for path in log_dirs} & {str(path) for path in place.log_dirs}
        if own:
            raise UsageError(
                f"--replica {place.name}: it is a log dir of this broker, and confirms nothing of itself; name one of "
                "another replica, or a copy of that"
            )
    return places
