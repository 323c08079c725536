"""The pages' English: short sentences, one spelling for each of Kafka's terms, no history, no filling words."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import PAGES
from tests.docs.prose import Sentence, sentences, sentences_of

#: Between two signs that let a reader breathe. Who needs more has two sentences.
_WORDS_MOST: Final = 30
#: But for what the code makes: `tests/docs/test_messages.py` reads messages.
_WRITTEN: Final = [*PAGES, "CHANGELOG.md"]

#: What a page must not say, and why.
_RULES: Final = {
    "a page tells what is, the CHANGELOG what has changed": (
        r"\b(by now|these days|nowadays|until now|up to now|used to be|(?:was|were) last measured|measured anew|"
        r"in an earlier version|in the past|originally|recently|not yet (?:done|implemented|supported))\b"
    ),
    "leave the word out": (
        r"\b(please|simply|just|easily|obviously|clearly|very|really|actually|basically|of course|in order to|"
        r"utili[sz]e\w*|leverag\w+|seamless\w*|powerful|robust|state-of-the-art|it should be noted|note that (?!was))\b"
    ),
    "say it in English": r"\b(e\.g|i\.e|etc|via|resp|vs|viz)\b",
    "say 'you' to the reader, and 'kidx' of the program": r"\b(we|us|our|ours|the reader of this page|one should)\b",
    "write the term as Kafka's documentation does": (
        r"\b(log-(?:start|end) offsets?|(?:high|low)-watermarks?|highwatermarks?|leader-epochs?|log-dirs?|"
        r"log director(?:y|ies)|time stamps?|meta data|data sets?|index-files?|producer-ids?|topic-ids?|check sums?|"
        r"catalogues?|filesystems?)\b"
    ),
    "a word stands twice": r"\b(\w{2,}) \1\b",
}


@pytest.mark.parametrize("page", _WRITTEN)
def test_sentences_are_short(page: str) -> None:
    long = [f"{part.words} words: {part}" for part in sentences(page) if part.words > _WORDS_MOST]
    assert not long, "\n".join(["divide these:", *long])


@pytest.mark.parametrize("page", _WRITTEN)
def test_words(page: str) -> None:
    found = [
        f"{why}: {match[0]!r} in {part}"
        for part in sentences(page)
        for why, pattern in _RULES.items()
        if (match := re.search(pattern, part.text, re.IGNORECASE))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("a page tells what is, the CHANGELOG what has changed", "It is faster by now."),
        ("leave the word out", "Just run it."),
        ("say it in English", "A disk, e.g. a copy."),
        ("say 'you' to the reader, and 'kidx' of the program", "We read it."),
        ("write the term as Kafka's documentation does", "Below the high-watermark."),
        ("a word stands twice", "It is is there."),
    ],
)
def test_each_rule_finds_something(why: str, text: str) -> None:
    assert re.search(_RULES[why], text, re.IGNORECASE)
    assert not re.search(_RULES[why], "You read records below the high watermark.", re.IGNORECASE)


def test_sentences_are_what_a_reader_reads() -> None:
    """Without code and addresses; a list's item, a cell and what stands after a colon are read by themselves."""
    text = """# A heading

You run `kidx build
DIR`, then [look](docs/audit.md#reading): the page
says 1.5 s. Is that much?

```sh
kidx build. This is no sentence.
```

- one item
- another; both are short
| a cell | a cell of code: `x` |
"""
    assert [(part.line, part.text) for part in sentences_of(text)] == [
        (1, "A heading"),
        (3, "You run §, then look:"),
        (4, "the page says 1.5 s."),
        (5, "Is that much?"),
        (11, "one item"),
        (12, "another;"),
        (12, "both are short"),
        (13, "a cell"),
        (13, "a cell of code:"),
    ]
    assert Sentence("", 1, "You run §, then look:").words == 5
