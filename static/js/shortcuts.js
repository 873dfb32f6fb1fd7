// Keys: "/" search, "?" help, "g" and a letter for the places, j/k rows, n new, e edit. Never while one types or a dialog is open.

const WAIT_FOR_SECOND_KEY_MS = 1200;

function isTyping(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

function dialogIsOpen() {
  return document.querySelector(".offcanvas.show, .modal.show, dialog[open]") !== null;
}

function rows() {
  return [...document.querySelectorAll("[data-row]")];
}

function moveRow(step) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  next?.querySelector("a, button")?.focus();
}

function openHelp() {
  document.getElementById("help")?.showModal();
}

const KEYS = {
  "/": () => document.getElementById("search")?.focus(),
  "?": openHelp,
  j: () => moveRow(1),
  k: () => moveRow(-1),
  n: () => document.querySelector("[data-key='n']")?.click(),
  e: () => document.querySelector("[data-key='e']")?.click(),
};

export function startShortcuts() {
  let pending = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || dialogIsOpen()) return;
    if (document.body.hasAttribute("data-no-shortcuts")) return;
    if (Date.now() < pending) {
      pending = 0;
      document.querySelector(`.menu [data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    if (event.key === "g") {
      pending = Date.now() + WAIT_FOR_SECOND_KEY_MS;
      return;
    }
    const action = KEYS[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });
  document.body.addEventListener("click", (event) => {
    if (event.target.closest("[data-open-help]")) openHelp();
  });
}
