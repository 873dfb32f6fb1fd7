// What every htmx request and swap of the console shares.

// A fragment cannot know what the reader opened by hand, so a morph leaves these as they are.
const KEPT_ATTRIBUTES = new Set(["open"]);

function leaveOpenedMenusAlone(oldNode) {
  return !(oldNode instanceof Element && oldNode.classList.contains("dropdown") && oldNode.querySelector(".show"));
}

export function startHtmx() {
  document.body.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRFToken"] = document.querySelector('meta[name="csrf-token"]').content;
  });
  // A signed-out session answers a fragment with a redirect to the login page: go there as a whole page.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (xhr.responseURL && new URL(xhr.responseURL).pathname.startsWith("/accounts/login")) {
      event.detail.shouldSwap = false;
      location.reload();
    }
  });
  document.body.addEventListener("htmx:responseError", (event) => {
    if (![403, 404, 409, 422].includes(event.detail.xhr.status)) {
      document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "error", message: document.body.dataset.failed } }));
    }
  });
  if (window.Idiomorph) {
    const { callbacks } = window.Idiomorph.defaults;
    window.Idiomorph.defaults.ignoreActiveValue = true; // what is being typed stays
    callbacks.beforeAttributeUpdated = (name, node) =>
      !KEPT_ATTRIBUTES.has(name) && !(name === "checked" && node.hasAttribute("data-keep-checked"));
    callbacks.beforeNodeMorphed = leaveOpenedMenusAlone;
  }
}
