// Keys of the quota tree: Up/Down/Home/End move between rows, Right unfolds or enters, Left folds or goes to the parent.

function rowsOf(grid) {
  return [...grid.querySelectorAll("[role='row'][aria-level]")];
}

function level(row) {
  return Number(row.getAttribute("aria-level"));
}

function focusRow(grid, row) {
  if (!row) return;
  for (const other of rowsOf(grid)) other.tabIndex = other === row ? 0 : -1;
  row.focus();
}

function parentOf(rows, at) {
  for (let index = at - 1; index >= 0; index -= 1) {
    if (level(rows[index]) < level(rows[at])) return rows[index];
  }
  return null;
}

function fold(row) {
  row.querySelector("[data-fold]")?.click();
}

function onKey(event) {
  const row = event.target;
  const grid = row.closest?.("[role='treegrid']");
  if (!grid || row.getAttribute("role") !== "row") return;
  const rows = rowsOf(grid);
  const at = rows.indexOf(row);
  const expanded = row.getAttribute("aria-expanded");
  const actions = {
    ArrowDown: () => focusRow(grid, rows[at + 1]),
    ArrowUp: () => focusRow(grid, rows[at - 1]),
    Home: () => focusRow(grid, rows[0]),
    End: () => focusRow(grid, rows.at(-1)),
    ArrowRight: () => (expanded === "false" ? fold(row) : focusRow(grid, expanded && rows[at + 1])),
    ArrowLeft: () => (expanded === "true" ? fold(row) : focusRow(grid, parentOf(rows, at))),
    Enter: () => row.querySelector("a")?.click(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

export function startTreeGrid() {
  document.body.addEventListener("keydown", onKey);
}
