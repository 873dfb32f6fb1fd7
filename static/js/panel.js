// The side panel: a link with hx-target="#panel-body" opens it, an answer without a form closes it,
// and focus goes in, and back to where it came from.

let opener = null;

function panelElement() {
  return document.getElementById("panel");
}

function offcanvas() {
  return window.tabler.bootstrap.Offcanvas.getOrCreateInstance(panelElement());
}

export function startPanel() {
  const panel = panelElement();
  if (!panel || !window.tabler?.bootstrap) return;
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const { elt, target } = event.detail;
    if (target?.id === "panel-body" && !panel.contains(elt)) opener = elt;
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "panel-body") return;
    offcanvas().show();
    const title = panel.querySelector("[data-panel-title]");
    if (title) panel.querySelector("#panel-title").textContent = title.dataset.panelTitle;
  });
  document.body.addEventListener("panel:close", () => offcanvas().hide());
  panel.addEventListener("shown.bs.offcanvas", () => {
    const first = panel.querySelector(".problems, #panel-body input:not([type=hidden]):not([disabled]), #panel-body select, #panel-body button");
    first?.focus();
  });
  panel.addEventListener("hidden.bs.offcanvas", () => {
    panel.querySelector("#panel-body").replaceChildren();
    if (opener?.isConnected) opener.focus();
    opener = null;
  });
}
