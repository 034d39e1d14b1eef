"use strict";
// Elements, tooltips and charts. Text goes in as text, never as HTML.

const DATA = JSON.parse(document.getElementById("data").textContent);
const COLOURS = DATA.colours;
const DASHES = ["", "6 4", "2 3"];
const SPENT = {};
["step", "compile", "data", "recovery", "checkpoint", "evaluation", "log", "other"].forEach(
  (activity, i) => { SPENT[activity] = COLOURS[i] ?? "#818b98"; });

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

const el = (name, attributes, ...children) =>
  fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return String(Number(value.toPrecision(3)).toExponential());
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 4 });
}

function duration(seconds) {
  if (seconds < 60) return `${short(Number(seconds.toPrecision(3)))} s`;
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

const tip = {
  show(x, y, ...children) {
    const box = document.getElementById("tip");
    box.replaceChildren(...children);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - width - 16 : x + 16;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - height - 4))}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

// Round numbers that cover a range, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((m) => m * unit >= raw);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

function scale(values, log) {
  let low = Math.min(...values), high = Math.max(...values);
  if (log) {
    const from = Math.floor(Math.log10(low)), to = Math.max(from + 1, Math.ceil(Math.log10(high)));
    const every = Math.ceil((to - from) / 5), marks = [];
    for (let e = from; e <= to; e += every) marks.push(10 ** e);
    return { marks, at: (v) => (Math.log10(Math.max(v, 10 ** from)) - from) / (to - from) };
  }
  if (low > 0 && low < 0.4 * high) low = 0;
  if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
  const pad = 0.04 * (high - low);
  if (low !== 0) low -= pad;
  high += pad;
  return { marks: ticks(low, high, 4), at: (v) => (v - low) / (high - low) };
}

// Lines of several phases or runs differ in colour, and their quantities in dashes.
function styled(lines) {
  const groups = [...new Set(lines.map((line) => line.run ?? line.phase))];
  const names = [...new Set(lines.map((line) => line.name))];
  const several = groups.length > 1 || lines.some((line) => line.run !== undefined);
  const at = (list, number) => list[number % list.length];
  return {
    lines: lines.map((line) => {
      const group = groups.indexOf(line.run ?? line.phase), name = names.indexOf(line.name);
      const colour = several ? line.colour ?? at(COLOURS, group) : at(COLOURS, name);
      const said = several ? [line.run, line.phase, names.length > 1 ? line.name : ""] : [line.name];
      return { ...line, stroke: colour, dash: at(DASHES, name), said: said.filter(Boolean).join(" · ") };
    }),
    legend: [
      ...(several ? groups.map((text, i) => {
        const own = lines.find((line) => (line.run ?? line.phase) === text);
        return { text, stroke: own.colour ?? at(COLOURS, i), dash: "" };
      }) : []),
      ...(several && names.length === 1 ? [] : names.map((text, i) => (
        { text, stroke: several ? "var(--soft)" : at(COLOURS, i), dash: at(DASHES, i) }))),
    ],
  };
}

function chart(spec) {
  const { lines, legend } = styled(spec.lines);
  const title = spec.title + (spec.unit ? ` (${spec.unit})` : "");
  const items = legend.map((item) => el("li", {},
    svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("path", {
      d: "M0 4H22", stroke: item.stroke, "stroke-width": 2.5, "stroke-dasharray": item.dash })),
    item.text));
  const picture = svg("svg", { role: "img", tabindex: 0, "aria-label": `${title}: ${lines.map(
    (line) => `${line.said} from ${short(line.y[0])} to ${short(line.y.at(-1))}`).join("; ")}` });
  const figure = el("figure", { class: "chart" },
    el("figcaption", {}, el("h3", {}, title)), el("ul", { class: "legend" }, ...items), picture);
  const draw = () => drawChart(picture, spec, lines);
  new ResizeObserver(draw).observe(picture);
  return figure;
}

function drawChart(picture, spec, lines) {
  const width = picture.clientWidth, height = picture.clientHeight;
  if (!width) return;
  const log = spec.title === "Distance of z" && lines.some((line) => Math.max(...line.y) > 0);
  const values = lines.flatMap((line) => [...line.y, ...(line.low ?? []), ...(line.high ?? [])]);
  const y = scale(log ? values.filter((v) => v > 0) : values, log);
  const xs = lines.flatMap((line) => line.x), first = Math.min(...xs), last = Math.max(...xs);
  const labels = y.marks.map(short), left = 12 + 6.4 * Math.max(...labels.map((t) => t.length));
  const [right, top, bottom] = [width - 10, 8, height - 34];
  const px = (v) => (last > first ? left + (v - first) / (last - first) * (right - left) : (left + right) / 2);
  const py = (v) => bottom - y.at(v) * (bottom - top);
  const path = (line, list) => list.map((v, i) => `${px(line.x[i]).toFixed(1)} ${py(v).toFixed(1)}`);
  const parts = y.marks.flatMap((mark, i) => [
    svg("path", { class: "grid", d: `M${left} ${py(mark).toFixed(1)}H${right}` }),
    svg("text", { x: left - 6, y: py(mark) + 4, "text-anchor": "end" }, labels[i])]);
  const marks = last > first ? ticks(first, last, width > 420 ? 8 : 5).filter(Number.isInteger) : [first];
  for (const mark of marks) parts.push(svg("text", { x: px(mark), y: bottom + 15, "text-anchor": "middle" }, short(mark)));
  parts.push(svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "epoch"));
  for (const line of lines) {
    if (line.low) {
      const band = [...path(line, line.high), ...path(line, line.low).reverse()];
      parts.push(svg("path", { d: `M${band.join("L")}Z`, fill: line.stroke, opacity: 0.14 }));
    }
    parts.push(svg("path", { class: "line", d: `M${path(line, line.y).join("L")}`, stroke: line.stroke, "stroke-dasharray": line.dash }));
    if (line.x.length === 1) parts.push(svg("circle", { cx: px(line.x[0]), cy: py(line.y[0]), r: 3, fill: line.stroke }));
  }
  const cursor = svg("g");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(...parts, cursor);
  follow(picture, cursor, spec, lines, { px, py, top, bottom, all: [...new Set(xs)].sort((a, b) => a - b) });
}

// The values at the place of the pointer, or of the arrow keys.
function follow(picture, cursor, spec, lines, at) {
  let index = -1;
  const show = (place) => {
    const x = at.all[index], rows = [];
    cursor.replaceChildren(svg("path", { class: "cursor", d: `M${at.px(x)} ${at.top}V${at.bottom}` }));
    for (const line of lines) {
      const i = line.x.indexOf(x);
      if (i < 0) continue;
      cursor.append(svg("circle", { cx: at.px(x), cy: at.py(line.y[i]), r: 3.5, fill: line.stroke }));
      rows.push(el("div", {}, el("span", { class: "swatch", style: `background:${line.stroke}` }),
        line.said, el("b", {}, short(line.y[i]) + (spec.unit ? ` ${spec.unit}` : ""))));
    }
    tip.show(place.x, place.y, el("strong", {}, `epoch ${short(x)}`), ...rows);
  };
  const hide = () => { index = -1; cursor.replaceChildren(); tip.hide(); };
  picture.onpointermove = (event) => {
    const box = picture.getBoundingClientRect(), x = event.clientX - box.left;
    const far = at.all.map((v) => Math.abs(at.px(v) - x));
    index = far.indexOf(Math.min(...far));
    show({ x: event.clientX, y: event.clientY });
  };
  picture.onpointerleave = picture.onblur = hide;
  picture.onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    index = Math.min(at.all.length - 1, Math.max(0, index + move));
    const box = picture.getBoundingClientRect();
    show({ x: box.left + at.px(at.all[index]), y: box.top + at.top });
  };
}

const PART_NAMES = { search: "Search", retrain: "Training of the found cells", train: "Training" };

function drawCharts(place, charts) {
  for (const part of new Set(charts.map((spec) => spec.part))) {
    place.append(el("h3", {}, PART_NAMES[part] ?? part), el("div", { class: "charts" },
      ...charts.filter((spec) => spec.part === part).map(chart)));
  }
}

function drawTime(place, phases) {
  const most = Math.max(...phases.map((phase) => phase.total)) || 1;
  const activities = Object.keys(SPENT).filter((activity) => phases.some((phase) => phase.parts[activity]));
  place.append(el("ul", { class: "legend" }, ...activities.map((activity) => el("li", {},
    el("span", { class: "swatch", style: `background:${SPENT[activity]}` }), activity))));
  for (const { phase, total, parts } of phases) {
    const pieces = activities.filter((activity) => parts[activity]).map((activity) => el("span", {
      style: `background:${SPENT[activity]};flex:${parts[activity]} 0 0`,
      title: `${activity}: ${duration(parts[activity])}, ${(100 * parts[activity] / total).toFixed(1)} %`,
    }));
    place.append(el("div", { class: "time-row" },
      el("header", {}, el("span", {}, phase), el("span", {}, duration(total))),
      el("div", { class: "time-bar", style: `width:${100 * total / most}%` }, ...pieces)));
  }
  const head = ["phase", ...activities, "in all"].map((name) => el("th", { scope: "col" }, name));
  const rows = phases.map(({ phase, total, parts }) => el("tr", {}, el("th", { scope: "row" }, phase),
    ...activities.map((activity) => el("td", {}, parts[activity] ? duration(parts[activity]) : "–")), el("td", {}, duration(total))));
  place.append(el("details", {}, el("summary", {}, "in numbers"), el("div", { class: "scroll" },
    el("table", { class: "numbers" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)))));
}
