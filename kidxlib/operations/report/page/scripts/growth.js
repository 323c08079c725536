// Growth: records and bytes of each day.

const TOPICS_DRAWN = 9;
const BARS_MOST = 400;

function growthPage(report) {
  const { growth } = report;
  if (growth.days.length === 0) return [whatToRun(report.overview.segments === 0 ? NO_SEGMENT : "No segment has hours of records: an earlier release has built them, or they have no records.", BUILD), origin(report, "growth")];
  // So many days with records are one bar that no more bars are drawn than anybody can tell apart.
  const each = Math.ceil(growth.days.length / BARS_MOST);
  const barred = (values) => each === 1 ? values : Array.from({ length: Math.ceil(values.length / each) },
    (_, at) => values.slice(at * each, (at + 1) * each).reduce((sum, value) => sum + value, 0));
  const days = growth.days.filter((_, at) => at % each === 0).map(day), drawn = growth.topics.slice(0, TOPICS_DRAWN), others = growth.topics.slice(TOPICS_DRAWN);
  const summed = (name) => growth.days.map((_, at) => others.reduce((total, row) => total + row[name][at], 0));
  const stack = (name, label, show) => chart(each === 1 ? label : `${label}; a bar is ${each} days with records, from the one below it on`, 340, () => ({
    grid: { left: 80, right: 16, top: 60, bottom: 60 },
    legend: { type: "scroll", top: 4, textStyle: { color: colour("text") }, pageTextStyle: { color: colour("text") } },
    tooltip: { trigger: "axis", valueFormatter: show },
    xAxis: axis("category", { data: days }), yAxis: axis("value", { axisLabel: { color: colour("text"), formatter: show } }),
    dataZoom: [{ type: "inside" }, { type: "slider", bottom: 8, height: 20, textStyle: { color: colour("text") } }],
    series: [...drawn.map((row) => ({ name: row.topic, data: barred(row[name]) })), ...(others.length ? [{ name: `${count(others.length)} other topics`, data: barred(summed(name)) }] : [])]
      .map((series) => ({ ...series, type: "bar", stack: "all" })),
  }));
  const total = (row, name) => row[name].reduce((sum, value) => sum + value, 0);
  const rows = growth.days.map((number_, at) => ({ day: number_, records: growth.topics.reduce((sum, row) => sum + row.records[at], 0),
    bytes: growth.topics.reduce((sum, row) => sum + row.bytes[at], 0) }));
  return [
    note("Of segments that are present, by timestamps of batches, in UTC. A batch counts for the day of its largest timestamp, so some of its records may be of the day before; with LogAppendTime the days are exact. Bytes are those of the segment, divided among its records. Each copy of a partition counts. Days without records are left out, so days side by side may be far apart."),
    stack("bytes", "Bytes of each day by topic", bytes), stack("records", "Records of each day by topic", count),
    table("Days", [text("day", (row) => day(row.day)), number("records", (row) => row.records), number("bytes", (row) => row.bytes, bytes)], rows, { name: "days" }),
    table("Topics", [text("topic", (row) => row.topic), number("records", (row) => total(row, "records")),
      number("of which the day is certain", (row) => total(row, "certain_records")), number("bytes", (row) => total(row, "bytes"), bytes)], growth.topics, { name: "growth" }),
    growth.uncounted.length === 0 ? null : table("Segments that are not counted: no timestamps, or nobody counted their records",
      [text("topic", (row) => row.topic), number("segments", (row) => row.segments), number("bytes", (row) => row.log_bytes, bytes)], growth.uncounted, { name: "uncounted" }),
    origin(report, "growth", "segments without hours"),
  ];
}
