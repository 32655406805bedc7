"use strict";
// Runs before the page is drawn: the theme is Airflow's where its page is around this one, else the system's.

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
};
const STILL = { animation: false, responsive: true, maintainAspectRatio: false };

const values = (canvas) => JSON.parse(canvas.dataset.values);
const line = (data, colour, width) => ({
  data,
  borderColor: colour,
  borderWidth: width,
  pointRadius: data.length > 1 ? 0 : 2,
  tension: 0.25,
});

// what the stylesheet has decided for this theme
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

// charts cost a moment each, and of a long list few are seen
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

const WAITS = 20;

// the answer is HTML of this app, escaped there, also if it tells of an error
async function load(part, waits = WAITS) {
  part.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(part.dataset.part);
    if (answer.status === 504 && waits > 0) {
      return load(part, waits - 1); // it is still being read, and the next request joins in
    }
    if (answer.status === 401 || answer.status === 403) {
      throw new Error("Airflow does not let you see this. Log in again, or ask for the right to it.");
    }
    part.innerHTML = await answer.text();
  } catch (error) {
    tell(part, error.message);
  }
  part.removeAttribute("aria-busy");
  part.querySelectorAll("canvas[data-chart]").forEach((canvas) => seen.observe(canvas));
}

function tell(part, text) {
  const notice = part.appendChild(document.createElement("p"));
  part.replaceChildren(notice);
  notice.className = "notice error";
  notice.setAttribute("role", "alert");
  notice.textContent = text;
}

function filter(input) {
  const wanted = input.value.trim().toLowerCase();
  let shown = 0;
  for (const row of document.querySelectorAll(`#${input.dataset.filter} [data-name]`)) {
    row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
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
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-again]")) {
    const part = target.closest("[data-part]");
    part ? load(part) : location.reload();
  }
});
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-part]").forEach((part) => load(part));
});
