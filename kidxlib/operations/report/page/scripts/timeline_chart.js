// Segments of one partition, drawn: pieces that are narrower than a pixel or so are put together before they are drawn.

const BUCKETS = 600;
const TIME_LABELS = { year: "{yyyy}", month: "{yyyy}-{MM}", day: "{yyyy}-{MM}-{dd}", hour: "{MM}-{dd} {HH}:{mm}",
  minute: "{MM}-{dd} {HH}:{mm}", second: "{MM}-{dd} {HH}:{mm}:{ss}", millisecond: "{MM}-{dd} {HH}:{mm}:{ss}.{SSS}" };
// The first mark of these that a piece has gives its colour.
const MARK_COLOURS = [
  ["BROKEN", "bad"], ["DIFFERS", "bad"], ["QUARANTINED", "bad"], ["UNREADABLE", "bad"], ["TRUNCATED", "bad"], ["OVERLAP", "bad"],
  ["FUTURE", "future"], ["GAP", "warning"], ["UNREAD", "unknown"],
  ["GONE", "absent"], ["DELETED", "absent"], ["EXPIRED", "expired"], ["ACTIVE", "active"], ["BACKWARDS", "backwards"],
];

function markNames(words, marks) {
  return words.filter((_, bit) => marks & (1 << bit)).map((word) => word.toLowerCase());
}

function markColour(words, marks) {
  const found = MARK_COLOURS.find(([word]) => marks & (1 << words.indexOf(word)));
  return found === undefined ? "plain" : found[1];
}

// Pieces of a lane within a range of offsets, of which neighbours in one bucket are one.
function pieces(lane, from, to) {
  const width = Math.max((to - from) / BUCKETS, 1), found = [];
  let last = null, bucket = null;
  for (let at = firstAtOrAfter(lane.base_offset, from) - 1; at < lane.base_offset.length; at += 1) {
    if (at < 0) continue;
    const start = lane.base_offset[at], end = Math.max(lane.next_offset[at], start + 1);
    if (start > to) break;
    const here = Math.floor(start / width);
    if (last !== null && here === bucket && end - last.start < width) {
      last.end = Math.max(last.end, end);
      last.marks |= lane.marks[at];
      last.bytes += lane.log_bytes[at];
      last.segments += lane.segments[at];
      last.time = Math.max(last.time, lane.max_timestamp_ms[at]);
    } else {
      last = { start, end, marks: lane.marks[at], bytes: lane.log_bytes[at], segments: lane.segments[at],
        time: lane.max_timestamp_ms[at] };
      found.push(last);
      bucket = here;
    }
  }
  return found;
}

function firstAtOrAfter(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

function extent(lanes) {
  const starts = lanes.map((lane) => lane.base_offset[0]);
  const ends = lanes.map((lane) => Math.max(lane.next_offset.at(-1), lane.base_offset.at(-1) + 1));
  return [Math.min(...starts), Math.max(...ends)];
}

// The largest timestamp of each piece, from its first offset on; the last one up to its end.
function points(of, told) {
  const found = of.filter((piece) => piece.time >= 0).map((piece) => [piece.start, piece.time, told(piece)]);
  const last = of.at(-1);
  return last !== undefined && last.time >= 0 ? [...found, [last.end, last.time, told(last)]] : found;
}

function timelineChart(report, name, lanes) {
  const [from, to] = extent(lanes), words = report.timeline.marks, height = 300 + 34 * lanes.length;
  const left = window.innerWidth < 640 ? 104 : 140;
  const top = 24, lanesBottom = top + 34 * lanes.length;
  const colours = () => Object.fromEntries([...MARK_COLOURS.map(([, each]) => each), "plain"].map((each) => [each, colour(`mark-${each}`)]));
  const told = (piece) => [`offsets ${count(piece.start)} to ${count(piece.end - 1)}`,
    `${counted(piece.segments, "segment")}, ${bytes(piece.bytes)}`, `largest timestamp ${time(piece.time)}`,
    markNames(words, piece.marks).join(", ") || "ok"].join("\n");

  function series(start, end) {
    const found = lanes.map((lane) => pieces(lane, start, end)), known = colours();
    return [
      { type: "custom", xAxisIndex: 0, yAxisIndex: 0, clip: true, encode: { x: [0, 1], y: 2 },
        data: found.flatMap((of, lane) => of.map((piece) => [piece.start, piece.end, lane, markColour(words, piece.marks), piece])),
        tooltip: { formatter: ({ value }) => told(value[4]) },
        renderItem: (_, api) => {
          const left = api.coord([api.value(0), api.value(2)]), right = api.coord([api.value(1), api.value(2)]);
          const tall = 0.62 * api.size([0, 1])[1];
          return { type: "rect", shape: { x: left[0], y: left[1] - tall / 2, width: Math.max(right[0] - left[0] - 0.5, 1), height: tall },
            style: { fill: known[api.value(3)] } };
        } },
      ...found.map((of, lane) => ({ type: "line", name: lanes[lane].source, xAxisIndex: 1, yAxisIndex: 1, showSymbol: of.length < 200,
        // The base axis is that of times, so this holds a value up to the next offset.
        step: "start",
        symbolSize: 5, connectNulls: false,
        data: points(of, told),
        tooltip: { formatter: ({ value }) => value[2] },
        markLine: lane > 0 ? undefined : { silent: true, symbol: "none", label: { formatter: "now", position: "insideEndTop", color: colour("text") },
          lineStyle: { color: colour("mark-future") }, data: [{ yAxis: report.made_at_ms }] } })),
    ];
  }

  const offsets = (more) => axis("value", { min: from, max: to, axisLabel: { color: colour("text"), formatter: (value) => count(Math.round(value)), hideOverlap: true }, ...more });
  return chart(`Segments of ${name}: offsets from left to right, a lane for each source; below, the largest timestamp of each`, height, () => ({
    grid: [{ left, right: 24, top, height: lanesBottom - top }, { left, right: 24, top: lanesBottom + 30, bottom: 78 }],
    xAxis: [offsets({ gridIndex: 0, axisLabel: { show: false } }), offsets({ gridIndex: 1 })],
    yAxis: [axis("category", { gridIndex: 0, data: lanes.map((lane) => shortened(lane.source)), inverse: true,
      axisLabel: { color: colour("text"), width: left - 12, overflow: "truncate" } }),
      axis("time", { gridIndex: 1, scale: true, axisLabel: { color: colour("text"), formatter: TIME_LABELS } })],
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, xAxisIndex: [0, 1], filterMode: "none" }, { type: "slider", xAxisIndex: [0, 1], filterMode: "none", bottom: 18, height: 28, textStyle: { color: colour("text") } }],
    series: series(from, to),
  }), { name: "timeline", ready: (drawn) => drawn.on("datazoom", () => {
    const { start, end } = drawn.getOption().dataZoom[0];
    drawn.setOption({ series: series(from + (to - from) * start / 100, from + (to - from) * end / 100) });
  }) });
}
