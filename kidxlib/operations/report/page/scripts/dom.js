// Elements. Text is always put in as text: names of topics and files may be anything.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function heading(title, id) {
  return element("h1", { id, tabindex: "-1" }, title);
}

function section(title, ...children) {
  const made = element("section", {}, element("h2", {}, title), ...children);
  // Said once on the screen; who hears the page needs the caption, too.
  for (const caption of made.querySelectorAll("caption")) if (caption.textContent === title) caption.className = "heard";
  return made;
}

function note(text) {
  return element("p", { class: "quiet" }, text);
}

// How a number was found: the SQL to ask the catalog, or the command. It gives all rows, also where the page has not all.
function origin(report, ...names) {
  const texts = names.map((name) => report.sql[name] ?? name);
  const cut = names.filter((name) => name in report.cut).map((name) => [name, report.cut[name]]);
  return element("div", {},
    ...cut.map(([name, { shown, found }]) => note(`${count(shown)} of ${count(found)} ${name} are shown; the SQL below gives all.`)),
    element("details", { class: "origin" }, element("summary", {}, "Where these numbers come from"),
      ...texts.map((text) => element("pre", { tabindex: "0" }, text))));
}

function figureOf(label, value, exact, name) {
  return element("div", { class: "tile" },
    element("dt", {}, label),
    element("dd", { "data-value": exact, "data-name": name, title: count(exact) }, value));
}

function badge(text, kind) {
  return element("span", { class: `badge ${kind}` }, text);
}

function code(text) {
  return element("code", {}, text);
}

function commandLines(commands) {
  return element("pre", { class: "command", tabindex: "0" }, commands.join("\n"));
}

// What to run where there is nothing to show.
const NO_SEGMENT = "The catalog has no segment.";
const BUILD = "kidx build LOG_DIR --index-dir DIR --catalog CATALOG";
const AUDIT = "kidx verify --source NAME=LOG_DIR --catalog CATALOG";

function whatToRun(why, command) {
  return element("div", {}, element("p", {}, why, " Run:"), commandLines([command]));
}
