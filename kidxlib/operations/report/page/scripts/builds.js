// Builds: how long, how fast, what they found.

function buildsPage(report) {
  const rows = report.builds.builds;
  if (rows.length === 0) return [whatToRun("No build is recorded.", BUILD)];
  const problems = (row) => Object.entries(row.problems).map(([status, found]) => `${count(found)} ${status}`).join(", ");
  const recent = rows.slice(0, 20);
  return [
    rows.length < 2 ? null : bars("Seconds of the last builds", recent.map((row) => time(row.started_ms)), recent.map((row) => row.seconds), seconds),
    table("Builds", [{ title: "started", value: (row) => row.started_ms, show: (row) => time(row.started_ms), number: true },
      number("took", (row) => row.seconds, seconds), number("of this reading logs", (row) => row.scan_seconds, seconds), number("segments read", (row) => row.segments),
      number("bytes read", (row) => row.log_bytes, bytes), number("bytes a second while reading", (row) => row.bytes_a_second, (value) => value === null ? "–" : `${bytes(value)}/s`),
      number("unchanged", (row) => row.unchanged), number("gone", (row) => row.gone), text("problems", (row) => problems(row) || "none"),
      text("sources", (row) => row.sources.join(", "))], rows, { name: "builds" }),
    origin(report, "builds"),
  ];
}
