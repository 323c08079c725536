// The shape of topics: how large batches are, and what small ones cost.

function shapePage(report) {
  const { shape } = report, topics = shape.topics;
  const small = topics.filter((row) => row.bytes_a_batch !== null).sort((one, other) => one.bytes_a_batch - other.bytes_a_batch).slice(0, 20);
  const list = (rows) => rows.map((row) => row.name).join(", ");
  return [
    element("p", {}, `A batch has a header of 61 bytes, a broker handles each by itself, and compression works within one. Topics whose batches have less than ${count(shape.small_batch_bytes)} bytes on average are marked.`),
    section("Bytes of a batch, the smallest first",
      small.length === 0 ? note("No batch was counted.") : bars("Mean bytes of a batch", small.map((row) => row.topic), small.map((row) => Math.round(row.bytes_a_batch)), bytes),
      table("Topics by the shape of their batches", [
        { title: "topic", value: (row) => row.topic, show: (row) => row.has_small_batches ? element("span", {}, row.topic, " ", badge("small batches", "warning")) : row.topic },
        number("bytes", (row) => row.log_bytes, bytes), number("batches", (row) => row.batches),
        number("bytes a batch", (row) => row.bytes_a_batch, bytes), number("records a batch", (row) => row.records_a_batch, (value) => value === null ? "–" : value.toFixed(1)),
        number("headers", (row) => row.header_share, percent), number("indexes", (row) => row.index_share, percent),
        text("codecs", (row) => list(row.codecs)), text("message formats", (row) => list(row.magics)),
        number("idempotent producers", (row) => row.producers)],
      topics, { name: "shape" }),
      origin(report, "shape", "codecs", "message formats", "producers")),
    savings(report),
  ];
}

function savings(report) {
  const rows = report.shape.savings ?? [];
  if (rows.length === 0) return section("What larger batches would save", note("Not measured. kidx report --sample 20 takes 20 batches of each topic and writes them anew, with other codecs and in larger batches."));
  return section("What larger batches would save", savingsTable(rows));
}
