"""The picture of docs/architecture.md, from the imports of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate, pairwise
from typing import Final

import grimp

from tests.docs.pages import PROJECT

PICTURE: Final = PROJECT / "docs" / "images" / "packages.svg"

_WIDTH, _ROW, _BOX_WIDTH, _BOX_HEIGHT, _MARGIN = 860, 74, 118, 34, 24
_COLORS: Final = {"kidxlib": "#dbe9f6", "jobs": "#fde8cf"}

#: What each package imports, less what follows from that: below `a` stands `b`, and what `b` imports below that.
Edges = Mapping[str, frozenset[str]]


def package_imports() -> Edges:
    """The packages of kidxlib and jobs.common, and what each imports directly."""
    graph = grimp.build_graph("kidxlib", "jobs", cache_dir=None)
    packages = sorted(
        package
        for parent in ("kidxlib", "jobs.common")
        for package in graph.find_children(parent)
        if graph.find_children(package)
    )
    return {
        package: frozenset(
            other
            for other in packages
            if other != package and graph.direct_import_exists(importer=package, imported=other, as_packages=True)
        )
        for package in packages
    }


def below(edges: Edges, package: str) -> frozenset[str]:
    """All that a package needs, directly or not."""
    found: set[str] = set()
    to_do = set(edges[package])
    while to_do:
        found.add(next_ := to_do.pop())
        to_do |= edges[next_] - found
    return frozenset(found)


def reduced(edges: Edges) -> Edges:
    """Without the imports that follow from others."""
    return {
        package: frozenset(
            other for other in others if not any(other in below(edges, third) for third in others - {other})
        )
        for package, others in edges.items()
    }


def picture() -> str:
    """The packages, each above all that it imports, as SVG."""
    edges = reduced(package_imports())
    heights = {package: _height(edges, package) for package in edges}
    top = max(heights.values())
    # A line that passes a row has a place in it as a package has, so that no package hides it.
    chains = [
        (package, *(f"{package} {other} {height}" for height in range(heights[package] - 1, heights[other], -1)), other)
        for package in edges
        for other in sorted(edges[package])
    ]
    next_below: dict[str, list[str]] = {package: [] for package in edges}
    for chain in chains:
        for upper, lower in pairwise(chain):
            next_below.setdefault(upper, []).append(lower)
    places: dict[str, tuple[float, float]] = {}
    for height in range(top + 1):
        row = [item for item in next_below if _height(next_below, item) == height]
        row.sort(key=lambda item: (_middle(places[other][0] for other in next_below[item]), item))
        widths = [1.0 if item in edges else 0.3 for item in row]
        step = _WIDTH / (sum(widths) + 0.2)
        for item, before, width in zip(row, accumulate(widths, initial=0.1), widths, strict=False):
            places[item] = (before + width / 2) * step, _MARGIN + (top - height) * _ROW + _BOX_HEIGHT / 2
    lines = [_line([places[item] for item in chain]) for chain in chains]
    boxes = [_box(package, *places[package]) for package in sorted(edges)]
    size = f"{_WIDTH} {2 * _MARGIN + top * _ROW + _BOX_HEIGHT}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            *lines,
            *boxes,
            "</svg>",
            "",
        ]
    )


def _height(edges: Mapping[str, Iterable[str]], package: str) -> int:
    return 1 + max((_height(edges, other) for other in edges[package]), default=-1)


def _middle(places: Iterable[float]) -> float:
    known = list(places)
    return sum(known) / len(known) if known else _WIDTH / 2


def _line(places: Sequence[tuple[float, float]]) -> str:
    half = _BOX_HEIGHT / 2
    (x, y), *others = places
    path = f"M{x:.0f} {y + half:.0f}"
    y += half
    for number, (next_x, next_y) in enumerate(others, start=1):
        end = next_y - half
        path += f" C{x:.0f} {(y + end) / 2:.0f} {next_x:.0f} {(y + end) / 2:.0f} {next_x:.0f} {end:.0f}"
        x, y = next_x, next_y + half
        if number < len(others):
            path += f" V{y:.0f}"
    return f'<path d="{path}" fill="none" stroke="#8a8a8a"/>'


def _box(package: str, x: float, y: float) -> str:
    root, _, name = package.replace("jobs.common.", "jobs.").partition(".")
    shown = escape(name if root == "kidxlib" else f"jobs: {name}")
    left, top = x - _BOX_WIDTH / 2, y - _BOX_HEIGHT / 2
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5" '
        f'fill="{_COLORS[root]}" stroke="#555"/>'
        f'<text x="{x:.0f}" y="{y + 4.5:.0f}" text-anchor="middle">{shown}</text>'
    )
