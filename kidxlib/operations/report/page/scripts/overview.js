// The overview: what is not well first, then how much there is.

const SEVERITIES = { bad: "bad", warning: "look", unknown: "not known" };

function overviewPage(report) {
  const { overview } = report, topics = overview.topics.slice(0, 20);
  const columns = (name) => [text(name, (row) => row[name]),
    number("partitions", (row) => row.partitions), number("segments", (row) => row.segments),
    number("bytes", (row) => row.log_bytes, bytes)];
  return [
    glance(report),
    fleetMap(report),
    attentionList(report),
    section("How much there is",
      element("dl", { class: "tiles" },
        figureOf("bytes of logs", bytes(overview.log_bytes), overview.log_bytes, "log_bytes"),
        figureOf("segments", count(overview.segments), overview.segments, "segments"),
        figureOf("partitions", count(overview.partitions), overview.partitions, "partitions"),
        figureOf("topics", count(overview.topics.length), overview.topics.length, "topics"),
        figureOf("brokers and other sources", count(overview.sources.length), overview.sources.length, "sources")),
      overview.remote_segments === 0 ? null : element("dl", { class: "tiles" },
        figureOf("bytes of logs in buckets", bytes(overview.remote_bytes), overview.remote_bytes, "remote_bytes"),
        figureOf("remote segments", count(overview.remote_segments), overview.remote_segments, "remote_segments")),
      note("A source is a broker's log dir, a backup or a volume. A partition counts in each source that has it, so three replicas count three times, here and on all pages. Segments that are gone or deleted do not count."),
      origin(report, "totals", "partitions")),
    changes(report),
    section("Largest topics",
      bars("Bytes of the largest topics", topics.map((row) => row.topic), topics.map((row) => row.log_bytes), bytes),
      table("Topics", columns("topic"), overview.topics, { name: "topics" }),
      origin(report, "totals", "partitions")),
    section("Sources", table("Sources", columns("source"), overview.sources, { name: "sources" }),
      origin(report, "totals", "partitions")),
    section("Largest partitions", table("Largest partitions",
      [text("topic", (row) => row.topic), number("partition", (row) => row.partition),
        text("source", (row) => row.source), number("segments", (row) => row.segments),
        number("bytes", (row) => row.log_bytes, bytes), number("records", (row) => row.records)],
      overview.largest, { name: "largest" }), origin(report, "largest partitions")),
  ];
}

function attentionList(report) {
  if (report.attention.length === 0) {
    return section("To look at", element("p", { "data-table": "attention" }, "Nothing: no damage, no finding, and every source was audited."));
  }
  const items = report.attention.map((row) => element("li", { class: row.severity },
    badge(SEVERITIES[row.severity], row.severity), " ",
    element("a", { href: `#${row.place}` }, row.title), element("p", {}, row.detail)));
  return section("To look at", element("ul", { class: "attention", "data-table": "attention" }, ...items));
}

function changes(report) {
  const found = report.overview.changes;
  if (found === null) return section("Since the build before", note("Not known: no earlier state of the catalog is left."));
  if (found.is_first) return section("Since the build before", note("This is the first build: there is nothing to compare it with."));
  const tile = (label, name) => figureOf(label, `${count(found[`${name}_segments`])} · ${bytes(found[`${name}_bytes`])}`,
    found[`${name}_segments`], `${name}_segments`);
  return section("Since the build before",
    element("dl", { class: "tiles" }, tile("new segments", "new"), tile("grown", "grown"), tile("gone", "gone")),
    origin(report, `SELECT * FROM segments WHERE build_id = '${found.build_id}'\n-- beside the version of the table before it: docs/sql.md`));
}
