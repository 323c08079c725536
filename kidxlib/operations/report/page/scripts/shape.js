// The shape of topics: how large batches are, and what small ones cost.

function shapePage(report) {
  const { shape } = report, topics = shape.topics;
  if (topics.length === 0) return [whatToRun(NO_SEGMENT, BUILD)];
  const small = topics.filter((row) => row.bytes_a_batch !== null).sort((one, other) => one.bytes_a_batch - other.bytes_a_batch).slice(0, 20);
  const list = (rows) => rows.map((row) => row.name).join(", ");
  return [
    element("p", {}, `A batch has a header of 61 bytes, a broker handles each by itself, and compression works within one. Topics with batches of less than ${count(shape.small_batch_bytes)} bytes on average and at least ${count(shape.small_batches_least)} batches are marked.`),
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
  const rows = report.shape.savings;
  if (rows.length === 0) return section("What larger batches would save", whatToRun("Not measured. The report can take 20 batches of each topic, and write them anew with other codecs and in larger batches.",
    "kidx report --sample 20 --catalog CATALOG --output FILE.html"));
  const setting = (best) => `${best.codec}, batch.size ${binaryBytes(best.batch_size)}`;
  return section("What larger batches would save",
    note("Of each topic some batches were read, and their records laid down again as Java's producer does it, with a linger.ms that lets batches fill. Real compression by the codecs' own libraries, at Kafka's default levels. Nothing is said of records that were not read."),
    table("Topics by what the best setting saves", [text("topic", (row) => row.topic),
      number("saved", (row) => row.best?.saved ?? null, percent), text("best setting", (row) => row.best === null ? null : setting(row.best)),
      number("of all its bytes about", (row) => row.best === null ? null : Math.round(row.best.saved * row.log_bytes), bytes),
      number("batches read", (row) => row.sampled_batches), number("of batches", (row) => row.batches), number("bytes read", (row) => row.sampled_bytes, bytes)],
    rows, { name: "savings", unfold: savingsDetails }),
    origin(report, "kidx report --catalog … --sample N --json\n-- shape.savings"));
}

function savingsDetails(row) {
  const sizes = [...new Set(row.with_settings.map((each) => each.batch_size))], codecs = [...new Set(row.with_settings.map((each) => each.codec))];
  const filled = (written) => written.full_batches === 0 ? ", none full" : "";
  const cell = (codec, size) => row.with_settings.find((each) => each.codec === codec && each.batch_size === size);
  return element("div", {},
    element("table", {}, element("caption", {}, `The sample takes ${bytes(row.sampled_bytes)} in ${count(row.sampled_batches)} batches. With other settings:`),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "compression.type"), ...sizes.map((size) => element("th", { scope: "col", class: "number" }, binaryBytes(size))))),
      element("tbody", {}, ...codecs.map((codec) => element("tr", {}, element("th", { scope: "row" }, codec),
        ...sizes.map((size) => element("td", { class: "number" }, `${bytes(cell(codec, size).bytes)} in ${count(cell(codec, size).batches)}${filled(cell(codec, size))}`)))))),
    note("None full: the sample ended before a batch of that size was full. A larger --sample says more."),
    ...row.not_read.map((line) => element("p", {}, `Not read: ${line}`)));
}
