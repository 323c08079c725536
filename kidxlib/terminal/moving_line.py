"""The line that moves at the end of a terminal while a phase lasts."""

from __future__ import annotations

from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kidxlib.terminal.console import let_move
from kidxlib.terminal.phase import Phase, of_store

#: A terminal shows how long a phase lasts when it has lasted so long.
_LONG_SECONDS: Final = 3.0
_REFRESH_PER_SECOND: Final = 5


class MovingLine:
    """One line at the end of a terminal."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._spinner = Spinner("line")
        self.console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            get_renderable=self._shown,
            transient=True,
            refresh_per_second=_REFRESH_PER_SECOND,
            redirect_stdout=False,  # it is for results, and may be a file
        )
        let_move(self)
        self._live.start(refresh=True)

    def stop(self) -> None:
        let_move(None)
        self._live.stop()

    def _shown(self) -> RenderableType:
        phase = self._phase
        name, done = phase.state()
        slow = f", {of_store()}" if of_store() else ""
        line = Table.grid(padding=(0, 1, 0, 0), expand=True)
        line.add_column(width=1)
        line.add_column(no_wrap=True, overflow="ellipsis")
        if done is None:
            line.add_column(justify="right", no_wrap=True, ratio=1)
            seconds = f"{phase.seconds:,.0f} s" if phase.seconds >= _LONG_SECONDS else ""
            line.add_row(self._spinner, Text(name + slow), Text(seconds))
            return line
        left = phase.seconds_left(done)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(
            self._spinner,
            Text(f"{name} {phase.amount(done)}{slow}"),
            ProgressBar(total=1, completed=phase.share(done)),
            Text("" if left is None else f"{phase.speed(done)}, {left:,.0f} s left"),
        )
        return line
