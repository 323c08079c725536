// Which page is shown: that of the address's hash.

const PAGES = [
  ["overview", "Overview", overviewPage], ["health", "Health", healthPage], ["timeline", "Timeline", timelinePage],
  ["retention", "Retention what-if", retentionPage], ["shape", "Shape", shapePage], ["growth", "Growth", growthPage],
  ["replicas", "Replicas", replicasPage], ["builds", "Builds", buildsPage],
];

async function start() {
  const report = await part("main");
  document.getElementById("made").textContent = `as of ${time(report.made_at_ms)}`;
  document.getElementById("origin").textContent = `Catalog ${report.catalog}, kidx ${report.kidx}. Charts by Apache ECharts, under the Apache License 2.0. SQL is Spark's; docs/sql.md says how to open the tables.`;
  const links = PAGES.map(([name, title]) => element("li", {}, element("a", { href: `#${name}` }, title)));
  document.getElementById("pages").replaceChildren(...links);
  const content = document.getElementById("content");

  function show(focus) {
    const [wanted, ...rest] = location.hash.slice(1).split("/"), part = decodeURIComponent(rest.join("/"));
    const [name, title, page] = PAGES.find(([each]) => each === wanted) ?? PAGES[0];
    links.forEach((link, at) => {
      if (PAGES[at][0] === name) link.firstChild.setAttribute("aria-current", "page");
      else link.firstChild.removeAttribute("aria-current");
    });
    content.replaceChildren(heading(title, `page-${name}`), ...page(report, part).filter((each) => each !== null));
    document.title = `${title} · Kafka segments`;
    drawCharts();
    const table = part === "" ? null : content.querySelector(`[data-table="${CSS.escape(part)}"]`);
    if (table !== null) table.scrollIntoView({ block: "center" });
    else if (focus) window.scrollTo(0, 0);
    if (focus) (table?.querySelector("[tabindex]") ?? content.querySelector("h1")).focus({ preventScroll: true });
    document.body.dataset.page = name;
  }

  window.addEventListener("hashchange", () => show(true));
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = getComputedStyle(root).colorScheme === "dark" ? "light" : "dark";
    redrawCharts();
  });
  show(false);
}

start();
