// Charts by ECharts, in the colours of the page. Each has a table beside it, for who cannot see it.

const charts = new Set();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function palette() {
  return Array.from({ length: 10 }, (_, number) => colour(`series-${number + 1}`));
}

// options: () => ECharts' options, asked again when the theme changes.
function chart(label, height, options, { name = null, ready = null } = {}) {
  const place = element("div", { class: "chart", role: "img", "aria-label": label });
  place.style.height = `${height}px`;
  const shown = { place, options, drawn: null, ready };
  charts.add(shown);
  return element("figure", { "data-chart": name }, place, element("figcaption", {}, label));
}

function drawCharts() {
  for (const shown of charts) {
    if (!shown.place.isConnected) { shown.drawn?.dispose(); charts.delete(shown); continue; }
    if (shown.drawn === null) {
      shown.drawn = echarts.init(shown.place, null, { renderer: "canvas" });
      shown.drawn.setOption(basis());
      shown.drawn.setOption(shown.options());
      shown.ready?.(shown.drawn);
    } else {
      shown.drawn.resize();
    }
  }
}

function redrawCharts() {
  for (const shown of charts) {
    shown.drawn?.dispose();
    shown.drawn = null;
  }
  drawCharts();
}

function basis() {
  return {
    animation: false,
    useUTC: true,
    color: palette(),
    textStyle: { color: colour("text"), fontFamily: "system-ui, sans-serif" },
    tooltip: { renderMode: "richText", backgroundColor: colour("raised"), borderColor: colour("line"),
      textStyle: { color: colour("text") } },
  };
}

function axis(kind, more = {}) {
  return { type: kind, axisLabel: { color: colour("text") }, axisLine: { lineStyle: { color: colour("line") } },
    splitLine: { lineStyle: { color: colour("line") } }, ...more };
}

// Bars that lie: names down, numbers to the right.
function bars(label, names, values, show, more = {}) {
  const height = 60 + 26 * names.length;
  return chart(label, height, () => ({
    grid: { left: 8, right: 90, top: 8, bottom: 8, containLabel: true },
    xAxis: axis("value", { axisLabel: { show: false } }),
    yAxis: axis("category", { data: names.map(shortened), inverse: true, splitLine: { show: false } }),
    series: [{ type: "bar", data: values, label: { show: true, position: "right", color: colour("text"),
      formatter: ({ value }) => show(value) } }],
  }), more);
}

function shortened(name) {
  return name.length <= 34 ? name : `${name.slice(0, 16)}…${name.slice(-16)}`;
}

// Paper is white, whatever the theme.
let themeBefore = null;
window.addEventListener("beforeprint", () => {
  themeBefore = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  redrawCharts();
});
window.addEventListener("afterprint", () => {
  if (themeBefore === "") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = themeBefore;
  redrawCharts();
});
window.addEventListener("resize", () => requestAnimationFrame(drawCharts));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
