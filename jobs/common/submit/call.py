"""The words after ./spark-submit.sh: its own options, a job, the job's options, `--`, spark-submit's options."""

from __future__ import annotations

from collections.abc import Sequence

from kidxlib.errors import UsageError

TYPE_CHECKING = False  # importing typing takes longer than all the work here
if TYPE_CHECKING:
    from typing import Final

HELP: Final = ("-h", "--help")


class Call:
    """A call of ./spark-submit.sh.

    Attributes:
        job: a job's name, or the word in its place; None: no word.
        words: the words after the job.
        is_dry_run: whether the command is printed in place of being run.
        image: the project's directory in the containers of a Kubernetes cluster; empty: not given.
    """

    def __init__(
        self, job: str | None, words: Sequence[str] = (), *, is_dry_run: bool = False, image: str = ""
    ) -> None:
        self.job: Final = job
        self.words: Final = tuple(words)
        self.is_dry_run: Final = is_dry_run
        self.image: Final = image

    @property
    def job_options(self) -> tuple[str, ...]:
        return self.words[: self._end_of_job_options]

    @property
    def spark_options(self) -> tuple[str, ...]:
        """The words after the first `--`, which are for spark-submit."""
        return self.words[self._end_of_job_options + 1 :]

    @property
    def _end_of_job_options(self) -> int:
        return self.words.index("--") if "--" in self.words else len(self.words)


def read_call(words: Sequence[str]) -> Call:
    """Separate the script's own options from the job and the words after it."""
    is_dry_run, image = False, ""
    rest = iter(words)
    for word in rest:
        if word == "--dry-run":
            is_dry_run = True
        elif word == "--in-image":
            directory = next(rest, "")
            if not directory.startswith("/"):
                raise UsageError(
                    f"--in-image: {directory or 'nothing'}; expected the directory's path in the image, from / on"
                )
            image = directory.removesuffix("/")
        else:
            return Call(word, tuple(rest), is_dry_run=is_dry_run, image=image)
    return Call(None, is_dry_run=is_dry_run, image=image)
