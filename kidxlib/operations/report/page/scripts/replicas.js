// Replicas: whether brokers hold the same batches at the same offsets.

const REPLICA_BADGES = { "differs": "bad", "epochs-disagree": "bad", "lacks": "bad", "behind": "warning", "same-up-to": "ok", "not-comparable": "unknown" };

function replicasPage(report) {
  const { verdicts, partitions, missing } = report.replicas;
  const lost = report.health.partitions_missing, byVerdict = Object.entries(verdicts).map(([verdict, replicas]) => ({ verdict, replicas }));
  if (byVerdict.length === 0) return [whatToRun("No partition is in several sources, so there are no replicas to compare. Build the log dirs of several brokers into one catalog, each with a name of its own.",
    "kidx build --source broker-1=LOG_DIR --source broker-2=LOG_DIR --index-dir DIR --catalog CATALOG")];
  return [
    element("p", {}, "The same offsets should hold the same batches on each broker. They are compared by digests of ranges of offsets, which builds put together from checksums of batches, below all high watermarks and above all log start offsets. Each replica is compared with those that most agree with."),
    table("Replicas by verdict", [text("verdict", (row) => row.verdict), number("replicas", (row) => row.replicas)], byVerdict, { name: "replica-verdicts" }),
    note("The copy that the others of its partition are compared with is not counted."),
    note("Same: compared to its end. Same up to: what follows an offset was not compared, as where it is not known to be committed. Behind: it ends earlier. A source that was built earlier than another is behind by what was written since. Compacted topics, which each broker cleans for itself, are compared by leader epochs and numbers of records alone."),
    table("Replicas with something to look at", [
      text("partition", partitionName), text("source", (row) => row.source),
      { title: "verdict", value: (row) => row.verdict, show: (row) => badge(row.verdict, REPLICA_BADGES[row.verdict] ?? "unknown") },
      text("what", (row) => row.sentence), text("compacted", (row) => row.compacted ? "yes" : "no")],
    partitions, { name: "replicas", empty: "none: each was compared to its end, and is the same", unfold: replicaDetails }),
    lost.length === 0 ? null : element("p", {}, badge("missing", "bad"), " ", element("a", { href: "#health" }, `${counted(lost.length, "partition")} that a source should have`), ", by its checkpoints or its node's metadata."),
    table("Partitions that only another source has", [
      text("source", (row) => row.source), text("compared with", (row) => row.compared_with), number("lacks", (row) => row.count), number("of", (row) => row.of),
      text("partitions", (row) => row.partitions.join(", ") + (row.count > row.partitions.length ? " …" : ""))],
    missing, { name: "missing" }),
    note("Each source is compared with the one with which it shares most partitions. A copy should lack none; another broker of the cluster may have been given fewer. A source whose node's metadata is known is not in this table: Health says what that source lacks."),
    origin(report, "SELECT source, base_offset, offset_digests, leader_epochs\nFROM segments\nWHERE topic = '…' AND partition = …\n-- docs/catalog.md says how digests are added up"),
  ];
}

function replicaDetails(row) {
  const lines = [`Compared with ${row.compared_with}${row.agreeing.length > 1 ? `, with which ${row.agreeing.filter((each) => each !== row.compared_with).join(", ")} agrees` : ""}.`];
  if (row.first_offset !== null) lines.push(`Offsets that both should have: ${count(row.first_offset)} to ${count(row.end_offset - 1)}; ${row.undecided_offsets === 0 ? "all were compared." : `of ${count(row.undecided_offsets)} of these the digests tell nothing.`}`);
  if (row.difference !== null) {
    const { difference } = row;
    lines.push(`Digests differ in ${count(difference.ranges)} ranges of offsets, first in ${count(difference.first_offset)} to ${count(difference.last_offset)}.`);
    for (const place of [difference.place, difference.other_place]) if (place !== null) lines.push(`${place.log_path}: byte ${count(place.position)}`);
    if (difference.note !== null) lines.push(difference.note);
  }
  if (row.reason !== null) lines.push(row.reason);
  if (row.verdict === "differs") lines.push("If this broker leads the partition, or comes to lead it, consumers get other records from it than from the others. The catalog does not know which replica leads. Where most agree: let one of those lead, stop this broker, move its directory of the partition away, and let it fetch the partition anew.");
  const places = row.difference === null ? [] : [row.difference.place, row.difference.other_place].filter((place) => place !== null);
  return element("div", {}, ...lines.map((line) => element("p", {}, line)),
    places.length === 0 ? null : commandLines(places.map((place) => `kidx dump --deep-iteration ${place.log_path}`)), timelineLink(row));
}
