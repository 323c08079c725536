"""What the options `--source` and `--topics` mean, and how a summary tells the sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kidxlib.errors import UsageError
from kidxlib.indexing.remote_logs import NOT_SAID, RemoteOptions
from kidxlib.indexing.source import Source, parse_source


def parse_sources(given: Iterable[str], remote: RemoteOptions = NOT_SAID) -> tuple[Source, ...]:
    """The sources that the `--source` options mean.

    Args:
        remote: what is said of those that are buckets of tiered storage.
    """
    texts = tuple(given)
    sources = tuple(parse_source(text, name_required=len(texts) > 1, remote=remote) for text in texts)
    for name, count in Counter(source.name for source in sources).items():
        if count > 1:
            raise UsageError(f"--source: the name {name} is given {count} times; each source needs its own")
    return sources


def parse_topics(pattern: str, option: str = "--topics") -> re.Pattern[str]:
    """The regular expression for the names of topics.

    Args:
        option: what the caller gave it as, for messages.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{option} {pattern}: not a regular expression: {error}") from error


def as_line(sources: tuple[Source, ...]) -> str:
    """What was read, for the summary."""
    return ", ".join(
        str(source.path) if source.name == str(source.path) else f"{source.name} ({source.path})" for source in sources
    )
