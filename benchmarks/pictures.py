"""The pictures of docs/, drawn from what the code does and from what `pages` has measured."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from benchmarks.pages import ENTRIES_A_PAGE, PLAIN, SIZES, TAIL, WARM_COLD, traced
from kidxlib.format import layouts
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.search_kernel import WARM_BYTES
from kidxlib.index.time import TimeIndex
from kidxlib.library.read import read
from kidxlib.log.segment import LogSegment
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog
from kidxlib.terminal.console import note, print_line

PROJECT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = PROJECT / "docs" / "images"

#: A small segment, to be drawn as a whole, and an offset to look for in it.
SEGMENT: Final = PROJECT / "samples" / "kafka-logs" / "txn-mixed-0" / "00000000000000005797.log"
WANTED: Final = 5850
#: The log dir of which docs/read.md makes a chart.
SHOP: Final = PROJECT / "samples" / "shop" / "kafka-logs"
#: Kafka's example: an index of so many full pages, before and after it has grown by one.
PAGES_BEFORE, PAGES_AFTER = 13, 14

#: Colours that are told apart by who sees few of them, and in grey (Okabe and Ito).
BLUE, ORANGE, PALE, GREY, BLACK = "#0072B2", "#D55E00", "#CFE3F1", "#6E6E6E", "#222222"
TOPICS: Final = {"orders": BLUE, "payments": ORANGE, "shipments": BLACK}
_STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",  # matplotlib brings it along
    "font.size": 10,
    "text.color": BLACK,
    "axes.labelcolor": BLACK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",  # also on a dark page
    "hatch.linewidth": 1.2,
    "svg.hashsalt": "kidx",  # the same picture, the same bytes
}
_INCHES_WIDE: Final = 9.2


@click.command()
@click.option(
    "--measured",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("var/benchmarks"),
    show_default=True,
    help="Where `pages` wrote what it measured.",
)
@click.option("--directory", type=click.Path(path_type=Path), default=IMAGES, help="[default: docs/images]")
@click.option("--format", "suffix", type=click.Choice(["svg", "png"]), default="svg", show_default=True)
def pictures(measured: Path, directory: Path, suffix: str) -> None:
    """Draw the pictures of docs/. Those of what was not measured here stay as they are."""
    reports = {name: json.loads(path.read_text()) for name in MEASURED if (path := measured / f"{name}.json").exists()}
    to_draw = dict(EXPLAINING)
    to_draw |= {name: functools.partial(MEASURED[name], report) for name, report in reports.items()}
    directory.mkdir(parents=True, exist_ok=True)
    for name, draw in to_draw.items():
        path = directory / f"{name}.{suffix}"
        path.write_bytes(drawn(draw, suffix))
        print_line(f"{path}")
    for name in MEASURED.keys() - reports.keys():
        note(f"{name}: not drawn, as there is no {measured / name}.json; python -m benchmarks.run {name} writes it")


def _take_own_fonts() -> None:
    """Let matplotlib take no fonts but those that it brings along. A system's font of the same name may number glyphs
    in another way, and pictures name these numbers.
    """
    font_manager.fontManager.ttflist.clear()
    for font in sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVuSans*.ttf")):
        font_manager.fontManager.addfont(font)


_take_own_fonts()


def drawn(draw: Callable[[], Figure], suffix: str = "svg") -> bytes:
    """A picture as a file of this kind."""
    content = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        nameless = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
        draw().savefig(content, format=suffix, metadata=nameless, dpi=110)
    return content.getvalue()


# ---- the sparse index over a log ----


def draw_sparse_index() -> Figure:
    """A real segment: what its indexes say, and the way from an offset to the batch that holds it."""
    log, base_offset = WholeLog(np.fromfile(SEGMENT, np.uint8)), int(SEGMENT.stem)
    recovered = recover(log, base_offset, RecoverOptions())
    offsets = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
    times = TimeIndex.from_bytes(recovered.time_index, base_offset)
    found = LogSegment(log, base_offset, offsets, times).translate_offset(WANTED)
    entry = offsets.lookup(WANTED)
    assert found is not None

    figure = Figure(figsize=(_INCHES_WIDE, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-log.size * 0.03, log.size * 1.07), ylim=(-3.2, 7.0))
    axes.axis("off")

    for batch in batches(log, 0):
        walked = entry.position <= batch.position < found.position
        _draw_batch(axes, batch, BLUE if batch.position == found.position else PALE if walked else "white")
    indexed = {one.offset: one.position for one in (offsets.entry(number) for number in range(len(offsets)))}
    for position in (0, *indexed.values(), log.size):
        axes.text(position, -0.95, f"byte\n{position:,}", ha="center", va="top", fontsize=9, color=GREY)
    _draw_arrow(axes, (entry.position, -0.4), (found.position + found.size / 2, -0.4), used=True)
    way = f"offset {WANTED}: the last entry that is not above it, and from there header by header"
    axes.text(0, -2.5, way, va="top", color=BLUE)

    axes.text(0, 1.6, ".log", fontweight="bold")
    axes.text(0, 3.7, ".index", fontweight="bold", va="bottom")
    axes.text(0, 3.6, "offset → position", va="top")
    for offset, position in indexed.items():
        _draw_entry(axes, position, 3.65, f"{offset} → {position:,}", used=offset == entry.offset)
        _draw_arrow(axes, (position, 3.1), (position, 1.02), used=offset == entry.offset)

    axes.text(0, 6.25, ".timeindex", fontweight="bold", va="bottom")
    axes.text(0, 6.15, "timestamp → offset", va="top")
    for number in range(len(times)):
        one = times.entry(number)
        position = indexed.get(one.offset, log.size)
        _draw_entry(axes, position, 6.2, f"…{one.timestamp % 100_000} → {one.offset}", used=False)
        _draw_arrow(axes, (position, 5.65), (offsets.lookup(one.offset).position, 4.2), used=False)
    return figure


def _draw_batch(axes: Axes, batch: BatchHeader, colour: str) -> None:
    axes.add_patch(Rectangle((batch.position, 0), batch.size, 1, facecolor=colour, edgecolor=GREY, linewidth=0.8))
    if batch.size > 500:  # else there is no room
        text, middle = "white" if colour == BLUE else BLACK, batch.position + batch.size / 2
        axes.text(middle, 0.5, str(batch.offset_field), ha="center", va="center", fontsize=8.5, color=text)


def _draw_entry(axes: Axes, x: float, y: float, text: str, used: bool) -> None:
    face, edge, colour = (BLUE, BLUE, "white") if used else ("white", GREY, BLACK)
    box = {"boxstyle": "square,pad=0.45", "facecolor": face, "edgecolor": edge}
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color=colour, bbox=box)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], used: bool) -> None:
    colour, width = (BLUE, 1.8) if used else (GREY, 1.0)
    line = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=line)


# ---- the pages that a search touches ----


def draw_search() -> Figure:
    """Which pages a lookup of the last entry touches, before and after the index has grown by a page."""
    figure = Figure(figsize=(_INCHES_WIDE, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-2.3, PAGES_AFTER + 0.1), ylim=(-7.6, 0.9))
    axes.axis("off")
    for top, pages in ((0.0, PAGES_BEFORE), (-4.1, PAGES_AFTER)):
        axes.text(-2.3, top + 0.45, f"{pages} pages", fontweight="bold")
        for row, search in enumerate((PLAIN, WARM_COLD)):
            y = top - 1.0 - row * 1.3
            axes.text(-0.25, y + 0.45, search, ha="right", va="center")
            touched = _pages_at_tail(search, pages)
            known = {*_pages_at_tail(search, PAGES_BEFORE), pages - 1}  # what is appended to is in memory
            for page in range(pages):
                _draw_page(axes, page, y, page in touched, page in known)
        first_warm = pages - (WARM_BYTES + layouts.OFFSET_INDEX_ENTRY.itemsize) / (ENTRIES_A_PAGE * 8)
        axes.plot([first_warm, first_warm, pages, pages], [y - 0.12, y - 0.3, y - 0.3, y - 0.12], color=BLACK, lw=1)
        axes.text((first_warm + pages) / 2, y - 0.42, "the last 8 KiB and one entry", ha="center", va="top", fontsize=9)
    legend = [
        Patch(facecolor=BLUE, edgecolor=BLUE, label="read, and in memory: every lookup at the end reads it"),
        Patch(
            facecolor="white",
            edgecolor=ORANGE,
            hatch="///",
            label="read, not needed for long: comes from the disk",
        ),
    ]
    figure.legend(handles=legend, loc="outside lower left", ncols=2, frameon=False, fontsize=9.5)
    return figure


def _pages_at_tail(search: str, pages: int) -> tuple[int, ...]:
    """The pages that a lookup of the last entry touches, in an index of so many full ones."""
    entries = np.zeros(pages * ENTRIES_A_PAGE, layouts.OFFSET_INDEX_ENTRY)
    entries["relative_offset"] = np.arange(len(entries))
    return traced(entries.view(np.uint8), search, len(entries) - 1).pages


def _draw_page(axes: Axes, page: int, y: float, touched: bool, known: bool) -> None:
    face, edge, text = ("white", GREY, GREY)
    if touched:
        face, edge, text = (BLUE, BLUE, "white") if known else ("white", ORANGE, BLACK)
    hatch = "///" if touched and not known else None
    axes.add_patch(Rectangle((page + 0.04, y), 0.92, 0.9, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1.2))
    box = {"boxstyle": "round,pad=0.15", "facecolor": face, "edgecolor": "none"}
    axes.text(
        page + 0.5,
        y + 0.45,
        str(page),
        ha="center",
        va="center",
        color=text,
        bbox=box,
        fontweight="bold" if touched else None,
    )


# ---- messages a minute ----


def draw_messages_a_minute() -> Figure:
    """How many messages a minute each topic of a broker has on its disk: the chart of docs/read.md."""
    table = read(SHOP, columns=["topic", "timestamp"]).read_all()
    topics, times = np.array(table["topic"].to_pylist()), table["timestamp"].to_numpy().astype("datetime64[m]")
    minutes = np.arange(times.min(), times.max() + 1)

    figure = Figure(figsize=(_INCHES_WIDE, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for topic, colour in TOPICS.items():
        of_topic = (times[topics == topic] - minutes[0]).astype(np.int64)
        counts = np.bincount(of_topic, minlength=len(minutes))
        axes.plot(minutes, counts, color=colour, linewidth=1.8)
        end = (minutes[-1], counts[-1])
        axes.annotate(topic, end, (6, 0), textcoords="offset points", color=colour, va="center", annotation_clip=False)
    axes.set(title="Messages a minute", xlabel="UTC", xlim=(minutes[0], minutes[-1]), ylim=(0, None))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    return figure


# ---- what was measured ----


def draw_pages(report: Mapping[str, Any]) -> Figure:
    """Pages that a lookup at the tail reads, and how long it takes, as the index grows."""
    measured: Sequence[Mapping[str, Any]] = report["measured"]
    figure = Figure(figsize=(_INCHES_WIDE, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    all_sizes = range(SIZES[0], SIZES[-1] + 1)
    for search, colour, marker in ((PLAIN, ORANGE, "s"), (WARM_COLD, BLUE, "o")):
        cold = [
            each for each in measured if (each["what"], each["search"], each["read_ahead"]) == (TAIL, search, False)
        ]
        sizes = [each["pages"] for each in cold]
        touched = [len(_pages_at_tail(search, size)) for size in all_sizes]
        left.plot(all_sizes, touched, color=colour, linewidth=1.2, label=f"{search}, by its trace")
        resident = [each["resident"] for each in cold]
        left.plot(sizes, resident, marker, color=colour, label=f"{search}, in memory after it")
        quarters = [np.quantile(each["seconds"], (0.25, 0.5, 0.75)) * 1000 for each in cold]
        low, middle, high = np.array(quarters).T
        right.errorbar(
            sizes, middle, (middle - low, high - middle), fmt=f"{marker}-", color=colour, capsize=3, label=search
        )
    left.set(title="Pages that a lookup of the last entry reads", ylim=(0, 14))
    right.set(title="Milliseconds, with nothing in memory before", ylim=(0, None))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([13, 40, 160, 640, 2560], ["13", "40", "160", "640", "2,560"])
        axes.minorticks_off()
        axes.set_xlabel("pages of the index")
        axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, loc="upper left", fontsize=9)
    return figure


#: Those that need no measurement, by name.
EXPLAINING: Final[Mapping[str, Callable[[], Figure]]] = {
    "sparse-index": draw_sparse_index,
    "search": draw_search,
    "messages-a-minute": draw_messages_a_minute,
}

#: Those of measurements, by the name of the benchmark.
MEASURED: Final[Mapping[str, Callable[[Mapping[str, Any]], Figure]]] = {"pages": draw_pages}
