"""What the site has besides the pages of docs/: made from the code, so that nothing is typed twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from click import Context, Group
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

import kidxlib
from kidxlib.cli.main import kidx

_HERE: Final = Path(__file__).parent
_PROJECT: Final = Path(__file__).resolve().parents[2]
#: `shim/index.js` of the npm package iframe-worker 1.0.4, with its licence (MIT) beside it.
_SHIM: Final = "assets/javascripts/iframe-worker.js"
_SHIM_ELSEWHERE: Final = "https://unpkg.com/iframe-worker/shim"
_WIDTH: Final = 100
_SETTINGS_PAGE: Final = "reference-settings.md"
#: Links of pages to files outside docs/, and where the site has these.
_MOVED: Final = {
    "../README.md": "index.md",
    "../conf/kidx.toml": _SETTINGS_PAGE,
    "../conf/log4j2.properties": _SETTINGS_PAGE,
    "../Dockerfile": f"{_SETTINGS_PAGE}#dockerfile",
    "../Dockerfile.spark": f"{_SETTINGS_PAGE}#dockerfilespark",
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
    "../tests/README.md": "contributing.md",
}
#: Pages that show a command at work.
_SHOWN_AT_WORK: Final = {
    "accept": "At work: [Damage that stays](damage.md).",
    "build": "At work: [Build indexes and a catalog](start.md), [Index files that are lost or wrong](index-files.md).",
    "compact": "At work: [Free disk space](compaction.md).",
    "compare": "At work: [Is my backup whole?](backup.md).",
    "doctor": "At work: [What is installed, and what works here](operations.md#what-is-installed-and-what-works-here).",
    "dump": "At work: [What is in a file](dump.md).",
    "export": "At work: [Read records without a broker](read.md).",
    "fleet": "At work: [A broker will not start](recover.md).",
    "forget-source": "At work: [Run it every day](operations.md).",
    "recover": "At work: [A broker will not start](recover.md).",
    "repair-tiered": "At work: [Is the bucket of tiered storage right?](tiered.md).",
    "report": "At work: [See a whole fleet](report.md).",
    "restore": "At work: [A cluster is lost](restore.md).",
    "restore-check": "At work: [A cluster is lost](restore.md).",
    "retention": "At work: [Which segments will retention delete?](retention.md), with the keys of "
    "[policies](policies.md).",
    "seek": "At work: [Find the record at a time](seek.md).",
    "tables": "At work: [Free disk space](compaction.md#tables).",
    "unpack": "At work: [Build indexes and a catalog](start.md).",
    "verify": "At work: [Are these files right?](audit.md).",
    "verify-tiered": "At work: [Is the bucket of tiered storage right?](tiered.md).",
    "who": "At work: [Which producer wrote the poison record](read.md#which-producer-wrote-the-poison-record).",
}
#: The beginning of a block: its language, and words for tests, as `exit=3`.
_FENCE: Final = re.compile(r"^```([a-z]+) [^\n`]+$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made: dict[str, Callable[[], str]] = {
        "index.md": lambda: _of_project("README.md"),
        "changelog.md": lambda: _of_project("CHANGELOG.md"),
        "contributing.md": lambda: _of_project("CONTRIBUTING.md"),
        "security.md": lambda: _of_project("SECURITY.md"),
        "reference-commands.md": _commands,
        _SETTINGS_PAGE: _settings,
        "reference-library.md": _library,
    }
    for name, make in made.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lead links to files outside docs/ to where the site has them, and leave out what blocks say to tests alone."""

    def led(link: re.Match[str]) -> str:
        path, mark, anchor = link["target"].partition("#")
        return f"{_MOVED.get(path, path)}{mark}{anchor}"

    return _LINK.sub(led, _FENCE.sub(r"```\1", markdown))


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Take the script that search needs in files from the site itself: the theme would load it from elsewhere."""
    return output.replace(_SHIM_ELSEWHERE, get_relative_url(_SHIM, page.url))


def on_post_template(output_content: str, **_: object) -> str:
    """As `on_post_page`, of the page that says that there is no such page."""
    return output_content.replace(_SHIM_ELSEWHERE, f"/{_SHIM}")


def on_post_build(config: MkDocsConfig) -> None:
    """Bring that script along."""
    target = Path(config.site_dir, _SHIM)
    target.write_bytes((_HERE / "iframe-worker" / "shim.js").read_bytes())


def _of_project(name: str) -> str:
    """A page of the project's directory, with links as a page of docs/ has them."""

    def led(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith("#"):
            return target
        return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"

    return _LINK.sub(led, (_PROJECT / name).read_text())


def _commands() -> str:
    """What each command says with --help."""
    parts = ["# Commands\n", "Each command says this with `--help`.\n"]
    context = Context(kidx, info_name="kidx", max_content_width=_WIDTH, terminal_width=_WIDTH)
    assert isinstance(kidx, Group)
    for name in kidx.list_commands(context):
        command = kidx.get_command(context, name)
        assert command is not None
        of_command = Context(command, parent=context, info_name=name, max_content_width=_WIDTH, terminal_width=_WIDTH)
        parts.append(f"## kidx {name}\n\n```text\n{command.get_help(of_command)}\n```\n\n{_SHOWN_AT_WORK[name]}\n")
    return "\n".join(parts)


def _settings() -> str:
    """The files that say what is set, as they are."""
    parts = ["# Settings\n"]
    for title, name, language in (
        ("conf/kidx.toml", "conf/kidx.toml", "toml"),
        ("conf/log4j2.properties", "conf/log4j2.properties", "properties"),
        ("Dockerfile", "Dockerfile", "dockerfile"),
        ("Dockerfile.spark", "Dockerfile.spark", "dockerfile"),
    ):
        parts.append(f"## {title}\n\n```{language}\n{(_PROJECT / name).read_text()}```\n")
    return "\n".join(parts)


def _library() -> str:
    """All public names, with their docstrings."""
    names = "\n\n".join(
        f"::: kidxlib.{name}" for name in sorted(kidxlib.__all__, key=str.lower) if name != "__version__"
    )
    return f"# The library, name by name\n\n[The library](library.md) shows these at work.\n\n{names}\n"
