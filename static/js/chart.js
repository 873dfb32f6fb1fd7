// Stacked areas over time (uPlot). Data comes from the figure's data-source as
// {times: [s], series: [{name, values}], capacity: [..]}, GPUs in units; colours from the page's variables.

const REFRESH_MS = 30000;
const COLOURS = 8;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// getPropertyValue gives the text of light-dark(); a probe element gives the colour in force.
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = colour(name);
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function stacked(series) {
  const sums = series[0]?.values.map(() => 0) ?? [];
  return series.map(({ values }) => values.map((value, at) => (sums[at] += value ?? 0)));
}

function transparent(value) {
  return value.replace("rgb(", "rgba(").replace(")", ", 0.45)");
}

function paint(data) {
  return data.series.map((entry, at) => resolved(`--tg-series-${(at % COLOURS) + 1}`));
}

function seriesOptions(data, colours, ink) {
  const areas = data.series.map((entry, at) => ({
    label: entry.name,
    stroke: colours[at],
    fill: transparent(colours[at]),
    width: 1.5,
    points: { show: false },
  }));
  const top = { label: "capacity", stroke: ink, width: 1.5, dash: [5, 4], points: { show: false } };
  return [{}, ...areas, top];
}

function bandsOf(data, colours) {
  return data.series.slice(1).map((entry, at) => ({ series: [at + 2, at + 1], fill: transparent(colours[at + 1]) }));
}

function options(figure, data, box) {
  const colours = paint(data);
  const ink = resolved("--tg-text");
  const soft = resolved("--tg-text-soft");
  const grid = { stroke: resolved("--tg-line"), width: 1 };
  const axis = { stroke: soft, grid, ticks: grid, font: `11px ${colour("--tg-font")}` };
  const zone = document.documentElement.dataset.zone || undefined;
  return {
    width: box.clientWidth,
    height: box.clientHeight,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
    tzDate: zone ? (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), zone) : undefined,
    scales: { y: { range: (plot, low, high) => [0, Math.max(1, high * 1.06)] } },
    axes: [
      { ...axis, values: [
        [86400, "{DD}.{MM}.", null, null, null, null, null, null, 1],
        [3600, "{HH}:{mm}", "\n{DD}.{MM}.", null, "\n{DD}.{MM}.", null, null, null, 1],
        [60, "{HH}:{mm}", "\n{DD}.{MM}.", null, "\n{DD}.{MM}.", null, null, null, 1],
        [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
      ] },
      { ...axis, size: 46, incrs: [1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64, 80, 100, 160, 200, 400, 500, 1000, 2000, 5000] },
    ],
    series: seriesOptions(data, colours, ink),
    bands: bandsOf(data, colours),
    hooks: { setCursor: [(plot) => tell(figure, figure.plotData, plot.cursor.idx)] },
  };
}

function tell(figure, data, at) {
  const tip = figure.querySelector(".chart-tip");
  if (at === null || at === undefined) {
    tip.textContent = tip.dataset.rest;
    return;
  }
  const time = new Date(data.times[at] * 1000).toLocaleString(document.documentElement.lang, {
    dateStyle: "medium", timeStyle: "short", timeZone: document.documentElement.dataset.zone || undefined,
  });
  const parts = data.series.map(({ name, values }) => `${name} ${round(values[at])}`);
  tip.textContent = `${time} · ${parts.join(" · ")}`;
}

function round(value) {
  return Math.round((value ?? 0) * 10) / 10;
}

function columns(data) {
  return [data.times, ...stacked(data.series), data.capacity];
}

function draw(figure, data) {
  const box = figure.querySelector(".chart-canvas");
  const names = data.series.map(({ name }) => name).join("\n");
  figure.plotData = data;
  if (figure.plot && figure.plotNames === names) {
    figure.plot.setData(columns(data));
    return;
  }
  figure.plot?.destroy();
  figure.plotNames = names;
  figure.plot = new window.uPlot(options(figure, data, box), columns(data), box);
}

async function load(figure) {
  const answer = await fetch(figure.dataset.source, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  draw(figure, await answer.json());
}

function start(figure) {
  if (figure.plotStarted) return;
  figure.plotStarted = true;
  load(figure);
  const timer = setInterval(() => {
    if (!figure.isConnected) clearInterval(timer);
    else if (!document.hidden) load(figure);
  }, Number(figure.dataset.refresh) || REFRESH_MS);
  const box = figure.querySelector(".chart-canvas");
  new ResizeObserver(() => {
    figure.plot?.setSize({ width: box.clientWidth, height: box.clientHeight });
  }).observe(box);
  document.addEventListener("theme-changed", () => {
    figure.plotNames = undefined;
    if (figure.plotData && figure.isConnected) draw(figure, figure.plotData);
  });
}

export function startCharts() {
  if (!window.uPlot) return;
  const startAll = () => document.querySelectorAll("[data-source]").forEach(start);
  startAll();
  document.body.addEventListener("htmx:afterSettle", startAll);
}
