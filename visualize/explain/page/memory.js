// A rank's memory, and its arena over time.

views.memory = {
  title: "Memory",
  show(main) {
    const run = data.runs[state.run];
    const own = data.memory[state.rank], m = own.same < 0 ? own : data.memory[own.same];
    const names = data.memory.map((m, i) => `rank ${i}`);
    main.append(el("div", { class: "head" }, el("h2", {}, "Memory over time"),
      el("p", {}, "The arena holds values from the step that writes them to the last that reads them. Each rectangle is a value at its offset. Offsets are reused as soon as possible. Sizes are exact, from the plan.")));
    if (!run) return {};
    const alike = data.memory.every((m, i) => i === 0 || m.same === 0);
    main.append(el("div", { class: "bar" }, choices("Run", data.runs.map((r) => r.name), state.run, (i) => go({ run: i })),
      data.ranks > 1 && (alike ? el("span", { class: "badge" }, `the same on all ${data.ranks} ranks`) : choices("Rank", names, state.rank, (i) => go({ rank: i })))));
    main.append(el("section", { class: "panel" }, el("h3", {}, "What a rank holds"), memoryBars(run)));
    const peak = arena(m, run), box = el("div", { class: "canvas" });
    const live = liveBytes(m, run), most = Math.max(0, ...live);
    let view;
    main.append(el("section", { class: "panel" },
      el("div", { class: "head" }, el("h3", {}, `The arena: ${bytes(peak)}`), el("span", { class: "muted" }, `${run.about}; live at most ${bytes(most)}, at ${live.length ? data.steps[live.indexOf(most)].n : "no step"}`)),
      el("div", { class: "bar" }, zoomButtons(() => view)), box,
      legend(workLegend)));
    const rects = m.buffers.map((b) => rectOf(b, m, run)).filter((r) => r.size > 0);
    view = new canvasView(box, {
      all: Math.max(1, data.steps.length), height: 430, label: `Memory of rank ${state.rank} in ${run.name}`,
      draw: (c, v) => drawMemory(c, v, rects, live, peak),
      hover: (x, y, v) => aboutMemory(x, y, v, rects, live, peak),
      pick: (x, y, v) => { const r = rectAt(x, y, v, rects, peak); if (r) choose(r.name); },
    });
    const to = () => {
      const r = rects.find((r) => r.names.includes(state.node));
      if (r && (view.x(r.from) < gutter || view.x(r.to) > view.width || view.x(r.to) - view.x(r.from) < 12)) view.look(r.from - 20, r.to + 20);
      else view.paint();
      if (r) view.show();
    };
    if (state.node) to();
    return { key: (e) => view.key(e), chosen: to, leave: () => view.leave(), paint: () => view.paint() };
  },
};

const plotTop = 26, curveHeight = 90, mapTop = plotTop + curveHeight + 18, mapHeight = 280;

// rectOf is where a buffer lies for a batch: regions follow each other, each as often as its
// count says.
function rectOf(b, m, run) {
  let base = 0;
  for (let g = 0; g < b.g; g++) base += m.regions[g] * run.counts[g];
  const n = run.counts[b.g];
  return { name: b.n, names: [b.n, ...(b.a || [])], at: base + b.o * n, size: b.b * n, from: b.f, to: b.t + 1, per: b.b, region: data.regions[b.g] };
}

function liveBytes(m, run) {
  const change = new Array(data.steps.length + 1).fill(0);
  for (const b of m.buffers) { const n = b.b * run.counts[b.g]; change[b.f] += n; change[b.t + 1] -= n; }
  let sum = 0;
  return change.slice(0, -1).map((d) => (sum += d));
}

const mapY = (at, peak) => mapTop + mapHeight - at / (peak || 1) * mapHeight;

function drawMemory(c, v, rects, live, peak) {
  const ink = colour("ink"), muted = colour("muted"), line = colour("line");
  stepBands(c, v, muted);
  c.fillStyle = ink;
  c.fillText("live bytes", 0, plotTop + 8);
  c.fillText("places", 0, mapTop + 8);
  c.fillStyle = muted;
  c.fillText(bytes(peak), 0, plotTop + 24);
  c.fillText(`to ${bytes(peak)}`, 0, mapTop + 24);
  c.save();
  c.beginPath(); c.rect(gutter, 0, v.width - gutter - 8, v.height); c.clip();
  c.fillStyle = colour("soft");
  c.fillRect(gutter, plotTop, v.width, curveHeight);
  c.fillRect(gutter, mapTop, v.width, mapHeight);
  c.fillStyle = colour("accent");
  const first = Math.max(0, Math.floor(v.from)), end = Math.min(live.length, Math.ceil(v.to));
  for (let i = first; i < end; i++) {
    const h = live[i] / (peak || 1) * curveHeight, x = v.x(i);
    c.fillRect(x, plotTop + curveHeight - h, Math.max(0.7, v.x(i + 1) - x) + 0.3, h);
  }
  const panel = colour("panel"), fills = workColours();
  for (const r of rects) {
    if (r.to < v.from || r.from > v.to) continue;
    const x = v.x(r.from), w = Math.max(0.8, v.x(r.to) - x), y = mapY(r.at + r.size, peak), h = Math.max(0.8, mapY(r.at, peak) - y);
    const chosen = state.node !== "" && r.names.includes(state.node);
    c.globalAlpha = chosen ? 1 : 0.8;
    c.fillStyle = fills(data.steps[r.from].o);
    c.fillRect(x, y, w, h);
    c.globalAlpha = 1;
    if (w > 5 && h > 2) { c.strokeStyle = panel; c.lineWidth = 1; c.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); }
    if (chosen) { c.strokeStyle = ink; c.lineWidth = 2; c.strokeRect(x, y, w, h); }
    if (w > 50 && h > 12) label(c, x, w, y + h / 2, [r.name.replace(/^layers\.\d+\.(mixer\.)?/, ""), bytes(r.size)], panel === "#ffffff" ? "#fff" : "#0f1114");
  }
  c.restore();
  c.strokeStyle = line;
  c.strokeRect(gutter + 0.5, mapTop + 0.5, v.width - gutter - 9, mapHeight);
}

// stepBands names the layers along the steps.
function stepBands(c, v, muted) {
  const names = [];
  c.save();
  c.beginPath(); c.rect(gutter, 0, v.width - gutter - 8, v.height); c.clip();
  for (let i = Math.max(0, Math.floor(v.from)); i < Math.min(data.steps.length, v.to);) {
    const l = data.steps[i].l;
    let a = i, b = i;
    while (a > 0 && data.steps[a - 1].l === l) a--;
    while (b < data.steps.length && data.steps[b].l === l) b++;
    const x = Math.max(gutter, v.x(a)), w = Math.min(v.width, v.x(b)) - x;
    c.fillStyle = colour(l % 2 ? "line" : "soft");
    c.fillRect(x, 4, w, 16);
    names.push([l, x, w]);
    i = b;
  }
  c.fillStyle = muted;
  let free = gutter;
  for (const [l, x, w] of names) free = bandName(c, l, x, w, 12.5, free);
  c.restore();
}

function rectAt(x, y, v, rects, peak) {
  const t = v.t(x);
  return x < gutter || y < mapTop ? null : rects.find((r) => t >= r.from && t < r.to && y >= mapY(r.at + r.size, peak) && y <= mapY(r.at, peak));
}

function aboutMemory(x, y, v, rects, live, peak) {
  const i = Math.floor(v.t(x));
  if (x < gutter || i < 0 || i >= live.length) return null;
  const r = rectAt(x, y, v, rects, peak);
  if (r) return [r.names.length > 3 ? `${r.name} and ${r.names.length - 1} more in its place` : r.names.join(", "), `${bytes(r.size)}: ${number(r.per)} bytes per ${r.region}, at ${number(r.at)}`, `from ${data.steps[r.from].n}`, `to ${data.steps[r.to - 1].n}`];
  const held = rects.filter((r) => i >= r.from && i < r.to).sort((a, b) => b.size - a.size);
  return [data.steps[i].n, `${bytes(live[i])} live of ${bytes(peak)}`, ...held.slice(0, 5).map((r) => `${bytes(r.size)}  ${r.name}`), held.length > 5 ? `and ${held.length - 5} more` : ""].filter(Boolean);
}

// memoryBars lay what ranks hold side by side, equal ranks once.
function memoryBars(run) {
  const parts = [["weights", "multiply", (m) => m.weights], ["constants", "other", (m) => m.constants], ["states", "mix", (m) => m.state * run.sequences],
    ["caches", "relayout", (m) => m.cache * run.cached], ["activations", "comm", (m) => arena(m, run)]];
  const rows = data.memory.map((m, i) => ({ m, ranks: [i] })).filter((r) => r.m.same < 0);
  data.memory.forEach((m, i) => { if (m.same >= 0) rows.find((r) => r.ranks[0] === m.same).ranks.push(i); });
  const sum = (m) => parts.reduce((s, [, , f]) => s + f(m), 0), most = Math.max(1, ...rows.map((r) => sum(r.m)));
  const cells = rows.flatMap(({ m, ranks }) => {
    const track = el("div", { class: "track" }, parts.map(([name, c, f]) => {
      const i = el("i", { title: `${name}: ${number(f(m))} bytes` });
      i.style.width = `${100 * f(m) / most}%`;
      i.style.background = `var(--${c})`;
      return f(m) > 0 && i;
    }));
    return [el("span", {}, ranks.length > 1 ? `ranks ${ranges(ranks)}` : `rank ${ranks[0]}`), track, el("b", {}, bytes(sum(m)))];
  });
  const m = rows[0].m;
  return el("div", {}, el("div", { class: "bars" }, cells), legend(parts.filter(([, , f]) => f(m) > 0).map(([name, c, f]) => [c, `${name} ${bytes(f(m))}`])));
}
