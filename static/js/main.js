// Everything a page may need, each in a module of its own; a module does nothing where its elements are absent.
import { startCharts } from "./chart.js";
import { startForms } from "./forms.js";
import { startHtmx } from "./htmx-setup.js";
import { startLive } from "./live.js";
import { startPanel } from "./panel.js";
import { startShortcuts } from "./shortcuts.js";
import { startThemeSwitch } from "./theme-switch.js";
import { startToasts } from "./toasts.js";
import { startTreeGrid } from "./treegrid.js";

startHtmx();
startLive();
startPanel();
startForms();
startCharts();
startShortcuts();
startThemeSwitch();
startToasts();
startTreeGrid();
