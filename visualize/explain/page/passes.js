// The graph after every pass beside the one before it.

const kindsOfRow = ["same", "change", "cut", "add", "moved", "moved"];

views.passes = {
  title: "Passes",
  show(main) {
    const list = el("nav", { "aria-label": "Passes" }, data.stages.map((s, i) => el("button", {
      type: "button", "aria-selected": String(i === state.pass), "data-pass": i, onclick: () => go({ pass: i }),
    }, el("span", {}, s.pass || "model"), counts(s))));
    const body = el("div", { class: "body" });
    main.append(el("div", { class: "passes" }, list, body));
    drawPass(body);
    const turn = (by) => go({ pass: Math.max(0, Math.min(data.stages.length - 1, state.pass + by)) });
    return {
      key(e) {
        switch (e.key) {
          case "j": case "ArrowDown": turn(1); break;
          case "k": case "ArrowUp": turn(-1); break;
          case "]": case "ArrowRight": otherLayer(1); break;
          case "[": case "ArrowLeft": otherLayer(-1); break;
          case "f": foldAll(); break;
          case "c": go({ brief: !state.brief }); break;
          case "d": go({ drawing: !state.drawing }); break;
          default: return false;
        }
        return true;
      },
    };
  },
};

function otherLayer(by) {
  const to = state.layer + by;
  if (isLayer(to)) go({ layer: to });
}

function foldAll() {
  const groups = groupsOf(data.stages[state.pass]).filter((g) => g.sections.length > 1);
  const any = groups.some((g) => state.unfolded.has(g.key));
  for (const g of groups) any ? state.unfolded.delete(g.key) : state.unfolded.add(g.key);
  go({});
}

// groupsOf puts sections together that changed in the same way.
function groupsOf(stage) {
  const groups = new Map();
  stage.of.forEach(([kind], section) => {
    const rows = stage.diff ? stage.diff.of[section] : kind;
    const key = isLayer(section) ? `l${rows}` : `s${section}`;
    if (!groups.has(key)) groups.set(key, { key, sections: [] });
    groups.get(key).sections.push(section);
  });
  return [...groups.values()].sort((a, b) => a.sections[0] - b.sections[0]);
}

function rowsOf(stage, section) {
  if (stage.diff) return stage.diff.pairs[stage.diff.of[section]];
  return nodesOf(stage, section).map((_, i) => [0, i, i]);
}

function drawPass(body) {
  const stage = data.stages[state.pass], before = data.stages[state.pass - 1];
  body.append(
    el("div", { class: "head" }, el("h2", {}, stage.pass ? `${stage.pass}` : "the model"), counts(stage),
      el("span", { class: "badge" }, `stage ${stage.stage}`), el("p", {}, stage.doc || "The graph as its family defines it, before any pass.")));
  const layersChosen = last > 1 && el("span", { class: "row" }, el("label", { for: "layer" }, "Layer shown"),
    el("button", { type: "button", title: "[", "aria-label": "Previous layer", onclick: () => otherLayer(-1) }, "‹"),
    el("input", { id: "layer", type: "number", min: layerOf(1), max: layerOf(last - 1), value: layerOf(Math.max(1, state.layer)), onchange: (e) => chooseLayer(e.target.value) }),
    el("button", { type: "button", title: "]", "aria-label": "Next layer", onclick: () => otherLayer(1) }, "›"));
  body.append(el("div", { class: "bar" }, choices("Form", ["Text", "Drawing"], state.drawing ? 1 : 0, (i) => go({ drawing: i === 1 })), layersChosen,
    el("label", {}, el("input", { type: "checkbox", id: "brief", checked: state.brief, onchange: (e) => go({ brief: e.target.checked }) }), "Changes only"),
    last > 2 && el("button", { type: "button", id: "foldall", title: "f", onclick: foldAll }, "Fold or unfold equal layers")));
  if (last > 1) body.append(el("div", { class: "bar" }, strip(stage, state.layer, (s) => go({ layer: s }))));
  for (const g of groupsOf(stage)) {
    if (g.sections.length > 1 && state.unfolded.has(g.key)) for (const s of g.sections) body.append(group(stage, before, { key: g.key, sections: [s], of: g }));
    else body.append(group(stage, before, g));
  }
}

function chooseLayer(n) {
  const s = data.sections.indexOf(`layers.${n}`);
  if (s > 0) go({ layer: s });
}

// group shows one section of those that changed in the same way.
function group(stage, before, g) {
  const section = g.sections.includes(state.layer) ? state.layer : g.sections[0];
  const rows = rowsOf(stage, section);
  const n = (k) => rows.filter((r) => kindsOfRow[r[0]] === k && r[0] !== 4).length * g.sections.length;
  const [changed, cut, add, moved] = ["change", "cut", "add", "moved"].map(n);
  const any = changed + cut + add + moved > 0;
  const many = g.sections.length > 1;
  const title = many ? `${count(g.sections.length, "equal layer")}: ${ranges(g.sections.map(layerOf))}` : data.sections[section];
  const badge = (n, sign, kind) => n > 0 && el("span", { class: `badge ${kind}` }, `${sign}${number(n)}`);
  const key = `${state.pass} ${section} ${g.key}`;
  const open = state.opened.has(key) || !state.opened.has("-" + key) && (isLayer(section) ? g.sections.includes(state.layer) : any || !stage.diff);
  const content = el("div", {});
  const box = el("details", { class: `group${stage.diff ? "" : " one"}`, open, "data-sections": g.sections.join(" ") },
    el("summary", {}, el("span", {}, title), many && el("span", { class: "badge" }, `shown: ${data.sections[section]}`),
      badge(add, "+", "add"), badge(cut, "−", "cut"), badge(changed, "~", "change"), badge(moved, "↕", ""), stage.diff && !any && el("span", { class: "badge" }, "unchanged"),
      el("span", { class: "right" },
        (many || g.of) && el("button", { type: "button", "data-fold": g.key, onclick: (e) => { e.preventDefault(); toggle(state.unfolded, g.key); go({}); } }, many ? "Unfold" : "Fold"),
        el("span", { class: "muted" }, count(rows.filter((r) => r[2] >= 0 && (r[0] === 0 || r[0] === 1 || r[0] === 3 || r[0] === 5)).length, "node")))),
    content);
  const fill = () => { if (!content.firstChild) content.append(...(state.drawing ? pictures(stage, before, section, rows) : lines(stage, before, section, rows))); };
  box.addEventListener("toggle", () => { remember(key, box.open); if (box.open) fill(); });
  if (open) fill();
  return box;
}

function toggle(set, key) { if (!set.delete(key)) set.add(key); }

function remember(key, open) {
  state.opened.delete(open ? "-" + key : key);
  state.opened.add(open ? key : "-" + key);
}

// lines are the two texts, with long runs that are the same folded.
function lines(stage, before, section, rows) {
  const box = el("div", { class: "diff" });
  const around = 2, least = state.brief ? 1 : 9;
  for (let i = 0; i < rows.length;) {
    let j = i;
    while (j < rows.length && rows[j][0] === 0) j++;
    if (j - i >= least && stage.diff && (state.brief || j - i > 2 * around + 4)) {
      const from = i === 0 || state.brief ? i : i + around, to = j === rows.length || state.brief ? j : j - around;
      for (let k = i; k < from; k++) box.append(line(stage, before, section, rows[k]));
      box.append(folded(stage, before, section, rows.slice(from, to)));
      for (let k = to; k < j; k++) box.append(line(stage, before, section, rows[k]));
    } else {
      for (let k = i; k < j; k++) box.append(line(stage, before, section, rows[k]));
    }
    if (j < rows.length) box.append(line(stage, before, section, rows[j++]));
    i = j;
  }
  if (section === last && stage.outputs) box.append(...outputs(stage));
  if (!stage.diff) return [box];
  return [el("div", { class: "columns" }, el("span", {}, `before: ${before.pass || "the model"}`), el("span", {}, `after ${stage.pass}`)), box];
}

function folded(stage, before, section, rows) {
  const has = rows.some((r) => nodesOf(stage, section)[r[2]].r.some((x) => resultName(stage, section, x) === state.node));
  const unfold = () => rows.map((r) => line(stage, before, section, r));
  if (has) return el("div", {}, unfold());
  const b = el("button", { type: "button", class: "fold", onclick: () => b.replaceWith(...unfold()) }, `⋯ ${count(rows.length, "line")} the same`);
  return b;
}

function outputs(stage) {
  return stage.outputs.map((o) => el("div", { class: "line" }, stage.diff && el("div", { class: "ir" }), el("div", { class: "ir" }, el("span", { class: "op" }, "output "), o)));
}

function line(stage, before, section, [what, left, right]) {
  const kind = kindsOfRow[what];
  const old = before && left >= 0 && what !== 5 ? nodesOf(before, section)[left] : null;
  const now = right >= 0 && what !== 4 ? nodesOf(stage, section)[right] : null;
  const node = now || old;
  const names = node.r.map((r) => resultName(now ? stage : before, section, r));
  const cells = [];
  if (stage.diff) cells.push(old ? ir(before, section, old, kind, what === 1 && { stage, node: now }) : el("div", { class: "ir none" }));
  cells.push(now ? ir(stage, section, now, kind, what === 1 && { stage: before, node: old }) : el("div", { class: "ir none" }));
  return el("div", { class: `line ${kind}${names.includes(state.node) ? " chosen" : ""}`, "data-node": names[0] }, cells);
}

// ir writes a node as graph text does; what differs from the other is marked.
function ir(stage, section, n, kind, other) {
  const parts = [];
  const o = other && other.node;
  const mark = (differs, part) => differs ? el("em", {}, part) : part;
  const results = n.r.map((r, i) => [value(resultName(stage, section, r), (n.o === "param" ? "@" : "%") + inSection(section, resultName(stage, section, r))), i < n.r.length - 1 ? " " : ""]).flat();
  const op = el("span", { class: `op ${data.ops[n.o].class}`, title: data.ops[n.o].doc }, n.o);
  if (data.ops[n.o].class === "leaf") parts.push(op, " ", ...results);
  else parts.push(...results, " = ", mark(o && o.o !== n.o, op));
  (n.a || []).forEach((x, i) => {
    const a = argument(stage, section, x);
    const differs = o && (i >= (o.a || []).length || argument(other.stage, section, o.a[i]).name !== a.name);
    parts.push(" ", mark(differs, value(a.name, a.shown)));
  });
  if (n.x) parts.push(mark(o && o.x !== n.x, el("span", { class: "t" }, n.x)));
  parts.push(el("span", { class: "t" }, " : "));
  n.r.forEach((r, i) => {
    const was = o && o.r[i];
    parts.push(i ? ", " : "", mark(o && (!was || was[1] !== r[1]), el("span", { class: "t" }, r[1])));
    if (r[2]) parts.push(" ", mark(o && (!was || was[2] !== r[2]), el("span", { class: `layout ${r[3]}` }, r[2])));
  });
  for (const [key, name] of [["s", "from"], ["n", "note"]]) {
    if (n[key] === undefined) continue;
    const text = textOf(stage, section, n[key]);
    const differs = o && (o[key] === undefined || textOf(other.stage, section, o[key]) !== text);
    if (key === "s" && state.pass > 0 && !differs && (kind === "same" || o)) continue; // it has not changed, and the panel has it
    parts.push(" ", mark(differs, el("span", { class: name }, key === "n" ? `# ${text}` : text.trim())));
  }
  return el("div", { class: `ir ${kind === "same" ? "" : kind}` }, parts);
}

// value is a name that can be chosen.
function value(name, shown) {
  return el("span", { class: "v", "data-v": name }, shown);
}

// light marks all places of a value under the pointer.
function light(name) {
  for (const e of document.querySelectorAll(".v.lit")) e.classList.remove("lit");
  if (name) for (const e of document.querySelectorAll(`.v[data-v="${CSS.escape(name)}"]`)) e.classList.add("lit");
}

document.addEventListener("mouseover", (e) => { const v = e.target.closest(".v"); light(v && v.dataset.v); });
document.addEventListener("click", (e) => {
  const v = e.target.closest(".v");
  if (v) choose(v.dataset.v);
});

// choose shows a value, without moving the page.
function choose(name) {
  state.node = name;
  keep();
  for (const l of document.querySelectorAll(".line")) l.classList.toggle("chosen", l.dataset.node === name);
  for (const b of document.querySelectorAll(".nodebox")) b.classList.toggle("chosen", b.dataset.node === name);
  showDetail();
  if (current && current.chosen) current.chosen();
}

// reveal goes to a node in the graph after a pass.
function reveal(pass, name) {
  const at = index(data.stages[pass]).get(name);
  if (!at) return;
  const change = { tab: "passes", pass, node: name };
  if (isLayer(at.section)) change.layer = at.section;
  else change.opened = new Set([...state.opened, `${pass} ${at.section} s${at.section}`]);
  go(change);
  const line = document.querySelector(`[data-node="${CSS.escape(firstResult(data.stages[pass], at))}"]`);
  if (!line) return;
  line.closest("details").open = true;
  line.scrollIntoView({ block: "center" });
}

const firstResult = (stage, at) => resultName(stage, at.section, nodesOf(stage, at.section)[at.at].r[0]);
