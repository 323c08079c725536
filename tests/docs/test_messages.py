"""Messages and help: docs/messages.md has all messages, and each says what happened and what to do."""

from __future__ import annotations

import re
from typing import Final

import pytest
from click import Option
from click.testing import CliRunner

from kidxlib import errors
from kidxlib.cli.main import kidx
from kidxlib.errors import KidxError, UsageError
from tests.docs.messages import ANYTHING, MESSAGES_PAGE, SECTIONS, WARNING, Message, is_recognised, messages
from tests.docs.pages import PROJECT, read

#: A word that tells a reader what to do, or what would have been right.
_WHAT_TO_DO: Final = re.compile(
    r"\b(expected|give|name|run|use|choose|pick|set|put|leave|keep|make|mend|move|read|build|install|mount|rename|copy|add|"
    r"try|write|cast|wait|stop|start|plan|remove|look|check|delete|ask|search|compare|reinstall|export|say)\b|"
    r"\b(there are|it has|it is in|only (with|for)|may hold|needs|needs:|shows it|goes by)\b|=(false|latest)\b",
    re.IGNORECASE,
)
#: A part that another program says: the operating system, a store, Spark, or a parser.
_PASSED_ON: Final = re.compile(r"(: |^)…([;,] |$)|; …$|^--[a-z-]+ …$")
#: A place, as an option or a line, and behind it what another program says, or what a function says that is listed.
_ONLY_PASSED_ON: Final = re.compile(r"(--[a-z-]+:?|…|line|byte|topic|expected|[:; ])+")
#: Other lines have this as a part, and say what to do.
_PARTS: Final = {"…: no Delta table there"}
#: Words of our code, of people who excuse themselves, and of people who scold.
_NOT_FOR_USERS: Final = re.compile(
    r"\b(staged|shares?|waves?|folds?|chunks?|payload|dataclass|assert\w*|None|"
    r"[Pp]lease|[Ss]orry|[Ii]nvalid|[Ii]llegal|[Ff]ailed to|[Uu]nable to|[Uu]nexpected|bad value)\b|!"
)
#: A listed text with fewer words would be like any other.
_WORDS_LEAST: Final = 3
#: What Kafka itself says stands in its words.
_OF_KAFKA: Final = "UnreadableMessageError"


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "--source", "/nowhere/at/all"],  # what two functions have put together
        ["build", "/nowhere", "--source", "a=b"],  # a text with a value in it
        ["build", "samples/kafka-logs", "--in-place", "--index-dir", "x"],  # one of several in a table
        ["verify", "samples/kafka-logs", "--topics", "("],
        ["verify-tiered", "samples/tiered"],
        ["report", "--catalog", "/nowhere"],
        ["report"],
        ["recover"],
        ["seek", "samples/kafka-logs", "--topic", "no-such", "--partition", "0", "--offset", "0"],
        ["retention", "--apply", "--catalog", "/nowhere"],
        ["dump", "README.md"],
        ["export", "samples/kafka-logs", "--output", "x.csv"],
    ],
    ids=" ".join,
)
def test_what_commands_say_is_listed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    error = CliRunner().invoke(kidx, arguments, standalone_mode=False).exception
    assert isinstance(error, UsageError)
    listed = [message.text for message in messages() if len(re.findall(r"\w+", message.text)) >= _WORDS_LEAST]
    patterns = [".*".join(map(re.escape, text.split(ANYTHING))) for text in listed]
    assert any(re.fullmatch(pattern, str(error)) for pattern in patterns), str(error)


def test_help_is_plain() -> None:
    """Each text of a command or an option is sentences, in the words that messages may have."""
    for command in kidx.commands.values():
        options = [(parameter.name, parameter.help) for parameter in command.params if isinstance(parameter, Option)]
        for name, text in (*options, ("", command.help)):
            assert text and text[0].isupper() and text.strip().endswith((".", "]")), f"{command.name} {name}: {text}"
            assert not re.search(r"\b(\w{2,}) \1\b", text), f"{command.name} {name}: a word twice in {text}"
            assert not _NOT_FOR_USERS.search(text), f"{command.name} {name}: {text}"


def _ours() -> list[Message]:
    return [message for message in messages() if message.kind != _OF_KAFKA]


def test_every_kind_is_in_a_section() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, KidxError)}
    listed = [kind for section in SECTIONS for kind in section.kinds]
    assert sorted(listed) == sorted({*kinds, WARNING})


def test_a_message_is_listed_if_it_has_words() -> None:
    """Any other is a place, and behind it what another program says."""
    page = set(read(MESSAGES_PAGE).splitlines())
    for text in {message.text for message in messages()}:
        is_there = not page.isdisjoint((f"- `{text}`", f"- `` {text} ``"))
        assert is_there == is_recognised(text), text
        assert is_there or _ONLY_PASSED_ON.fullmatch(text), f"{text}: give it words that a reader can search for"


def test_a_message_says_what_to_do() -> None:
    complete = {kind for section in SECTIONS if section.are_complete for kind in section.kinds}
    texts = {message.text for message in messages() if message.kind in complete}
    silent = {text for text in texts if not _WHAT_TO_DO.search(text) and not _PASSED_ON.search(text)}
    assert silent == _PARTS, "say what was expected or what to do"


def test_a_message_is_one_plain_line() -> None:
    for message in _ours():
        text = message.text
        assert "\n" not in text and "  " not in text and not text.endswith((".", ";", ":")), text
        assert not re.search(r"\b(\w{2,}) \1\b", text), f"{text}: a word twice"
        assert not _NOT_FOR_USERS.search(text), text


def test_a_message_does_not_name_our_classes() -> None:
    ours = {name for name in vars(errors) if name.endswith("Error") and name != "KidxError"}
    for message in _ours():
        assert not ours.intersection(re.findall(r"\w+", message.text)), message.text
