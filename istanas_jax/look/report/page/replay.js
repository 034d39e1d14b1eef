"use strict";
// The replay of a search: a slider over recoveries, the cells, z of each node, and what changed.

const CELLS = ["normal", "reduction"];
const state = (source) => (source < 2 ? ["cₖ₋₂", "cₖ₋₁"][source] : `node ${source - 2}`);

class Replay {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.timer = null;
    this.build();
    this.choose(0);
  }

  connection(flat) {
    const { operations } = this.data;
    return `${operations[flat % operations.length].name}(${state(Math.floor(flat / operations.length))})`;
  }

  build() {
    const { replays } = this.data;
    this.search = el("select", { "aria-label": "Search", onchange: () => this.choose(Number(this.search.value)) },
      ...replays.map((replay, i) => el("option", { value: i }, replay.phase)));
    this.search.hidden = replays.length === 1;
    this.button = el("button", { type: "button", class: "play", onclick: () => this.toggle() }, "▶ Play");
    this.speed = el("select", { "aria-label": "Speed" },
      ...[0.5, 1, 2, 4].map((value) => el("option", { value, selected: value === 1 }, `${value}×`)));
    this.steady = el("input", { type: "checkbox", onchange: () => this.show(this.index) });
    this.where = el("span", { class: "where", "aria-live": "polite" });
    this.slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Recovery",
      oninput: () => { this.pause(); this.show(Number(this.slider.value)); } });
    this.timeline = svg("svg", { class: "timeline", role: "img", onclick: (event) => this.jump(event) });
    this.news = el("div", { class: "news", tabindex: 0, "aria-label": "What changed" });
    const arrow = (text, label, move) => el("button", { type: "button", "aria-label": label,
      onclick: () => { this.pause(); this.show(this.index + move); } }, text);
    const rest = el("i", { style: "background:var(--accent);opacity:.28" });
    const change = el("i", { style: "background:var(--ink);width:3px" });
    this.panels = CELLS.map((cell) => this.panel(cell));
    this.place.append(
      el("div", { class: "controls" },
        el("div", { class: "buttons" }, this.search, arrow("‹", "Recovery before", -1), this.button,
          arrow("›", "Next recovery", 1), this.speed, el("label", {}, this.steady, "same scale of z throughout"), this.where),
        el("div", { class: "track" }, this.slider)),
      this.timeline,
      el("div", { class: "keys" }, el("span", {}, change, "the node's connections change"), el("span", {}, rest, "frozen")),
      this.news, ...this.panels.map((panel) => panel.figure));
    this.place.addEventListener("keydown", (event) => {
      const own = ["BUTTON", "SELECT"].includes(event.target.tagName) || event.target.type === "checkbox";
      if (event.key !== " " || own) return;
      event.preventDefault();
      this.toggle();
    });
    new ResizeObserver(() => this.drawTimeline()).observe(this.timeline);
  }

  panel(cell) {
    const drawing = el("div", { class: "cell" }), nodes = el("div", { class: "nodes" });
    const title = `${cell[0].toUpperCase()}${cell.slice(1)} cell`;
    const figure = el("figure", {}, el("figcaption", {}, el("h3", {}, title)), drawing, nodes);
    return { figure, drawing, nodes, shown: null, charts: [] };
  }

  choose(number) {
    this.pause();
    this.replay = this.data.replays[number];
    const { frames, nodes } = this.replay;
    this.slider.max = frames.length - 1;
    this.panels.forEach((panel, cell) => {
      panel.shown = null;
      panel.charts = Array.from({ length: nodes }, (_, node) => this.bars(node));
      panel.nodes.replaceChildren(...panel.charts.map((chart) => chart.box));
      panel.size = this.room(cell);
      panel.most = Array.from({ length: nodes }, (_, node) => Math.max(1e-12,
        ...frames.flatMap((frame) => frame.z[cell][node].filter((_, i) => i % 2).map(Math.abs))));
    });
    this.drawTimeline();
    this.show(0);
  }

  // Width and height that hold every drawing of a cell, so that nothing jumps.
  room(cell) {
    const boxes = [...new Set(this.replay.frames.map((frame) => frame.cells[cell]))].map((id) =>
      document.getElementById(`drawing-${id}`).content.firstElementChild.getAttribute("viewBox").split(" ").map(Number));
    return [Math.max(...boxes.map((box) => box[2])), Math.max(...boxes.map((box) => box[3]))];
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.index === this.replay.frames.length - 1) this.show(0);
    this.button.textContent = "❚❚ Pause";
    this.next();
  }

  next() {
    const count = this.replay.frames.length;
    const wait = Math.min(900, Math.max(90, 24000 / count)) / Number(this.speed.value);
    this.timer = setTimeout(() => {
      this.show(this.index + 1);
      if (this.index < count - 1) this.next();
      else this.pause();
    }, wait);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.button.textContent = "▶ Play";
  }

  jump(event) {
    const box = this.timeline.getBoundingClientRect();
    this.pause();
    this.show(Math.round((event.clientX - box.left - 94) / (box.width - 102) * (this.replay.frames.length - 1)));
  }

  show(index) {
    const { frames } = this.replay;
    this.index = Math.min(frames.length - 1, Math.max(0, index));
    const frame = frames[this.index];
    this.slider.value = this.index;
    const when = [frame.epoch === null ? "" : `epoch ${frame.epoch}`, `step ${frame.step.toLocaleString("en")}`];
    this.where.textContent = `${when.filter(Boolean).join(" · ")} · ${this.index + 1} of ${frames.length}`;
    this.slider.setAttribute("aria-valuetext", this.where.textContent);
    this.tell(frame);
    this.panels.forEach((panel, cell) => {
      this.drawCell(panel, cell, frame);
      panel.charts.forEach((chart, node) => this.drawBars(chart, panel, cell, node, frame));
    });
    this.moveCursor();
  }

  tell(frame) {
    const lines = frame.changed.map(([cell, node, gone, come]) => {
      const say = (tag, list) => list.flatMap((flat, i) => [i ? ", " : "", el(tag, {}, this.connection(flat))]);
      return el("p", {}, `${CELLS[cell]} node ${node}: `, ...say("del", gone), " → ", ...say("ins", come));
    });
    for (const [cell, node] of frame.froze) {
      lines.push(el("p", {}, el("span", { class: "badge" }, `${CELLS[cell]} node ${node} froze`), ": z has come to rest."));
    }
    if (frame.budget) lines.push(el("p", {}, "The budget decided: the strongest connections that fit were taken."));
    const first = this.index === 0 && frame.step === 0;
    if (!lines.length) lines.push(el("p", { class: "soft" }, first ? "The start: b is random, and z is recovered from it." : "No node changed its connections."));
    if (frame.free) {
      const judged = frame.percentile === null ? "" : `; the judge's percentile: ${short(frame.percentile)}`;
      lines.push(el("p", { class: "soft" }, `Connections without weights: ${frame.free[0]} normal, ${frame.free[1]} reduction${judged}`));
    }
    if (frame.kkt !== null) lines.push(el("p", { class: "soft" }, `Largest KKT residual of the LASSO: ${short(frame.kkt)} λ`));
    this.news.replaceChildren(...lines);
    this.news.scrollTop = 0;
  }

  drawCell(panel, cell, frame) {
    const id = frame.cells[cell];
    if (panel.shown !== id) {
      const before = this.places(panel.drawing);
      const drawn = document.getElementById(`drawing-${id}`).content.firstElementChild.cloneNode(true);
      const [x, y, width, height] = drawn.getAttribute("viewBox").split(" ").map(Number);
      drawn.setAttribute("viewBox", `${x} ${y - (panel.size[1] - height) / 2} ${Math.max(width, panel.size[0])} ${panel.size[1]}`);
      drawn.style.setProperty("--width", `${panel.size[0]}px`);
      panel.drawing.replaceChildren(drawn);
      this.glide(panel.drawing, before);
      panel.shown = id;
    }
    const s = this.replay.s, weights = frame.w[cell].flat(), picks = frame.picks[cell].flat();
    const most = Math.max(...weights.map((w) => Math.abs(w ?? 0))) || 1;
    const fresh = new Set(frame.changed.filter((change) => change[0] === cell)
      .flatMap(([, node, , come]) => come.map((flat) => node * s + frame.picks[cell][node].indexOf(flat))));
    for (const group of panel.drawing.querySelectorAll("[data-edge]")) {
      const number = Number(group.dataset.edge), weight = weights[number] ?? 0;
      group.classList.toggle("new", fresh.has(number));
      if (!group.classList.contains("operation")) continue;
      const [line, head] = group.querySelectorAll("path");
      const [thin, thick] = this.data.widths, width = thin + (thick - thin) * Math.abs(weight) / most;
      line.setAttribute("stroke-width", width.toFixed(2));
      line.setAttribute("stroke-dasharray", weight < 0 ? "7 4" : "none");
      const [left, top, , half] = head.getAttribute("d").match(/-?[\d.]+/g).map(Number);
      const wide = width / 2 + 3;
      head.setAttribute("d", `M${left} ${(top + half - wide).toFixed(1)}l9 ${wide.toFixed(1)}l-9 ${wide.toFixed(1)}z`);
      group.querySelector("title").textContent =
        `${this.connection(picks[number])} to node ${Math.floor(number / s)}, coefficient ${short(weight)}`;
    }
    frame.frozen[cell].forEach((frozen, node) =>
      panel.drawing.querySelector(`[data-node="${node + 2}"]`).classList.toggle("frozen", Boolean(frozen)));
  }

  places(drawing) {
    const found = new Map();
    for (const node of drawing.querySelectorAll("[data-node]")) {
      const rect = node.querySelector("rect");
      found.set(node.dataset.node, ["x", "y"].map((key) => Number(rect.getAttribute(key))));
    }
    return found;
  }

  // Nodes glide from where they stood, lines appear.
  glide(drawing, before) {
    if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const [name, [x, y]] of this.places(drawing)) {
      const old = before.get(name), node = drawing.querySelector(`[data-node="${name}"]`);
      node.animate([{ transform: `translate(${old[0] - x}px, ${old[1] - y}px)` }, { transform: "none" }],
        { duration: 220, easing: "ease-out" });
    }
    for (const part of drawing.querySelectorAll(".operation, .output, g[data-edge]")) {
      part.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 260 });
    }
  }

  bars(node) {
    const { operations } = this.data, sources = node + 2, count = sources * operations.length;
    const width = 260, middle = 44, slot = width / count;
    const split = (source) => `M${source * operations.length * slot} 2V${2 * middle - 2}`;
    const rects = Array.from({ length: count }, (_, flat) => svg("rect", { x: (flat + 0.1) * slot,
      width: 0.8 * slot, y: middle, height: 0, fill: operations[flat % operations.length].colour }, svg("title")));
    const lines = [1, -1].map(() => svg("path", { class: "threshold", d: `M0 ${middle}H${width}` }));
    const parts = [svg("path", { class: "zero", d: `M0 ${middle}H${width}` })];
    for (let source = 1; source < sources; source++) parts.push(svg("path", { class: "split", d: split(source) }));
    const names = Array.from({ length: sources }, (_, source) =>
      (source < 2 ? el("span", {}, "c", el("sub", {}, `k−${2 - source}`)) : el("span", {}, String(source - 2))));
    const picture = svg("svg", { viewBox: `0 0 ${width} ${2 * middle}`, preserveAspectRatio: "none", class: "bars", role: "img" },
      ...parts, ...rects, ...lines);
    const badge = el("span", { class: "badge" }), moved = el("small");
    const box = el("div", { class: "node-z" }, el("h4", {}, `node ${node}`, badge, moved), picture,
      el("div", { class: "sources", "aria-hidden": "true" }, ...names));
    return { box, picture, rects, lines, badge, moved, middle };
  }

  drawBars(chart, panel, cell, node, frame) {
    const z = new Map(), flat = frame.z[cell][node];
    for (let i = 0; i < flat.length; i += 2) z.set(flat[i], flat[i + 1]);
    const sizes = [...z.values()].map(Math.abs).sort((a, b) => b - a);
    const threshold = sizes[this.replay.s - 1] ?? 0;
    const most = this.steady.checked ? panel.most[node] : sizes[0] || 1;
    const unit = (chart.middle - 4) / most, picks = frame.picks[cell][node];
    chart.rects.forEach((rect, i) => {
      const value = z.get(i) ?? 0, size = Math.abs(value) * unit;
      rect.setAttribute("y", value > 0 ? chart.middle - size : chart.middle);
      rect.setAttribute("height", size);
      rect.setAttribute("opacity", picks.includes(i) ? 1 : 0.4);
      rect.firstChild.textContent = `${this.connection(i)}: z = ${short(value)}${picks.includes(i) ? ", kept" : ""}`;
    });
    chart.lines.forEach((line, i) => {
      line.style.transform = `translateY(${(i ? 1 : -1) * threshold * unit}px)`;
    });
    const distance = (frame.distance[cell] ?? [])[node];
    chart.badge.textContent = frame.frozen[cell][node] ? "frozen" : "";
    const rests = frame.frozen[cell][node] || distance === undefined || distance === null;
    chart.moved.textContent = rests ? "" : `moved ${short(distance)}`;
    chart.picture.setAttribute("aria-label", `z of node ${node}: ${picks.map((i) =>
      `${this.connection(i)} ${short(z.get(i) ?? 0)}`).join(", ")} kept; threshold ${short(threshold)}`);
  }

  x(index) {
    const width = this.timeline.clientWidth, last = Math.max(1, this.replay.frames.length - 1);
    return 94 + index / last * (width - 102);
  }

  drawTimeline() {
    const width = this.timeline.clientWidth;
    if (!width || !this.replay) return;
    const { frames, nodes } = this.replay, parts = [], row = 15;
    CELLS.forEach((name, cell) => {
      for (let node = 0; node < nodes; node++) {
        const y = (cell * nodes + node) * row + cell * 6;
        parts.push(svg("text", { x: 0, y: y + 11 }, `${name} ${node}`),
          svg("rect", { class: "row", x: 94, y: y + 1, width: width - 102, height: row - 3, rx: 2 }));
        const rest = frames.findIndex((frame) => frame.frozen[cell][node]);
        if (rest >= 0) parts.push(svg("rect", { class: "rest", x: this.x(rest), y: y + 1, width: Math.max(2, width - 8 - this.x(rest)), height: row - 3 }));
        frames.forEach((frame, i) => {
          if (frame.changed.some((change) => change[0] === cell && change[1] === node)) {
            parts.push(svg("rect", { class: "change", x: this.x(i) - 1.25, y: y + 1, width: 2.5, height: row - 3 }));
          }
        });
      }
    });
    const rows = 2 * nodes * row + 6, height = rows + this.drawPercentile(parts, rows + 8, width);
    this.cursor = svg("path", { class: "cursor", d: `M0 0V${height}` });
    this.timeline.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.timeline.style.height = `${height}px`;
    this.timeline.setAttribute("aria-label", "When each node changed its connections, and when it froze; below it the judge's percentile");
    this.timeline.replaceChildren(...parts, this.cursor);
    this.moveCursor();
  }

  // The judge's percentile from 0 to 100 below the nodes, where it knows the cells; its height.
  drawPercentile(parts, top, width) {
    const size = 48, at = (value) => top + size * (1 - value / 100);
    const known = this.replay.frames.map((frame, i) => [i, frame.percentile]).filter((pair) => pair[1] !== null);
    if (!known.length) return 0;
    const line = known.map(([i, value]) => `${this.x(i).toFixed(1)} ${at(value).toFixed(1)}`).join("L");
    const about = svg("title", {}, this.data.judge);
    parts.push(svg("text", { x: 0, y: top + size / 2 + 4 }, "percentile"),
      svg("rect", { class: "row", x: 94, y: top, width: width - 102, height: size, rx: 2 }, about),
      svg("path", { class: "random", d: `M94 ${at(50)}H${width - 8}` }),
      svg("path", { class: "percentile", d: `M${line}` }),
      ...known.map(([i, value]) => svg("circle", { class: "percentile", cx: this.x(i), cy: at(value), r: 2 },
        svg("title", {}, `percentile ${short(value)}. ${this.data.judge}`))));
    return size + 10;
  }

  moveCursor() {
    if (this.cursor) this.cursor.setAttribute("transform", `translate(${this.x(this.index ?? 0)} 0)`);
  }
}
