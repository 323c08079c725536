// At a glance: four questions with their answers, each of which leads to the page that says more.

const VERDICTS = {
  bad: ["No", "Data is lost or wrong, or will be."],
  unknown: ["Not known", "Nothing is known to be bad, but nobody has looked at all of it."],
  warning: ["Yes", "Nothing is bad. Something is unusual."],
  ok: ["Yes", "Every source was audited since its last build. Nothing is wrong that nobody has accepted."],
};

function glance(report) {
  return element("section", { class: "glance" }, isItWell(report), whatIsUrgent(report), whatComesNext(report), whatItCosts(report));
}

function card(question, kind, ...children) {
  return element("div", { class: `card ${kind}` }, element("h2", {}, question), ...children);
}

function lines(...rows) {
  return element("ul", {}, ...rows.filter((row) => row !== null).map((row) => element("li", {}, ...[row].flat())));
}

const link = (place, words) => element("a", { href: `#${place}` }, words);

function isItWell({ attention, overview, fleet }) {
  const found = (severity) => attention.filter((row) => row.severity === severity).length;
  const kind = ["bad", "unknown", "warning"].find((severity) => found(severity) > 0) ?? "ok", [verdict, why] = VERDICTS[kind];
  const cells = (state) => fleet.sources.reduce((sum, row) => sum + row.states.filter((each) => each === state).length, 0);
  if (overview.segments === 0) return notKnown("Is the fleet well?", whatToRun(NO_SEGMENT, BUILD));
  return card("Is the fleet well?", kind, element("p", { class: "verdict" }, verdict), element("p", {}, why),
    lines([strong(count(cells(3))), " partitions are bad, ", strong(count(cells(2))), " unusual"],
      [strong(count(cells(1))), " not looked at since their last build, ", strong(count(cells(0))), " well"],
      "A partition counts in each source that has it."));
}

const notKnown = (question, ...why) => card(question, "unknown", element("p", { class: "verdict" }, "Not known"), ...why);

function whatIsUrgent({ attention }) {
  const urgent = attention.filter((row) => row.severity === "bad"), all = attention.length === 0 ? null : lines(link("overview/attention", `${counted(attention.length, "thing")} to look at`));
  if (urgent.length === 0 && attention.some((row) => row.severity === "unknown")) return notKnown("What is urgent?", element("p", {}, "Nobody has looked at all of it."), all);
  if (urgent.length === 0) return card("What is urgent?", "ok", element("p", { class: "verdict" }, "Nothing"), all);
  return card("What is urgent?", "bad", element("p", { class: "verdict" }, counted(urgent.length, "thing")),
    lines(...urgent.slice(0, 4).map((row) => link(row.place, row.title)), urgent.length > 4 ? link("overview/attention", `${count(urgent.length - 4)} more`) : null));
}

function whatComesNext({ outlook, growth, made_at_ms: now, overview }) {
  const { retention, disks, bytes_a_day: aDay } = outlook, known = retention.topics - retention.topics_unknown;
  const fullest = disks.filter((disk) => disk.days_left !== null).sort((one, other) => one.days_left - other.days_left)[0];
  const uncounted = growth.uncounted.reduce((sum, row) => sum + row.segments, 0);
  const soon = fullest !== undefined && fullest.days_left < 7;
  if (overview.segments === 0) return notKnown("What comes next?", element("p", {}, NO_SEGMENT));
  return card("What comes next?", soon ? "warning" : "plain",
    element("p", { class: "verdict" }, uncounted >= overview.segments ? "Not known" : `${bytes(aDay)} more a day`),
    lines(
      "That is the mean of the seven days before the last build, in all sources.",
      uncounted === 0 ? null : [link("growth", counted(uncounted, "segment")), " without known hours of records are not in it."],
      fullest === undefined ? "Room on disks is not known: no source that was written to in these days is on this machine."
        : [strong(`Room for ${days(fullest.days_left)}`), ` if nothing is deleted: the disk of ${fullest.sources.join(", ")} has ${bytes(fullest.free_bytes)} of ${bytes(fullest.total_bytes)} left.`],
      known === 0 && overview.segments > 0 ? ["What retention deletes is not known: give ", code("--cluster-metadata"), " or ", code("--policy"), "."] : null,
      known === 0 ? null : [link("retention", "Retention"), ` deletes ${bytes(retention.freed_now)} now, and ${bytes(retention.freed_later)} by next week`,
        retention.topics_unknown === 0 ? "." : `, of the ${count(known)} topics whose configuration is known.`],
      retention.next_due_ms === null ? null : `The next segment goes ${until(now, retention.next_due_ms)}.`));
}

function whatItCosts({ outlook, shape, overview }) {
  const { stored } = outlook, saved = shape.savings.reduce((sum, row) => sum + (row.best === null ? 0 : row.best.saved * row.log_bytes), 0);
  const part = (value) => `${bytes(value)} (${percent(overview.log_bytes === 0 ? null : value / overview.log_bytes)})`;
  if (overview.segments === 0) return notKnown("What does it cost?", element("p", {}, NO_SEGMENT));
  return card("What does it cost?", "plain",
    element("p", { class: "verdict" }, stored.remote_bytes === 0 ? bytes(stored.log_bytes) : `${bytes(stored.log_bytes)} on disks, ${bytes(stored.remote_bytes)} in buckets`),
    lines(
      `Indexes take ${part(stored.index_bytes)}, headers of batches ${part(stored.header_bytes)}.`,
      shape.savings.length === 0 ? ["What larger batches save is not measured: run kidx report with ", code("--sample 20"), "."]
        : [link("shape", "Other settings of producers"), ` would save about ${part(Math.max(Math.round(saved), 0))}.`]));
}

function strong(words) {
  return element("strong", {}, words);
}

function days(value) {
  return value < 1 ? "less than a day" : value > 3650 ? "more than ten years" : counted(Math.floor(value), "day");
}

function until(now, then) {
  return then <= now ? "at the broker's next check" : then - now < DAY_MS ? `in ${counted(Math.ceil((then - now) / 3600000), "hour")}` : `in ${days((then - now) / DAY_MS)}`;
}
