// Light, dark or as the system has it. The choice is a cookie, so that the server renders it.

export function startThemeSwitch() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function apply(choice) {
    const dark = choice === "dark" || (choice === "system" && system.matches);
    root.dataset.theme = choice;
    root.setAttribute("data-bs-theme", dark ? "dark" : "light");
    for (const button of document.querySelectorAll("[data-set-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === choice));
    }
    document.dispatchEvent(new CustomEvent("theme-changed"));
  }

  document.body.addEventListener("click", (event) => {
    const button = event.target.closest("[data-set-theme]");
    if (!button) return;
    document.cookie = `theme=${button.dataset.setTheme}; path=/; max-age=31536000; samesite=lax`;
    apply(button.dataset.setTheme);
  });
  system.addEventListener("change", () => apply(root.dataset.theme || "system"));
}
