// Health: findings, where in which file, what follows, and the command that looks into it or mends it.

const timelineLink = (row) => element("p", {}, element("a", { href: `#timeline/${encodeURIComponent(partitionName(row))}` }, "See it on the timeline"));
const partitionName = (row) => `${row.topic}-${row.partition}`;

function healthPage(report) {
  const { health } = report;
  const statuses = Object.entries(health.segments).map(([status, segments]) => ({ status, segments }));
  const verdicts = health.verdicts.flatMap((row) => Object.entries(row.files).map(([verdict, files]) => ({ ...row, verdict, files })));
  return [
    section("What is missing", missing(health)),
    section("Files that are broken or torn", files(health), origin(report, "findings")),
    section("Damaged segments", damaged(health), origin(report, "damaged segments")),
    section("Tiered storage", remoteFiles(health), origin(report, "remote segments", "findings in buckets")),
    section("Segments by status",
      note("ok: the log can be read to its end, as its last build found it. That says nothing of its index files, which audits look at."),
      table("Segments by status", [text("status", (row) => row.status), number("segments", (row) => row.segments)],
        statuses, { name: "statuses" }), origin(report, "totals")),
    section("Audits",
      table("Files by verdict", [text("source", (row) => row.source), text("verdict", (row) => row.verdict),
        number("files", (row) => row.files), { title: "audited", value: (row) => row.audited_ms, show: (row) => time(row.audited_ms), number: true }],
      verdicts, { name: "verdicts", empty: `no audit is recorded. Run: ${AUDIT}` }),
      neverAudited(health).length === 0 ? null
        : element("p", {}, badge("not known", "unknown"), ` Never audited: ${neverAudited(health).join(", ")}. A build reads logs; it does not compare the index files that are there with them.`),
      origin(report, "verdicts")),
    section("Next start of brokers", starts(health), origin(report, "unflushed logs")),
    section("Gaps between segments", gaps(health), origin(report, "gaps")),
  ];
}

// What log dirs had by their checkpoints and the cluster's metadata, and what nobody could look at.
function missing(health) {
  const each = (rows, what, where, detail = (row) => row.detail) => rows.map((row) => ({ what, where: where(row), source: row.source, detail: detail(row),
    consequence: row.consequence ?? null, accepted_by: row.accepted_by ?? null }));
  const rows = [
    ...each(health.partitions_missing, "partition", partitionName), ...each(health.partitions_twice, "in two log dirs", partitionName),
    ...each(health.partitions_misnamed, "another partition's name", partitionName), ...each(health.first_logs_missing, "first logs", partitionName),
    ...each(health.first_logs_not_known, "perhaps first logs", partitionName), ...each([...health.ends_below, ...health.ends_below_accepted], "end of the log", partitionName),
    ...each(health.log_dirs_older, "what was written since", (row) => row.log_dir), ...each(health.not_reached, "not looked at", (row) => row.path, (row) => row.why),
    ...each(health.not_built, "in no build", (row) => `${counted(row.partitions, "partition")} of ${row.path}`, () => "left out by --topics, or newer than the last build"),
  ];
  return table("What is missing", [text("what", (row) => row.what), text("where", (row) => row.where), text("source", (row) => row.source),
    text("why", (row) => row.detail), text("accepted by", (row) => row.accepted_by)], rows,
  { name: "missing-parts", empty: "nothing, in the log dirs that could be listed", unfold: (row) => element("p", {}, row.consequence ?? "Look at the log dir, and build it again.") });
}

function neverAudited(health) {
  return [...health.not_audited, ...health.partly_audited.map((row) => `${counted(row.partitions, "partition")} of ${row.source}`)];
}

function damaged(health) {
  return table("Damaged segments",
    [text("segment", (row) => `${partitionName(row)}/${offsetName(row.base_offset)}`), text("source", (row) => row.source),
      text("status", (row) => row.status), text("reason", (row) => row.reason),
      number("at byte", (row) => row.position), number("of bytes", (row) => row.log_bytes),
      text("accepted by", (row) => row.accepted_by)],
    health.damaged, { name: "damaged", unfold: (row) => element("div", {},
      element("p", {}, `${row.path}: byte ${count(row.position)}: ${row.detail ?? row.reason}`),
      acceptance(row),
      element("p", {}, "Look at it; take the partition from a replica or a backup; or say that it may stay:"),
      commandLines(row.commands), timelineLink(row)) });
}

function acceptance(row) {
  return row.is_accepted ? element("p", {}, `Accepted by ${row.accepted_by}: ${row.accepted_reason}`) : null;
}

function whatIsAudited(health) {
  if (health.verdicts.length === 0) return `not known: no audit is recorded. Run: ${AUDIT}`;
  return neverAudited(health).length === 0 ? "none" : `none in what was audited; never audited: ${neverAudited(health).join(", ")}`;
}

function files(health) {
  return table("Files that are broken or torn",
    [text("file", (row) => `${partitionName(row)}/${offsetName(row.base_offset)}${row.file.startsWith(".") ? "" : " "}${row.file}`),
      text("source", (row) => row.source), { title: "verdict", value: (row) => row.verdict, show: (row) => badge(row.verdict, "bad") },
      text("reason", (row) => row.reason), number("at byte", (row) => row.position),
      number("bytes lost at the next start", (row) => row.lost_bytes, bytes), text("accepted by", (row) => row.accepted_by)],
    health.files, { name: "files", empty: whatIsAudited(health), unfold: (row) => element("div", {},
      element("p", {}, `${row.path}${row.position === null ? "" : `: byte ${count(row.position)}`}: ${row.detail ?? row.reason}`),
      acceptance(row),
      row.consequence === null ? null : element("p", {}, row.consequence),
      row.file === ".log" || !row.commands[0].includes("--in-place") ? null : note("In place the command takes the lock of the log dir: stop the broker first. Without --in-place it writes elsewhere."),
      row.action === null ? null : element("p", {}, `At its next start the broker: ${row.action}.`),
      commandLines(row.commands), timelineLink(row)) });
}

function remoteFiles(health) {
  return element("div", {},
    table("Remote segments", [text("bucket", (row) => row.source), text("topic", (row) => row.topic),
      number("segments", (row) => row.segments), number("that brokers read", (row) => row.read_segments),
      number("bytes of logs", (row) => row.log_bytes, bytes)], health.remote,
    { name: "remote", empty: "no audit of tiered storage is recorded. Run: kidx verify-tiered NAME=BUCKET --tiered-metadata LOG_DIR --catalog CATALOG" }),
    health.remote.length === 0 ? null : table("Findings in tiered storage",
      [text("remote segment", (row) => `${partitionName(row)} from ${row.start_offset}`), text("bucket", (row) => row.source),
        text("file", (row) => row.file), { title: "verdict", value: (row) => row.verdict, show: (row) => badge(row.verdict, row.verdict === "broken" ? "bad" : "unknown") },
        text("reason", (row) => row.reason)],
      health.remote_files, { name: "remote_files", unfold: (row) => element("div", {},
        element("p", {}, `Segment ${row.segment_id}${row.position === null ? "" : `, byte ${count(row.position)}`}: ${row.detail ?? row.reason}`),
        row.consequence === null ? null : element("p", {}, row.consequence),
        element("p", {}, `What to do: ${row.remedy}.`), timelineLink(row)) }));
}

function starts(health) {
  return element("div", {},
    note("Log dirs without .kafka_cleanshutdown when they were built. A running broker has none either, so this is no fault by itself: it is what a broker reads before it serves, if it is killed or was. kidx recover LOG_DIR shows the plan that spares it that."),
    table("Log dirs without .kafka_cleanshutdown", [text("source", (row) => row.source),
      number("partitions", (row) => row.partitions), number("segments to read", (row) => row.segments),
      number("bytes to read", (row) => row.log_bytes, bytes)], health.starts, { name: "starts", empty: "none" }));
}

function gaps(health) {
  const unknown = health.borders_unknown;
  return element("div", {},
    note("Offsets between two logs that are in none, and that no compaction explains: a log is lost."),
    table("Lost", [text("partition", partitionName), text("source", (row) => row.source),
      number("from offset", (row) => row.first_offset), number("to offset", (row) => row.last_offset),
      number("offsets", (row) => row.offsets), text("reason", (row) => row.reason), text("accepted by", (row) => row.accepted_by)],
    health.lost_gaps, { name: "lost_gaps", empty: `none in ${count(health.borders)} places between two logs`, unfold: (row) => element("div", {},
      element("p", {}, row.consequence), acceptance(row), commandLines(row.commands), timelineLink(row)) }),
    unknown === 0 ? null : note(`Of ${count(unknown)} more places nothing is known: the log before could not be read.`),
    table("Explained", [text("topic", (row) => row.topic), text("source", (row) => row.source), number("gaps", (row) => row.gaps),
      number("partitions", (row) => row.partitions), number("offsets", (row) => row.offsets), text("how it is known", (row) => row.why)],
    health.gaps_explained, { name: "gaps_explained", empty: "none" }),
    note("All segments that do not join, whatever the reason. A negative number: offsets that both segments have."),
    table("Segments that do not join", [text("partition", partitionName), text("source", (row) => row.source),
      number("ends at", (row) => row.next_offset), number("next begins at", (row) => row.next_base_offset),
      number("offsets between", (row) => row.offsets)], health.gaps, { name: "gaps", empty: "none" }));
}
