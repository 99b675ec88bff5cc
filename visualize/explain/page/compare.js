// Two sides: the figures of each, their timelines on one scale, and their collectives.

const figuresOf = (d) => {
  const memory = d.memory.map((m) => m.same < 0 ? m : d.memory[m.same]), most = (f) => Math.max(...memory.map(f));
  return [
    ["collectives in a step", d.collectives.filter((c) => c.k !== "send").length, number],
    ["weights of a rank", most((m) => m.weights + m.constants), bytes],
    ["states of a sequence, of a rank", most((m) => m.state), bytes],
    ["KV cache of a token, of a rank", most((m) => m.cache), bytes],
    ...d.runs.flatMap((r, i) => [
      [`${r.name}: until the last rank is done`, r.end, seconds],
      [`${r.name}: in collectives that nothing hides`, r.exposed, seconds],
      [`${r.name}: sent by a rank`, total(d.collectives, "s", i), bytes],
      [`${r.name}: activations of a rank`, most((m) => arena(m, r)), bytes],
    ]),
  ];
};

views.compare = {
  title: "Compare",
  show(main) {
    const [a, b] = sides.map(figuresOf), box = el("div", { class: "canvas" });
    const run = Math.min(state.run, ...sides.map((d) => d.runs.length - 1));
    main.append(
      el("div", { class: "head" }, el("h2", {}, `${sideName(sides[0])} and ${sideName(sides[1])}`),
        el("p", {}, `The same model and batch, compiled twice. The buttons beside the model's name choose the side that the other views show.`)),
      el("section", { class: "panel sides" }, el("table", { id: "figures" },
        el("thead", {}, el("tr", {}, el("th", {}, ""), sides.map((d) => el("th", { scope: "col", class: "n" }, sideName(d))), el("th", { scope: "col", class: "n" }, "second / first"))),
        el("tbody", {}, a.map(([name, x, text], i) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "n" }, text(x)), el("td", { class: "n" }, text(b[i][1])),
          el("td", { class: "n" }, x && b[i][1] ? digits(b[i][1] / x) : "–")))))));
    if (run < 0) return {};
    let view;
    main.append(el("div", { class: "bar" }, choices("Run", data.runs.map((r) => r.name), run, (i) => go({ run: i })), zoomButtons(() => view)),
      el("section", { class: "panel" }, box, legend(workLegend)), el("div", { class: "pair" }, sides.map((d) => sites(d, run))));
    const rows = sides.map((d, i) => ({ d, run: d.runs[run], y: axis + i * 104, events: d.runs[run].ranks[0] }));
    [laneHeight, commHeight] = [46, 28];
    view = new canvasView(box, {
      all: Math.max(...rows.map((r) => r.run.end)), height: axis + 208 + overview, label: `Timelines of ${rows[0].run.name}, of rank 0 of both sides`,
      draw: (c, v) => drawSides(c, v, rows),
      hover: (x, y, v) => { const hit = sideEvent(rows, x, y, v); return hit && [hit.st.n, hit.st.o, `${seconds(hit.took)}, from ${seconds(hit.at)}`]; },
      pick: () => {},
    });
    return { key: (e) => view.key(e), leave: () => view.leave(), paint: () => view.paint() };
  },
};

// eachEvent calls f for the events of a side's rank 0, with their place on the canvas.
function eachEvent(row, f) {
  const e = row.events;
  for (let i = 0; e && i < e.i.length; i++) {
    const st = row.d.steps[e.i[i]], comm = st.s === "comm";
    f({ st, at: e.t[i] / 1e9, took: e.d[i] / 1e9, top: row.y + (comm ? laneHeight + 3 : 0), height: comm ? commHeight : laneHeight });
  }
}

function sideEvent(rows, x, y, v) {
  let hit = null;
  for (const row of rows) eachEvent(row, (e) => { if (y >= e.top && y <= e.top + e.height && x >= v.x(e.at) - 1 && x <= v.x(e.at + e.took) + 1) hit = e; });
  return hit;
}

function drawSides(c, v, rows) {
  const muted = colour("muted"), fills = workColours();
  ticks(c, v, rows[0].run, muted, colour("line"));
  for (const row of rows) {
    c.save();
    c.beginPath(); c.rect(gutter, 0, v.width - gutter, v.height); c.clip();
    c.fillStyle = colour("soft");
    c.fillRect(gutter, row.y, v.width, laneHeight);
    c.fillRect(gutter, row.y + laneHeight + 3, v.width, commHeight);
    eachEvent(row, (e) => {
      if (e.at + e.took < v.from || e.at > v.to) return;
      const x = v.x(e.at), w = Math.max(0.6, v.x(e.at + e.took) - x);
      c.fillStyle = fills(e.st.o, row.d.ops);
      c.fillRect(x, e.top, w > 3 ? w - 0.8 : w, e.height);
      if (w > 44) label(c, x, w, e.top + e.height / 2, [e.st.n, e.st.o], "#fff");
    });
    c.restore();
    c.fillStyle = colour("ink");
    c.fillText(count(row.d.ranks, "rank"), 0, row.y + 14);
    c.fillStyle = muted;
    c.fillText(row.d.ranks > 1 ? row.d.strategy : "", 0, row.y + 30);
  }
  bird(c, v, rows[0].run, colour("line"), muted);
}

// sites lists the collectives of a side, those of equal layers as one.
function sites(d, run) {
  const by = new Map();
  for (const c of d.collectives) {
    const site = c.n.replace(/^layers\.\d+\./, "layers.*."), key = `${c.k} ${site}`, s = by.get(key) || { c, site, times: 0, sent: 0 };
    s.times++;
    s.sent += c.s[run] || 0;
    by.set(key, s);
  }
  return el("section", { class: "panel sides" }, el("h3", {}, sideName(d)), by.size ? el("table", {},
    el("thead", {}, el("tr", {}, ["collective", "", "times", "sent by a rank"].map((t, i) => el("th", { scope: "col", class: i > 1 ? "n" : "" }, t)))),
    el("tbody", {}, [...by.values()].map((s) => el("tr", {}, el("td", {}, s.c.k), el("td", {}, s.site), el("td", { class: "n" }, number(s.times)), el("td", { class: "n" }, bytes(s.sent)))))) : el("p", { class: "muted" }, "No collectives."));
}
