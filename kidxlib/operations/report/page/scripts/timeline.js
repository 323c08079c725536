// The timeline: choose a partition, see its segments.

const MATCHES_SHOWN = 200;

function timelinePage(report, chosen) {
  const { marks } = report.timeline, partitions = report.timeline.partitions.map((row) => withoutExplainedGaps(report, row));
  if (partitions.length === 0) return [whatToRun(NO_SEGMENT, BUILD)];
  const label = (row) => `${partitionName(row)} · ${counted(row.segments, "segment")}${notable(marks, row)}`;
  const order = partitions.slice().sort((one, other) => isNotable(marks, other) - isNotable(marks, one));
  const filter = element("input", { type: "search", id: "timeline-filter", autocomplete: "off", on: { input: list } });
  const select = element("select", { id: "timeline-partition", size: 8, on: { change: show } });
  const place = element("div", { "aria-live": "polite" });
  const more = note("");

  function list() {
    const wanted = filter.value.toLowerCase();
    const found = order.filter((row) => partitionName(row).toLowerCase().includes(wanted));
    select.replaceChildren(...found.slice(0, MATCHES_SHOWN).map((row) => element("option", { value: partitionName(row) }, label(row))));
    more.textContent = found.length > MATCHES_SHOWN ? `${count(found.length - MATCHES_SHOWN)} more partitions: write a part of a name.` : "";
    select.selectedIndex = 0;
    show();
  }

  async function show() {
    const name = select.value;
    if (name === "") { place.replaceChildren(note("No partition has such a name.")); return; }
    const lanes = (await part(`timeline-${report.timeline_part[name]}`))[name];
    if (select.value !== name) return;
    history.replaceState(null, "", `#timeline/${encodeURIComponent(name)}`);
    place.replaceChildren(timelineChart(report, name, lanes), legend(),
      note("Zoom with Ctrl and the wheel, or with the slider; drag to move."), bounds(lanes), lanesTable(report, name, lanes));
    drawCharts();
  }

  if (chosen) filter.value = chosen;
  queueMicrotask(list);
  return [
    element("div", { class: "chooser" },
      element("label", { for: "timeline-filter" }, "Part of a partition's name"), filter,
      element("label", { for: "timeline-partition" }, "Partition: those with something to look at come first"), select, more),
    place,
    origin(report, "SELECT source, base_offset, next_offset, status, active, log_bytes, max_timestamp\nFROM segments\nWHERE topic = '…' AND partition = …\nORDER BY source, base_offset"),
  ];
}

// A gap that compaction explains is nothing to look at.
function withoutExplainedGaps({ health, timeline }, row) {
  const isExplained = health.gaps_explained.some((gaps) => gaps.topic === row.topic);
  const isLost = health.lost_gaps.some((gap) => !gap.is_accepted && gap.topic === row.topic && gap.partition === row.partition);
  return isExplained && !isLost ? { ...row, marks: row.marks & ~(1 << timeline.marks.indexOf("GAP")) } : row;
}

function isNotable(words, row) {
  return MARK_COLOURS.some(([word, kind]) => ["bad", "future", "warning", "backwards"].includes(kind) && row.marks & (1 << words.indexOf(word)));
}

function notable(words, row) {
  return isNotable(words, row) ? ` · ${markNames(words, row.marks).filter((word) => word !== "active" && word !== "expired").join(", ")}` : "";
}

function bounds(lanes) {
  return table("Where the partition begins and ends, as the log dirs' checkpoints said when they were built",
    [text("source", (row) => row.source), number("log start offset", (row) => row.log_start_offset), number("high watermark", (row) => row.high_watermark),
      number("log end offset", (row) => row.log_end_offset)], lanes.filter((lane) => !lane.is_remote), { name: "bounds", empty: "in a bucket alone" });
}

function legend() {
  const told = { plain: "ok", active: "active", expired: "goes by the topic's own policy", warning: "a gap before it", backwards: "an earlier segment has a larger timestamp",
    future: "a timestamp in the future", bad: "damaged, a broken file, or unlike another replica", absent: "gone or deleted", unknown: "in the bucket, but not read" };
  return element("ul", { class: "legend" }, ...Object.entries(told).map(([kind, words]) =>
    element("li", {}, element("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), words)));
}

function lanesTable(report, name, lanes) {
  const words = report.timeline.marks;
  const rows = lanes.flatMap((lane) => lane.base_offset.map((_, at) => [lane, at]));
  const merged = lanes.some((lane) => lane.segments.some((segments) => segments > 1));
  return element("div", {},
    merged ? note("A row is a piece of several segments here: the page shows 100,000 segments one by one, those of partitions with something to look at first.") : null,
    table(`Segments of ${name}`, [text("source", ([lane]) => lane.source), number("base offset", ([lane, at]) => lane.base_offset[at]),
      number("next offset", ([lane, at]) => lane.next_offset[at] < 0 ? null : lane.next_offset[at]), number("segments", ([lane, at]) => lane.segments[at]),
      number("bytes", ([lane, at]) => lane.log_bytes[at], bytes),
      { title: "largest timestamp", value: ([lane, at]) => lane.max_timestamp_ms[at], show: ([lane, at]) => time(lane.max_timestamp_ms[at]), number: true },
      text("marks", ([lane, at]) => markNames(words, lane.marks[at]).join(", ") || "ok")], rows, { name: "lanes" }));
}
