"use strict";
// Runs before the page is drawn: inside Airflow's page its theme applies, else the system's.

const around = (() => {
  try {
    return window.parent === window ? null : window.parent.document;
  } catch {
    return null; // framed by another site
  }
})();

function followTheme() {
  const names = around?.documentElement.classList;
  const theme = names?.contains("dark") ? "dark" : names?.contains("light") ? "light" : "";
  document.documentElement.style.colorScheme = theme;
}

const CHARTS = {
  spark: (canvas, colours) => ({
    type: "line",
    data: { labels: values(canvas), datasets: [line(values(canvas), colours[canvas.dataset.grade], 1.5)] },
    options: {
      ...STILL,
      plugins: { legend: { display: false }, tooltip: { enabled: false } },
      scales: { x: { display: false }, y: { display: false, min: -4, max: 104 } },
    },
  }),
  hours: (canvas, colours) => ({
    type: "bar",
    data: { labels: values(canvas), datasets: [{ data: values(canvas), backgroundColor: colours.accent, borderRadius: 1 }] },
    options: {
      ...STILL,
      plugins: { legend: { display: false }, tooltip: { enabled: false } },
      scales: { x: { display: false }, y: { display: false, beginAtZero: true } },
    },
  }),
  trend: (canvas, colours) => ({
    type: "line",
    data: { labels: labels(canvas), datasets: [line(values(canvas), colours[canvas.dataset.grade], 2)] },
    options: {
      ...STILL,
      interaction: { intersect: false, mode: "index" },
      plugins: { legend: { display: false } },
      scales: { x: axis(colours, { maxTicksLimit: 5, maxRotation: 0 }), y: { ...axis(colours), min: 0, max: 100 } },
    },
  }),
  bars: (canvas, colours) => ({
    type: "bar",
    data: { labels: labels(canvas), datasets: [{ data: values(canvas), backgroundColor: colours.accent, borderRadius: 3, maxBarThickness: 44 }] },
    options: {
      ...STILL,
      plugins: { legend: { display: false } },
      scales: { x: axis(colours), y: { ...axis(colours, { precision: 0, maxTicksLimit: 5 }), beginAtZero: true, suggestedMax: 4 } },
    },
  }),
};
const STILL = { animation: false, responsive: true, maintainAspectRatio: false };

const values = (canvas) => JSON.parse(canvas.dataset.values);
const labels = (canvas) => JSON.parse(canvas.dataset.labels);
const axis = (colours, ticks = {}) => ({
  grid: { color: colours.line, drawTicks: false },
  border: { display: false },
  ticks: { color: colours.quiet, font: { size: 11 }, padding: 6, ...ticks },
});
const line = (data, colour, width) => ({
  data,
  borderColor: colour,
  borderWidth: width,
  pointRadius: data.length > 1 ? 0 : 2,
  tension: 0.25,
});

// the stylesheet's value for this theme
function palette() {
  const probe = document.body.appendChild(document.createElement("i"));
  const found = {};
  for (const name of ["good", "poor", "bad", "accent", "text", "line", "quiet"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function draw(canvas) {
  Chart.getChart(canvas)?.destroy();
  new Chart(canvas, CHARTS[canvas.dataset.chart](canvas, palette()));
}

// charts take time, and most of a long list is not visible
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      seen.unobserve(target);
      draw(target);
    }
  }
});

function redraw() {
  document.querySelectorAll("canvas[data-chart]").forEach((canvas) => Chart.getChart(canvas) && draw(canvas));
}

// each wait is as long as the server's patience
const WAITS = 20;

// the answer is this app's HTML, escaped on the server, for errors too
async function load(part, waits = WAITS) {
  part.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(part.dataset.part);
    if (answer.status === 504 && waits > 0) {
      part.querySelectorAll(".loading").forEach((each) => (each.textContent = "This takes longer than usual …"));
      return load(part, waits - 1); // the next request joins the read in progress
    }
    if (answer.status === 401 || answer.status === 403) {
      throw new Error("You are not allowed to see this. Log in again, or request access.");
    }
    part.innerHTML = await answer.text();
  } catch (error) {
    showError(part, error.message);
  }
  part.removeAttribute("aria-busy");
  const goesOn = part.querySelector("[data-refresh]");
  if (goesOn) {
    setTimeout(refresh, goesOn.dataset.refresh * 1000, part);
  }
  part.querySelectorAll("canvas[data-chart]").forEach((canvas) => seen.observe(canvas));
  part.querySelectorAll("[data-part]").forEach((inner) => load(inner));
}

// skip pages in the background
function refresh(part) {
  if (document.hidden) {
    document.addEventListener("visibilitychange", () => refresh(part), { once: true });
  } else {
    load(part);
  }
}

function showError(part, text) {
  const notice = document.createElement("p");
  part.replaceChildren(notice);
  notice.className = "notice error";
  notice.setAttribute("role", "alert");
  notice.textContent = text;
}

function filter(input) {
  const text = input.value.trim().toLowerCase();
  let shown = 0;
  for (const row of document.querySelectorAll(`#${input.dataset.filter} [data-name]`)) {
    row.hidden = !row.dataset.name.toLowerCase().includes(text);
    shown += row.hidden ? 0 : 1;
  }
  document.querySelector("[data-filtered]").hidden = shown > 0;
}

followTheme();
if (around) {
  new MutationObserver(() => {
    followTheme();
    redraw();
  }).observe(around.documentElement, { attributeFilter: ["class"] });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

document.addEventListener("input", ({ target }) => target.dataset.filter && filter(target));
document.addEventListener("change", ({ target }) => "submit" in target.dataset && target.form.submit());
// Airflow's sandbox forbids this page to navigate it; a link of that page itself works
function leave(address) {
  if (!around) {
    location.assign(address);
    return;
  }
  const link = around.createElement("a");
  link.href = new URL(address, location.href).href;
  link.click();
}

// Airflow's own API checks the user's right and the request, and records the user. A form of another site cannot send
// JSON.
const DAGS = "../api/v2/dags/";

async function ask(button) {
  const dialog = button.closest("[data-part]").querySelector("dialog");
  const { replay, table, rule, messages } = button.dataset;
  dialog.querySelector("[data-question]").textContent =
    `Replay the ${messages} messages of ${table} that broke the rule “${rule}” with the DAG ${replay}?`;
  const trouble = dialog.querySelector("[data-trouble]");
  const confirm = dialog.querySelector("[data-confirm]");
  trouble.hidden = true;
  confirm.disabled = true;
  confirm.onclick = () => trigger(button, dialog);
  dialog.showModal();
  const answer = await fetch(DAGS + encodeURIComponent(replay));
  confirm.disabled = !answer.ok;
  if (answer.ok && (await answer.json()).is_paused) {
    trouble.textContent = "The DAG is paused: the run waits until it is unpaused.";
    trouble.hidden = false;
  } else if (!answer.ok) {
    trouble.textContent = troubleOf(answer.status, replay);
    trouble.hidden = false;
  }
}

function troubleOf(status, dag) {
  if (status === 404) {
    return `The DAG ${dag} does not exist. Add its DAG file: see “Quarantine” in the documentation of the page.`;
  }
  return status === 401 || status === 403
    ? `You are not allowed to trigger ${dag}.`
    : `Airflow answered with ${status}: see the log of its API server.`;
}

async function trigger(button, dialog) {
  const { replay, table, rule } = button.dataset;
  dialog.querySelector("[data-confirm]").disabled = true;
  const answer = await fetch(`${DAGS}${encodeURIComponent(replay)}/dagRuns`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ logical_date: null, conf: { tables: [table], rules: [rule] } }),
  });
  if (!answer.ok) {
    const trouble = dialog.querySelector("[data-trouble]");
    trouble.textContent = troubleOf(answer.status, replay);
    trouble.hidden = false;
    return;
  }
  const run = (await answer.json()).dag_run_id;
  dialog.close();
  const started = button.closest("[data-part]").querySelector("[data-started]");
  const link = document.createElement("a");
  link.href = `../dags/${encodeURIComponent(replay)}/runs/${encodeURIComponent(run)}`;
  link.dataset.airflow = "";
  link.textContent = run;
  started.replaceChildren("The run ", link, " is triggered.");
  started.hidden = false;
  button.disabled = true;
}

document.addEventListener("click", (event) => {
  const { target } = event;
  const outwards = target.closest("a[data-airflow]");
  if (outwards && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    leave(outwards.href);
  }
  const opens = target.closest("[data-open]");
  if (opens) {
    const isOpen = opens.getAttribute("aria-expanded") === "true";
    opens.setAttribute("aria-expanded", !isOpen);
    opens.closest("table").querySelectorAll(`[data-of="${opens.dataset.open}"]`).forEach((row) => (row.hidden = isOpen));
  }
  if (target.closest("[data-replay]")) {
    ask(target.closest("[data-replay]"));
  }
  target.closest("[data-cancel]")?.closest("dialog").close();
  if (target.closest("[data-again]")) {
    const part = target.closest("[data-part]");
    part ? load(part) : location.reload();
  }
});
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-part]").forEach((part) => load(part));
});
