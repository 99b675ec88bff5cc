// The steps of each rank over time: a row for kernels and one for collectives.

const gutter = 118, rankGap = 16, axis = 42, overview = 22;
let laneHeight = 24, commHeight = 16;

// canvasView is a picture with an axis that is zoomed and moved by mouse, wheel, touch
// and keys. What it shows lies between from and to of all, in units of its own.
class canvasView {
  constructor(box, { all, height, draw, hover, pick, label }) {
    Object.assign(this, { all: Math.max(all, 1e-12), height, draw, hover, pick, from: 0, to: Math.max(all, 1e-12) });
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
    box.append(this.canvas);
    this.listen();
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(box);
    this.paint();
  }

  get width() { return this.canvas.clientWidth || 600; }
  x(t) { return gutter + (t - this.from) / (this.to - this.from) * (this.width - gutter - 8); }
  t(x) { return this.from + (x - gutter) / (this.width - gutter - 8) * (this.to - this.from); }

  paint() {
    const scale = devicePixelRatio || 1;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const c = this.canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.draw(c, this);
    this.canvas.dataset.from = this.from;
    this.canvas.dataset.to = this.to;
  }

  look(from, to) {
    const size = Math.min(this.all, Math.max(to - from, this.all * 1e-6));
    this.from = Math.max(0, Math.min(from, this.all - size));
    this.to = this.from + size;
    this.paint();
  }

  // show brings it into the window where the panel leaves little room.
  show() { if (innerWidth <= 1180) this.canvas.scrollIntoView({ block: "start" }); }

  zoom(by, at) {
    const t = at === undefined ? (this.from + this.to) / 2 : at;
    this.look(t - (t - this.from) * by, t + (this.to - t) * by);
  }

  move(share) { const d = (this.to - this.from) * share; this.look(this.from + d, this.to + d); }

  listen() {
    const c = this.canvas;
    let drag = null;
    const at = (e) => { const r = c.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    c.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey && Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.move(e.deltaX / this.width);
      else if (e.shiftKey) this.move(e.deltaY / this.width);
      else this.zoom(Math.exp(e.deltaY / 400), this.t(at(e)[0]));
      e.preventDefault();
    }, { passive: false });
    c.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, from: this.from, to: this.to, moved: false }; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      const [x, y] = at(e);
      if (drag) {
        drag.moved = drag.moved || Math.abs(e.clientX - drag.x) > 3;
        const d = (drag.x - e.clientX) / (this.width - gutter - 8) * (drag.to - drag.from);
        if (drag.moved) { c.classList.add("dragging"); this.look(drag.from + d, drag.to + d); hideTip(); }
      } else {
        const lines = this.hover(x, y, this);
        lines ? tip(e.clientX, e.clientY, ...lines) : hideTip();
      }
    });
    c.addEventListener("pointerup", (e) => {
      if (drag && !drag.moved) this.pick(...at(e), this);
      drag = null;
      c.classList.remove("dragging");
    });
    c.addEventListener("pointerleave", hideTip);
    c.addEventListener("dblclick", (e) => this.zoom(0.25, this.t(at(e)[0])));
  }

  key(e) {
    switch (e.key) {
      case "+": case "=": this.zoom(0.6); break;
      case "-": this.zoom(1 / 0.6); break;
      case "0": this.look(0, this.all); break;
      case "ArrowLeft": this.move(-0.2); break;
      case "ArrowRight": this.move(0.2); break;
      default: return false;
    }
    return true;
  }

  leave() { this.observer.disconnect(); }
}

// zoomButtons do what the keys do.
function zoomButtons(view) {
  const b = (text, label, f) => el("button", { type: "button", "aria-label": label, title: label, onclick: f }, text);
  return el("span", { class: "row" }, b("+", "Zoom in (+)", () => view().zoom(0.6)), b("−", "Zoom out (-)", () => view().zoom(1 / 0.6)), b("All", "Show all (0)", () => view().look(0, view().all)));
}

// rankEvents are the events of a rank: [step, start, took], in seconds. Of a run without a
// clock, each step takes one, and begins when what it waits for has ended.
function rankEvents(run, rank) {
  run.events = run.events || [];
  if (run.ranks.length && run.ranks[rank].same >= 0) return rankEvents(run, run.ranks[rank].same);
  if (!run.events[rank]) {
    const r = run.ranks[rank];
    run.events[rank] = r ? r.i.map((s, i) => ({ s, at: r.t[i] / 1e9, took: r.d[i] / 1e9 })) : inOrder();
  }
  return run.events[rank];
}

function inOrder() {
  const free = {}, ends = [];
  return data.steps.map((st, s) => {
    const at = Math.max(free[st.s] || 0, ...(st.a || []).map((i) => ends[i]));
    free[st.s] = ends[s] = at + 1;
    return { s, at, took: 1 };
  });
}

const lengthOf = (run) => Math.max(run.end, run.measured || 0) || Math.max(1, ...rankEvents(run, 0).map((e) => e.at + e.took));

// rankText names ranks; those from data.ranks on are the measured ones.
function rankText(list) {
  const real = list.map((r) => r % data.ranks);
  return real.length > 1 ? `ranks ${ranges(real)}` : `rank ${real[0]}`;
}

const timeText = (run, t) => run.end ? seconds(t) : `step ${Math.round(t)}`;

// rankRows are the rows that are drawn: ranks with equal times are one, unless unfolded.
function rankRows(run) {
  const rows = [];
  for (let rank = 0; rank < Math.max(data.ranks, run.ranks.length); rank++) {
    const same = run.ranks.length ? run.ranks[rank].same : rank ? 0 : -1;
    if (same >= 0 && !state.allRanks) rows.find((r) => r.rank === same).ranks.push(rank);
    else rows.push({ rank, ranks: [rank] });
  }
  [laneHeight, commHeight] = rows.length <= 2 ? [46, 28] : rows.length <= 4 ? [32, 20] : [24, 15];
  let y = axis;
  for (const r of rows) { r.y = y; y += laneHeight + 3 + commHeight + rankGap; }
  return { rows, height: y + overview };
}

views.timeline = {
  title: "Timeline",
  show(main) {
    if (!data.runs.length) { main.append(el("p", {}, "No runs.")); return {}; }
    const run = data.runs[state.run];
    const { rows, height } = rankRows(run);
    let view;
    main.append(
      el("div", { class: "head" }, el("h2", {}, `Timeline: ${run.name}`), el("span", { class: "badge" }, run.clock || "no clock: steps in their order"), run.measured && el("span", { class: "badge" }, `below: ${run.measured_on}`),
        el("p", {}, `${run.about}. Wheel or + and − zoom, dragging or arrow keys move, a click says what a step is; n and p go from step to step.`)),
      el("div", { class: "bar" }, choices("Run", data.runs.map((r) => r.name), state.run, (i) => go({ run: i })),
        data.ranks > 1 && el("button", { type: "button", id: "allranks", "aria-pressed": String(state.allRanks), title: "f", onclick: () => go({ allRanks: !state.allRanks }) }, "Each rank separately"),
        zoomButtons(() => view)));
    const box = el("div", { class: "canvas" });
    main.append(el("section", { class: "panel" }, box, legend(workLegend)), timelineSums(run));
    view = new canvasView(box, {
      all: lengthOf(run), height, label: `Timeline of ${run.name}`,
      draw: (c, v) => drawTimeline(c, v, run, rows),
      hover: (x, y, v) => { const e = eventAt(run, rows, x, y, v); return e && about(run, e); },
      pick: (x, y, v) => { const e = eventAt(run, rows, x, y, v); if (e) choose(data.steps[e.s].n); },
    });
    const to = () => {
      const e = rankEvents(run, 0).find((e) => data.steps[e.s].n === state.node);
      if (e && (view.x(e.at) < gutter || view.x(e.at + e.took) > view.width || view.x(e.at + e.took) - view.x(e.at) < 8)) view.look(e.at - e.took * 14, e.at + e.took * 15);
      else view.paint();
      if (e) view.show();
    };
    if (state.node && stepIndex.has(state.node)) to();
    return {
      key: (e) => {
        if (e.key === "f") { go({ allRanks: !state.allRanks }); return true; }
        if (e.key === "n" || e.key === "p") { nextStep(run, e.key === "n" ? 1 : -1); return true; }
        return view.key(e);
      },
      chosen: to, leave: () => view.leave(), paint: () => view.paint(),
    };
  },
};

function nextStep(run, by) {
  const events = rankEvents(run, 0);
  const i = events.findIndex((e) => data.steps[e.s].n === state.node);
  const e = events[i < 0 ? 0 : Math.max(0, Math.min(events.length - 1, i + by))];
  if (e) choose(data.steps[e.s].n);
}

function legend(entries) {
  return el("div", { class: "legend" }, entries.map(([name, text]) => { const i = el("i", {}); i.style.background = `var(--${name})`; return el("span", {}, i, text); }));
}

function timelineSums(run) {
  if (!run.end) return "";
  return el("div", { class: "cards" }, run.measured && card(seconds(run.measured), `until the last rank is done (${run.measured_on}), ${digits(run.measured / run.end)} times the prediction`), card(seconds(run.end), `until the last rank is done (${run.clock})`),
    data.ranks > 1 && card(seconds(run.comm), "rank 0 is at collectives"), data.ranks > 1 && card(`${seconds(run.exposed)} (${percent(run.exposed / run.end)})`, "of that, no kernel runs beside"));
}

const workLegend = [["multiply", "products with weights"], ["mix", "mixes tokens: convolution, scan, attention"], ["other", "other kernels"], ["comm", "collectives"], ["relayout", "another layout"]];

// workColours gives the colour of an operation.
function workColours() {
  const of = { multiply: colour("multiply"), mix: colour("mix"), other: colour("other") }, comm = colour("comm"), relayout = colour("relayout");
  return (op, ops = data.ops) => ops[op].class === "collective" ? comm : ops[op].class === "relayout" ? relayout : of[ops[op].work];
}

const lane = (row, step) => step.s === "comm" ? [row.y + laneHeight + 3, commHeight] : [row.y, laneHeight];

function eventAt(run, rows, x, y, v) {
  if (x < gutter) return null;
  const t = v.t(x), slack = v.t(x + 2) - t;
  for (const row of rows) {
    let best = null;
    for (const e of rankEvents(run, row.rank)) {
      const [top, h] = lane(row, data.steps[e.s]);
      if (y < top || y > top + h || t < e.at - slack || t > e.at + e.took + slack) continue;
      if (!best || Math.abs(t - e.at - e.took / 2) < Math.abs(t - best.at - best.took / 2)) best = { ...e, rank: row.rank };
    }
    if (best) return best;
  }
  return null;
}

function about(run, e) {
  const st = data.steps[e.s];
  const c = data.collectives[collectiveIndex.get(st.n)];
  return [st.n, st.o + (st.t ? ` → ${st.t}` : ""), `${timeText(run, e.took)}${run.end ? `, from ${seconds(e.at)}` : ""} · ${rankText([e.rank])}${e.rank >= data.ranks ? ", measured" : ""}`, c && st.s === "comm" ? `${bytes(c.p[state.run])} · ${c.r}` : ""].filter(Boolean);
}

function drawTimeline(c, v, run, rows) {
  const ink = colour("ink"), muted = colour("muted"), line = colour("line");
  const fills = workColours(), panel = colour("panel");
  ticks(c, v, run, muted, line);
  layerBands(c, v, run, rows, muted);
  c.save();
  c.beginPath();
  c.rect(gutter, 0, v.width - gutter, v.height);
  c.clip();
  for (const row of rows) {
    const [commTop] = lane(row, { s: "comm" });
    c.fillStyle = colour("soft");
    c.fillRect(gutter, row.y, v.width, laneHeight);
    c.fillRect(gutter, commTop, v.width, commHeight);
    for (const e of rankEvents(run, row.rank)) {
      if (e.at + e.took < v.from || e.at > v.to) continue;
      const st = data.steps[e.s], op = data.ops[st.o], x = v.x(e.at), w = Math.max(0.6, v.x(e.at + e.took) - x);
      const [top, h] = lane(row, st);
      c.fillStyle = fills(st.o);
      c.fillRect(x, top, w > 3 ? w - 0.8 : w, h);
      if (st.n === state.node) { c.strokeStyle = ink; c.lineWidth = 2; c.strokeRect(x - 1, top - 1, Math.max(3, w) + 1, h + 2); }
      if (w > 44) label(c, x, w, top + h / 2, [shortName(st.n, st.l).replace(/^mixer\./, ""), st.o], op.class === "collective" || op.work !== "other" ? "#fff" : panel === "#ffffff" ? "#16181c" : "#fff");
    }
    waits(c, v, run, row, ink);
  }
  c.restore();
  c.fillStyle = ink;
  for (const row of rows) {
    c.fillText(rankText(row.ranks), 0, row.y + laneHeight / 2);
    c.fillStyle = muted;
    c.fillText(row.rank >= data.ranks ? "measured" : data.ranks > 1 ? "comm" : "", 14, row.y + laneHeight + 3 + commHeight / 2);
    c.fillStyle = ink;
  }
  bird(c, v, run, line, muted);
}

// label writes as much as there is room for.
function label(c, x, w, y, texts, fill) {
  c.fillStyle = fill;
  const left = Math.max(x, gutter), room = Math.min(Math.min(x + w, c.canvas.clientWidth) - left, 400) - 8;
  for (const t of [texts.join(" · "), texts[0]]) {
    if (c.measureText(t).width < room) { c.fillText(t, left + 4, y + 0.5); return; }
  }
}

// waits draws what the chosen step waited for, and arrows between streams when near.
function waits(c, v, run, row, ink) {
  const events = rankEvents(run, row.rank);
  if (!row.by) row.by = new Map(events.map((e) => [e.s, e]));
  const near = (v.to - v.from) < 90 * v.all / Math.max(90, events.length);
  for (const e of events) {
    const st = data.steps[e.s];
    if (!st.a || e.at + e.took < v.from || e.at > v.to || !(near || st.n === state.node)) continue;
    for (const i of st.a) {
      const from = row.by.get(i);
      if (!from) continue;
      const [t1, h1] = lane(row, data.steps[i]), [t2, h2] = lane(row, st);
      const x1 = v.x(from.at + from.took), x2 = v.x(e.at), y1 = t1 < t2 ? t1 + h1 : t1, y2 = t1 < t2 ? t2 : t2 + h2;
      c.strokeStyle = ink;
      c.globalAlpha = st.n === state.node ? 1 : 0.45;
      c.lineWidth = 1;
      c.beginPath(); c.moveTo(x1 - 1, t1 < t2 ? y1 - 6 : y1 + 6); c.lineTo(x2 + 1, y2); c.stroke();
      c.globalAlpha = 1;
    }
  }
}

function ticks(c, v, run, muted, line) {
  const span = v.to - v.from, want = (v.width - gutter) / 110;
  let step = 10 ** Math.floor(Math.log10(span / want));
  for (const m of [1, 2, 5, 10]) if (span / (step * m) <= want) { step *= m; break; }
  c.lineWidth = 1;
  for (let t = Math.ceil(v.from / step) * step; t <= v.to; t += step) {
    const x = Math.round(v.x(t)) + 0.5;
    c.strokeStyle = line;
    c.beginPath(); c.moveTo(x, 14); c.lineTo(x, v.height - overview); c.stroke();
    c.fillStyle = muted;
    const text = run.end ? axisTime(t, step) : number(Math.round(t)), w = c.measureText(text).width;
    c.fillText(text, x + 3 + w > v.width ? x - 3 - w : x + 3, 7);
  }
}

// axisTime writes a tick with as many digits as the step between ticks takes.
function axisTime(t, step) {
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([s]) => t >= s * 0.9999 || s === 1e-9);
  return t === 0 ? "0" : `${(t / size).toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9))))} ${unit}`;
}

// layerBands names the layers above the first row.
function layerBands(c, v, run, rows, muted) {
  if (!run.bands) {
    run.bands = [];
    for (const e of rankEvents(run, 0)) {
      const l = data.steps[e.s].l, b = run.bands[run.bands.length - 1];
      if (data.steps[e.s].s === "comm" && b && b.l === l) { b.to = Math.max(b.to, e.at + e.took); continue; }
      if (b && b.l === l) b.to = Math.max(b.to, e.at + e.took);
      else run.bands.push({ l, from: e.at, to: e.at + e.took });
    }
  }
  const names = [];
  c.save();
  c.beginPath(); c.rect(gutter, 0, v.width - gutter, v.height); c.clip();
  run.bands.forEach((b, i) => {
    if (b.to < v.from || b.from > v.to) return;
    const x = Math.max(v.x(b.from), gutter - 1), w = Math.min(v.x(b.to), v.width) - x;
    c.fillStyle = colour(i % 2 ? "line" : "soft");
    c.fillRect(x, 18, w, 16);
    names.push([b.l, x, w]);
  });
  c.fillStyle = muted;
  let free = gutter;
  for (const [l, x, w] of names) free = bandName(c, l, x, w, 26.5, free);
  c.restore();
}

// bandName names a layer: where there is little room every fifth or tenth, by its number, and
// nothing before free, where the name before it ends. It returns where its own ends.
function bandName(c, section, x, w, y, free) {
  let text = data.sections[section];
  if (c.measureText(text).width >= w - 6) {
    if (!isLayer(section)) return free;
    const n = layerOf(section), every = [1, 2, 5, 10, 20, 50, 100].find((k) => k * w > 26) || 100;
    if (n % every !== 0) return free;
    text = String(n);
  }
  if (x + 3 < free) return free;
  c.fillText(text, x + 3, y);
  return x + 3 + c.measureText(text).width + 4;
}

// bird is the whole run, and what of it is shown.
function bird(c, v, run, line, muted) {
  const y = v.height - overview + 8, w = v.width - gutter - 8, x = (t) => gutter + t / v.all * w;
  c.fillStyle = line;
  c.fillRect(gutter, y, w, 8);
  c.fillStyle = colour("accent");
  c.fillRect(x(v.from), y, Math.max(3, x(v.to) - x(v.from)), 8);
  c.fillStyle = muted;
  c.fillText("shown of all", 0, y + 4);
}
