"use strict";
// Theme, copy buttons, sortable tables; then what the page's data asks for.

function startTheme() {
  const root = document.documentElement;
  for (const radio of document.querySelectorAll("input[name=theme]")) {
    radio.checked = radio.value === (root.dataset.theme ?? "system");
    radio.addEventListener("change", () => {
      if (radio.value === "system") delete root.dataset.theme;
      else root.dataset.theme = radio.value;
      try { localStorage.setItem("istanas-theme", radio.value); } catch {}
    });
  }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {  // not for pages from a disk, in some browsers
    const area = el("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function startCopying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const done = await copy(document.getElementById(button.dataset.copy).textContent);
      button.textContent = done ? "Copied" : "Select it, then Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
}

// A click on a heading sorts by data-value, numbers as numbers; another one the other way round.
function startSorting() {
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = el("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const rows = [...body.rows].sort((a, b) => {
          const [one, other] = [value(a), value(b)];
          if (one === "" || other === "") return (one === "") - (other === "");
          const way = Number.isFinite(Number(one)) && Number.isFinite(Number(other))
            ? Number(one) - Number(other) : one.localeCompare(other);
          return rising ? way : -way;
        });
        body.append(...rows);
      });
    });
  }
}

function start() {
  startTheme();
  startCopying();
  startSorting();
  const player = document.getElementById("player");
  if (player) player.replay = new Replay(player, DATA);
  const charts = document.getElementById("charts");
  if (charts) drawCharts(charts, DATA.charts);
  const bars = document.getElementById("time-bars");
  if (bars) drawTime(bars, DATA.time);
}

start();
