// The map of the fleet: a row for each source, a column for each partition, the worst state in front. Partitions that are
// narrower than a few pixels are drawn as one piece with the state of the worst, so that no bad one is too small to see.

const MAP_PIECES = 240;
const STATES = [["ok", "well"], ["unknown", "not looked at since the last build"], ["warning", "unusual"], ["bad", "bad"]];
// A state is told by its height, too.
const STATE_HEIGHTS = [0.5, 0.5, 0.75, 1];

function fleetMap(report) {
  const { partitions, sources, reasons } = report.fleet;
  if (partitions.length === 0) return section("Partitions by source", whatToRun(NO_SEGMENT, BUILD));
  const names = partitions.map(partitionName), why = new Map(reasons.map((row) => [`${row.source}\n${partitionName(row)}`, row.reasons]));
  const counts = sources.map(({ source, states, log_bytes: sizes }) => ({ source, bytes: sizes.reduce((sum, size) => sum + size, 0),
    states: STATES.map((_, state) => states.filter((each) => each === state).length) }));
  return section("Partitions by source",
    mapChart(sources, names, why),
    element("ul", { class: "legend" }, ...STATES.map(([kind, words]) => element("li", {}, element("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), words)),
      element("li", {}, element("span", { class: "swatch hole", "aria-hidden": "true" }), "not in this source")),
    note("Click a partition to see its segments. Zoom with Ctrl and the wheel, or with the slider."),
    table("Partitions with something to look at", [text("partition", partitionName), text("source", (row) => row.source),
      { title: "state", value: (row) => row.state, show: (row) => badge(STATES[row.state][1], STATES[row.state][0]), number: false },
      text("why", (row) => row.reasons.join("; "))], reasons, { name: "fleet", empty: "none" }),
    table("Sources by the state of their partitions", [text("source", (row) => row.source),
      ...STATES.map(([, words], state) => number(words, (row) => row.states[state])), number("bytes", (row) => row.bytes, bytes)], counts, { name: "fleet-sources" }),
    origin(report, "partitions of each source", "damaged segments by partition", "findings by partition"));
}

function mapPieces({ states, log_bytes: sizes }, from, to) {
  const width = Math.max(1, Math.ceil((to - from) / MAP_PIECES)), found = [];
  for (let start = Math.floor(from / width) * width; start < to; start += width) {
    let piece = null;
    for (let at = Math.max(start, 0); at < Math.min(start + width, states.length); at += 1) {
      if (states[at] < 0) continue;
      piece ??= { start: at, end: at, worst: at, partitions: 0, bytes: 0 };
      if (states[at] > states[piece.worst]) piece.worst = at;
      piece.end = at + 1;
      piece.partitions += 1;
      piece.bytes += sizes[at];
    }
    if (piece !== null) found.push(piece);
  }
  return found;
}

function mapChart(sources, names, why) {
  const rowHeight = sources.length > 20 ? 18 : 34, left = window.innerWidth < 640 ? 104 : 140;
  const height = 96 + rowHeight * sources.length;

  function told({ source, states }, piece) {
    const worst = names[piece.worst], reasons = why.get(`${source}\n${worst}`) ?? [];
    const first = piece.partitions === 1 ? `${worst} in ${source}` : `${names[piece.start]} to ${names[piece.end - 1]} in ${source}: ${counted(piece.partitions, "partition")}`;
    const state = `${piece.partitions === 1 ? "" : `the worst, ${worst}: `}${STATES[states[piece.worst]][1]}`;
    return [first, state, ...reasons, bytes(piece.bytes)].join("\n");
  }

  function series(from, to) {
    const colours = STATES.map(([kind]) => colour(`state-${kind}`));
    return [{ type: "custom", clip: true, encode: { x: [0, 1], y: 2 },
      data: sources.flatMap((source, row) => mapPieces(source, from, to).map((piece) => [piece.start, piece.end, row, source.states[piece.worst], piece])),
      tooltip: { formatter: ({ value }) => told(sources[value[2]], value[4]) },
      renderItem: (_, api) => {
        const [x, y] = api.coord([api.value(0), api.value(2)]), [right] = api.coord([api.value(1), api.value(2)]), state = api.value(3);
        const tall = Math.max(STATE_HEIGHTS[state] * (api.size([0, 1])[1] - 4), 3), gap = right - x > 6 ? 1.5 : 0;
        return { type: "rect", shape: { x: x + gap / 2, y: y - tall / 2, width: Math.max(right - x - gap, 2), height: tall, r: gap }, style: { fill: colours[state] } };
      } }];
  }

  return chart("Partitions from left to right by topic, a row for each source; tall red ones are bad", height, () => ({
    grid: { left, right: 24, top: 8, bottom: 76 },
    xAxis: axis("value", { min: 0, max: names.length, minInterval: 1, splitLine: { show: false },
      axisLabel: { color: colour("text"), hideOverlap: true, formatter: (value) => Number.isInteger(value) && value < names.length ? shortened(names[value]) : "" } }),
    yAxis: axis("category", { data: sources.map((row) => shortened(row.source)), inverse: true, splitLine: { show: false },
      axisLabel: { color: colour("text"), width: left - 12, overflow: "truncate" } }),
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, filterMode: "none" },
      { type: "slider", filterMode: "none", bottom: 14, height: 24, showDetail: false }],
    series: series(0, names.length),
  }), { name: "fleet", ready: (drawn) => {
    drawn.on("datazoom", () => {
      const { start, end } = drawn.getOption().dataZoom[0];
      drawn.setOption({ series: series(names.length * start / 100, names.length * end / 100) });
    });
    drawn.on("click", ({ value }) => { location.hash = `timeline/${encodeURIComponent(names[value[4].worst])}`; });
  } });
}
