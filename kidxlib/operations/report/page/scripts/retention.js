// Retention with other limits. All numbers were decided when the page was made; the sliders choose among them.

function retentionPage(report) {
  if (report.retention.topics.length === 0) return [whatToRun(NO_SEGMENT, BUILD)];
  const { retention } = report, times = retention.times_ms, sizes = retention.sizes;
  const slider = (id, label, steps, show, start) => {
    const output = element("output", { for: id, id: `${id}-shown` }, show(steps[start]));
    const input = element("input", { type: "range", id, min: 0, max: steps.length - 1, value: start, step: 1,
      "aria-valuetext": show(steps[start]), on: { input: () => {
        output.textContent = show(steps[input.value]);
        input.setAttribute("aria-valuetext", output.textContent);
        fill();
      } } });
    return { input, shown: element("div", { class: "slider" }, element("label", { for: id }, label), input, output) };
  };
  const time_ = slider("retention-ms", "retention.ms", times, duration, times.indexOf(7 * DAY_MS));
  const size = slider("retention-bytes", "retention.bytes of each partition", sizes, binaryBytes, sizes.length - 1);
  const place = element("div"), partitions = element("div", { "aria-live": "polite" });
  const cell = () => Number(time_.input.value) * sizes.length + Number(size.input.value);
  let chosen = null;

  function fill() {
    const at = cell(), sum = (name) => retention.topics.reduce((total, row) => total + row[name][at], 0);
    place.replaceChildren(
      element("dl", { class: "tiles", "aria-live": "polite" },
        figureOf("bytes freed now", bytes(sum("freed")), sum("freed"), "freed"),
        figureOf("segments deleted now", count(sum("deleted")), sum("deleted"), "deleted"),
        figureOf("bytes freed by a week from now", bytes(sum("freed_later")), sum("freed_later"), "freed_later"),
        figureOf("segments deleted by then", count(sum("deleted_later")), sum("deleted_later"), "deleted_later")),
      note("A week from now, if nothing is written until then."),
      table("Topics with these limits", [
        { title: "topic", value: (row) => row.topic, show: (row) => element("button", { type: "button", class: "link", on: { click: () => { chosen = row.topic; showPartitions(); partitions.scrollIntoView(); } } }, row.topic) },
        number("bytes", (row) => row.bytes, bytes), number("freed now", (row) => row.freed[at], bytes),
        number("segments deleted", (row) => row.deleted[at]), number("of segments", (row) => row.segments),
        number("freed in a week", (row) => row.freed_later[at], bytes),
        text("what ends the deletion, in how many partitions", (row) => stoppedBy(row, at))],
      retention.topics, { name: "retention" }));
    showPartitions();
  }

  async function showPartitions() {
    if (chosen === null) { partitions.replaceChildren(note("Choose a topic to see which segments of its partitions are deleted, and why the first that stays does.")); return; }
    const topic = chosen, at = cell();
    const rows = (await part(`retention-${report.retention_part[topic]}`))[topic];
    if (chosen !== topic || cell() !== at) return;
    const goes = (row) => row.deleted[at], whole = (row) => goes(row) === row.segments;
    partitions.replaceChildren(table(`Partitions of ${topic}`, [
      number("partition", (row) => row.partition), text("source", (row) => row.source),
      number("segments deleted", goes), number("of segments", (row) => row.segments),
      number("first offset that stays", (row) => row.stays_from[at]),
      text("why that stays", (row) => whole(row) ? "nothing stays: a broker rolls first" : retention.reasons[row.stays[at]])],
    rows, { name: "retention-partitions" }));
  }

  queueMicrotask(fill);
  return [
    element("p", {}, "What Kafka's retention would delete if topics had these limits, decided as kidx retention decides. Limits replace those of each topic; its cleanup.policy stays. Every copy of a partition counts; segments in buckets do not."),
    element("div", { class: "sliders" }, time_.shown, size.shown),
    place,
    section("Segments that are deleted, and why the first that stays does", partitions,
      origin(report, "kidx retention --catalog … --retention-ms MS --retention-bytes BYTES --what-if")),
    section("Timestamps in the future", note("Retention by time deletes no segment whose largest timestamp is younger than the limit, nor any after it. A timestamp in the future holds all later segments until that time has come, and the limit after it. To get rid of it: kafka-delete-records up to the segment after it, or a retention.bytes. message.timestamp.after.max.ms keeps such records out."),
      table("Segments with a timestamp more than an hour ahead", [text("segment", (row) => `${partitionName(row)}/${offsetName(row.base_offset)}`),
        text("source", (row) => row.source), { title: "largest timestamp", value: (row) => row.max_timestamp_ms, show: (row) => time(row.max_timestamp_ms), number: true },
        text("ahead by", (row) => row.ahead), number("segments that wait", (row) => row.later_segments), number("their bytes", (row) => row.later_bytes, bytes)],
      retention.future, { name: "future", empty: "none" }), origin(report, "future timestamps")),
    section("What topics are configured to", configured(retention)),
  ];
}

function stoppedBy(row, at) {
  return Object.entries(row.stopped_by).filter(([, counts]) => counts[at] > 0)
    .map(([reason, counts]) => `${reason || "nothing stays"}: ${count(counts[at])}`).join(", ");
}

function configured(retention) {
  // The overview counts the topics of which something is "not given": nobody asks it of those that stay whatever it is.
  const lacks = (row, name) => !row.kept.length && row.configured.unknown.includes(name) ? "not given" : "not asked";
  const said = (row, name, value) => row.configured.origins[name] === "kafka-default" ? lacks(row, name) : `${value} (${row.configured.origins[name]})`;
  return table("Topics and their own limits", [text("topic", (row) => row.topic),
    text("cleanup.policy", (row) => said(row, "cleanup.policy", row.configured.cleanup_policy)),
    text("retention.ms", (row) => said(row, "retention.ms", duration(row.configured.retention_ms))),
    text("retention.bytes", (row) => said(row, "retention.bytes", binaryBytes(row.configured.retention_bytes))),
    text("remote.storage.enable", (row) => said(row, "remote.storage.enable", row.configured.remote_storage)),
    text("stays whatever they are", (row) => row.kept.join(", ")),
    number("freed now by these", (row) => row.configured.unknown.length ? null : row.configured.freed, bytes)],
  retention.topics, { name: "configured" });
}
