// A section of a graph as a drawing: layers of nodes from top to bottom, by the longest
// way from what comes in.

const boxHeight = 36, gapX = 18, gapY = 30;

function pictures(stage, before, section, rows) {
  const marks = new Map(); // by name of the first result, on each side
  const first = (s, i) => inSection(section, resultName(s, section, nodesOf(s, section)[i].r[0]));
  for (const [what, left, right] of rows) {
    if (what === 1) { marks.set("l" + first(before, left), "changed"); marks.set("r" + first(stage, right), "changed"); }
    if (what === 2) marks.set("l" + first(before, left), "removed");
    if (what === 3) marks.set("r" + first(stage, right), "added");
  }
  const side = (s, mark) => el("div", {}, picture(s, section, (name) => marks.get(mark + name)));
  if (!before) return [el("div", { class: "pictures one" }, side(stage, "r"))];
  return [el("div", { class: "columns" }, el("span", {}, `before: ${before.pass || "the model"}`), el("span", {}, `after ${stage.pass}`)),
    el("div", { class: "pictures" }, side(before, "l"), side(stage, "r"))];
}

function picture(stage, section, mark) {
  const g = layered(stage, section);
  place(g);
  const width = Math.max(120, ...g.nodes.map((n) => n.x + n.w)) + 8, height = Math.max(60, ...g.nodes.map((n) => n.y + boxHeight)) + 8;
  const edges = g.edges.map(([a, b, kind]) => svg("path", { class: `edge ${kind}`, d: curve(a, b) }));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${data.sections[section]} as a graph` },
    ...edges, ...g.nodes.map((n) => nodeBox(n, mark(n.name))));
}

// layered collects the nodes that compute, and what comes in from elsewhere; parameters and
// states are lines of the box that takes them.
function layered(stage, section) {
  const nodes = [], at = new Map(), edges = [];
  const add = (n) => { nodes.push(n); return n; };
  for (const n of nodesOf(stage, section)) {
    const c = data.ops[n.o].class;
    if (c === "leaf" && n.o !== "input") continue;
    const box = add({ op: n.o, name: inSection(section, resultName(stage, section, n.r[0])), full: resultName(stage, section, n.r[0]), type: n.r[0][1], layout: n.r[0][2], kind: n.r[0][3], class: c, row: 0, takes: [] });
    for (const x of n.a || []) {
      const a = argument(stage, section, x);
      let from = at.get(a.name);
      if (!from && a.shown.startsWith("%/")) { // of another section
        from = add({ op: "", name: a.name, type: "", layout: "", kind: "", class: "outside", row: 0, takes: [] });
        at.set(a.name, from);
      }
      if (!from) { box.takes.push(a.shown); continue; }
      box.row = Math.max(box.row, from.row + 1);
      edges.push([from, box, from.kinds ? from.kinds.get(a.name) : from.kind]);
    }
    box.kinds = new Map(n.r.map((r) => [resultName(stage, section, r), r[3]]));
    for (const r of n.r) at.set(resultName(stage, section, r), box);
  }
  for (const n of nodes) if (n.class === "outside") n.row = Math.max(0, Math.min(...edges.filter((e) => e[0] === n).map((e) => e[1].row)) - 1);
  for (const n of nodes) n.w = Math.max(84, 7 * Math.max(title(n).length, n.type.length * 0.9 + (n.layout ? 2 : 0)) + 16);
  return { nodes, edges };
}

const title = (n) => n.class === "outside" ? n.name : `${n.op}  ${n.name.replace(/^mixer\./, "")}`;

// place orders the nodes of each row by where what they take stands, and then centres them.
function place(g) {
  const rows = [];
  for (const n of g.nodes) (rows[n.row] = rows[n.row] || []).push(n);
  const parents = new Map(g.nodes.map((n) => [n, []])), children = new Map(g.nodes.map((n) => [n, []]));
  for (const [a, b] of g.edges) { parents.get(b).push(a); children.get(a).push(b); }
  const spread = (row) => { let x = 0; for (const n of row) { n.x = x; x += n.w + gapX; } const off = x / 2; for (const n of row) n.x -= off; };
  const middle = (list, n) => list.length ? list.reduce((s, p) => s + p.x + p.w / 2, 0) / list.length : n.x + n.w / 2;
  rows.forEach(spread);
  for (let sweep = 0; sweep < 8; sweep++) {
    const near = sweep % 2 ? children : parents;
    const list = sweep % 2 ? [...rows].reverse() : rows;
    for (const row of list) {
      if (!row) continue;
      row.forEach((n) => { n.want = middle(near.get(n), n); });
      row.sort((a, b) => a.want - b.want);
      settle(row);
    }
  }
  const left = Math.min(...g.nodes.map((n) => n.x), 0);
  for (const n of g.nodes) { n.x += 4 - left; n.y = 4 + n.row * (boxHeight + gapY); }
}

// settle puts the nodes of a row as near as they can be to where they want to be.
function settle(row) {
  let x = -Infinity;
  for (const n of row) { n.x = Math.max(x, n.want - n.w / 2); x = n.x + n.w + gapX; }
  const off = row.reduce((s, n) => s + n.want - n.x - n.w / 2, 0) / row.length;
  for (const n of row) n.x += off;
}

function curve(a, b) {
  const x1 = a.x + a.w / 2, y1 = a.y + boxHeight, x2 = b.x + b.w / 2, y2 = b.y, bend = Math.min(60, (y2 - y1) / 2);
  return `M${x1.toFixed(1)} ${y1}C${x1.toFixed(1)} ${y1 + bend} ${x2.toFixed(1)} ${y2 - bend} ${x2.toFixed(1)} ${y2}`;
}

const flags = { added: "+", removed: "−", changed: "~" };

function nodeBox(n, mark) {
  if (n.class === "outside") {
    return svg("g", {}, svg("text", { class: "muted", x: n.x + n.w / 2, y: n.y + 22, "text-anchor": "middle", fill: "currentColor", "font-size": 11 }, n.name));
  }
  const name = n.full;
  const g = svg("g", {
    class: `nodebox ${n.class} ${n.kind} ${mark || ""} ${name === state.node ? "chosen" : ""}`, transform: `translate(${n.x.toFixed(1)} ${n.y})`, tabindex: 0, role: "button",
    "data-node": name, "aria-label": `${n.op} ${name}`, onclick: () => choose(name), onkeydown: (e) => { if (e.key === "Enter") choose(name); },
  });
  g.append(svg("rect", { width: n.w, height: boxHeight, rx: 6 }), svg("text", { x: n.w / 2, y: 15, "text-anchor": "middle" }, title(n)),
    svg("text", { class: "sub", x: n.w / 2, y: 29, "text-anchor": "middle" }, n.type));
  if (mark) g.append(svg("text", { class: "flag", x: n.w - 12, y: 14 }, flags[mark]));
  return g;
}
