// One event stream a tab. It carries only the names of what changed ("quotas", "workload.17"); the parts that show it
// then fetch themselves (`hx-trigger="live:quotas from:body"`), so rights and rendering have one path.

const COALESCE_MS = 1000;
const POLL_MS = 15000;
const FAILURES_UNTIL_POLLING = 3;
const LONGEST_RETRY_MS = 30000;

const waiting = new Map(); // topic -> time of its last event, while a later one is due
let badge;
let stream;
let failures = 0;
let lastHeard = 0;
let pollTimer;

function show(state, text) {
  badge.dataset.state = state;
  badge.querySelector("[data-live-text]").textContent = text;
}

function refreshBadge() {
  if (document.hidden) return;
  if (stream && stream.readyState === EventSource.OPEN) {
    const seconds = Math.max(0, Math.round((Date.now() - lastHeard) / 1000));
    show("live", `${badge.dataset.live} · ${seconds} s`);
  }
}

// A hidden tab asks for nothing; it catches up when it is shown again.
function announce(topic) {
  if (document.hidden) return;
  document.body.dispatchEvent(new CustomEvent(`live:${topic}`));
}

function signal(topic) {
  const now = Date.now();
  const due = waiting.get(topic) ?? 0;
  if (due > now) return; // one is on its way and will show this change too
  const at = Math.max(now, due + COALESCE_MS);
  if (at <= now || due === 0) {
    waiting.set(topic, now);
    announce(topic);
    return;
  }
  waiting.set(topic, at);
  setTimeout(() => announce(topic), at - now);
}

function topicsOfPage() {
  const topics = new Set();
  for (const element of document.querySelectorAll("[hx-trigger*='live:']")) {
    for (const match of element.getAttribute("hx-trigger").matchAll(/live:([\w.-]+)/g)) topics.add(match[1]);
  }
  return topics;
}

function refreshAll() {
  for (const topic of topicsOfPage()) announce(topic);
}

function startPolling() {
  if (pollTimer) return;
  show("polling", badge.dataset.polling);
  pollTimer = setInterval(() => {
    if (!document.hidden) refreshAll();
  }, POLL_MS);
}

function stopPolling() {
  clearInterval(pollTimer);
  pollTimer = undefined;
}

function onOpen() {
  const missed = failures > 0;
  failures = 0;
  lastHeard = Date.now();
  stopPolling();
  refreshBadge();
  if (missed) refreshAll(); // what changed while the line was down sent no signal to us
}

function onError() {
  failures += 1;
  if (failures >= FAILURES_UNTIL_POLLING) startPolling();
  else show("reconnecting", badge.dataset.reconnecting);
  if (stream.readyState === EventSource.CLOSED) {
    setTimeout(connect, Math.min(LONGEST_RETRY_MS, 1000 * 2 ** failures));
  }
}

function connect() {
  const topics = [...topicsOfPage()].join(",");
  stream = new EventSource(`${badge.dataset.stream}?topics=${encodeURIComponent(topics)}`);
  stream.addEventListener("open", onOpen);
  stream.addEventListener("error", onError);
  stream.addEventListener("beat", () => {
    lastHeard = Date.now();
  });
  stream.addEventListener("message", (event) => {
    lastHeard = Date.now();
    for (const topic of event.data.split(" ")) {
      if (topic === "*") refreshAll();
      else signal(topic);
    }
  });
}

export function startLive() {
  badge = document.querySelector("[data-stream]");
  if (!badge) return;
  connect();
  setInterval(refreshBadge, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) show("paused", badge.dataset.paused);
    else refreshAll();
  });
  addEventListener("pagehide", () => stream.close());
}
