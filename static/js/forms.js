// Small helps for forms: focus to the list of problems, filters that send themselves, fields that belong to a choice.

const QUICK_FILTER_MS = 400;

function focusProblems(root) {
  const problems = root.querySelector?.(".problems");
  if (problems) problems.focus();
}

function showFieldsOfChoice(form) {
  for (const part of form.querySelectorAll("[data-when]")) {
    const [name, values] = part.dataset.when.split("=");
    const control = form.elements[name];
    if (!control) continue;
    const checked = form.querySelector(`[name="${name}"]:checked`);
    const isBox = form.querySelector(`input[type=checkbox][name="${name}"]`);
    const value = isBox ? (isBox.checked ? "on" : "off") : (checked ?? control).value;
    part.hidden = !values.split("|").includes(value);
  }
}

function prepare(root) {
  focusProblems(root);
  for (const form of root.querySelectorAll?.("form") ?? []) showFieldsOfChoice(form);
}

export function startForms() {
  prepare(document);
  document.body.addEventListener("htmx:afterSettle", (event) => prepare(event.detail.elt));
  document.body.addEventListener("change", (event) => {
    const { form } = event.target;
    if (event.target.hasAttribute("data-check-all")) {
      for (const box of form.querySelectorAll("tbody input[name=pk]")) box.checked = event.target.checked;
    }
    if (form) showFieldsOfChoice(form);
    if (form?.hasAttribute("data-auto-submit")) form.requestSubmit();
  });
  let timer;
  document.body.addEventListener("input", (event) => {
    const { form } = event.target;
    if (!form?.hasAttribute("data-auto-submit") || event.target.type !== "search") return;
    clearTimeout(timer);
    timer = setTimeout(() => form.requestSubmit(), QUICK_FILTER_MS);
  });
}
