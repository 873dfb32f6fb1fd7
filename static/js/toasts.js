// Short notes after a change. The server sends them as the event "toast" in a trigger header.

const SHOWN_MS = 7000;

function dismiss(note) {
  note.remove();
}

function add({ level = "info", message }) {
  const template = document.getElementById("toast-template");
  const note = template.content.firstElementChild.cloneNode(true);
  note.dataset.level = level;
  note.querySelector("[data-toast-text]").textContent = message;
  document.querySelector(".toasts").append(note);
  if (level !== "error") setTimeout(() => dismiss(note), SHOWN_MS);
}

export function startToasts() {
  if (!document.querySelector(".toasts")) return;
  document.body.addEventListener("toast", (event) => add(event.detail));
  document.querySelector(".toasts").addEventListener("click", (event) => {
    if (event.target.closest("[data-dismiss]")) dismiss(event.target.closest(".toast-note"));
  });
}
