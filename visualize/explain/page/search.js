// Search by name and operation, and what the panel says of what is chosen.

let entries = null;

// everything lists what has a name: nodes after any pass, steps, buffers; the index is made
// when it is first asked for.
function everything() {
  if (entries) return entries;
  const all = new Map();
  const entry = (name) => { if (!all.has(name)) all.set(name, { name, ops: new Set(), passes: [] }); return all.get(name); };
  data.stages.forEach((stage, pass) => stage.of.forEach((_, section) => nodesOf(stage, section).forEach((n) => {
    for (const r of n.r) { const e = entry(resultName(stage, section, r)); e.ops.add(n.o); e.passes.push(pass); }
  })));
  data.steps.forEach((s) => entry(s.n).ops.add(s.o));
  entries = [...all.values()].map((e) => ({ ...e, ops: [...e.ops], text: `${e.name} ${[...e.ops].join(" ")}`.toLowerCase() }));
  return entries;
}

// search gives those that have all words, best first.
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const rank = (e) => {
    const name = e.name.toLowerCase(), q = words.join(" ");
    return name === q ? 0 : name.endsWith("." + q) ? 1 : name.includes(q) ? 2 : 3;
  };
  return everything().filter((e) => words.every((w) => e.text.includes(w))).map((e) => [rank(e), e]).sort((a, b) => a[0] - b[0] || natural(a[1].name, b[1].name)).map(([, e]) => e);
}

const collator = new Intl.Collator("en", { numeric: true });
const natural = (a, b) => collator.compare(a, b);

const shownHits = 80;

function startSearch() {
  const query = byId("query"), found = byId("found");
  let at = 0, hits = [];
  const draw = () => {
    const all = search(query.value);
    hits = all.slice(0, shownHits);
    at = Math.min(at, Math.max(0, hits.length - 1));
    found.hidden = !query.value.trim();
    found.replaceChildren(...hits.map((e, i) => hit(e, i === at, query.value, () => take(i))),
      el("div", { class: "none" }, !hits.length ? "No match." : all.length > hits.length ? `${number(all.length - hits.length)} more: refine the search` : count(all.length, "match").replace(/matchs$/, "matches")));
    const chosen = found.children[at];
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
  };
  const take = (i) => {
    const e = hits[i];
    if (!e) return;
    close();
    open(e.name);
  };
  const close = () => { found.hidden = true; query.blur(); };
  query.addEventListener("input", () => { at = 0; draw(); });
  query.addEventListener("focus", draw);
  query.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { at = Math.max(0, Math.min(hits.length - 1, at + (e.key === "ArrowDown" ? 1 : -1))); draw(); e.preventDefault(); }
    else if (e.key === "Enter") take(at);
    else if (e.key === "Escape") { close(); e.stopPropagation(); }
  });
  document.addEventListener("pointerdown", (e) => { if (!e.target.closest(".search")) found.hidden = true; });
}

function hit(e, chosen, query, take) {
  const words = query.trim().split(/\s+/), name = el("code", {});
  const at = e.name.toLowerCase().indexOf(words[0].toLowerCase());
  if (at < 0) name.append(e.name);
  else name.append(e.name.slice(0, at), el("mark", {}, e.name.slice(at, at + words[0].length)), e.name.slice(at + words[0].length));
  return el("div", { class: "hit", role: "option", "aria-selected": String(chosen), "data-name": e.name, onclick: take }, name, el("span", { class: "muted" }, e.ops.join(", ")),
    collectiveIndex.has(e.name) && e.ops.some((o) => data.ops[o].class === "collective") && el("span", { class: "badge comm" }, "collective"));
}

// open shows what was found: where the view that is open has it there, else in the last graph.
function open(name) {
  const has = { timeline: stepIndex.has(name), memory: bufferOf.has(name), collectives: collectiveIndex.has(name), passes: false }[state.tab];
  if (has) { go({ node: name }); if (current.chosen) current.chosen(); scrollToChosen(); return; }
  for (let pass = data.stages.length - 1; pass >= 0; pass--) {
    if (index(data.stages[pass]).has(name)) { reveal(pass, name); return; }
  }
  go({ tab: "timeline", node: name });
}

function scrollToChosen() {
  const tr = document.querySelector("tr.c.chosen");
  if (tr) tr.scrollIntoView({ block: "center" });
}

// showDetail is the panel of what is chosen.
function showDetail() {
  const panel = byId("detail");
  document.body.classList.toggle("with-detail", Boolean(state.node));
  panel.hidden = !state.node;
  if (!state.node) return;
  const close = el("button", { type: "button", class: "close", "aria-label": "Close", title: "Esc", onclick: () => choose("") }, "×");
  panel.replaceChildren(close, el("h2", {}, state.node), ...aboutNode(state.node));
}

function aboutNode(name) {
  const passes = data.stages.map((s, i) => i).filter((i) => index(data.stages[i]).has(name));
  const out = [];
  if (passes.length) {
    const pass = passes.includes(state.pass) && state.tab === "passes" ? state.pass : passes[passes.length - 1];
    out.push(...aboutInGraph(name, pass, passes));
  }
  const at = stepIndex.get(name);
  if (at !== undefined) out.push(aboutStep(at));
  const links = [];
  for (const i of passes) links.push(el("button", { type: "button", onclick: () => reveal(i, name) }, data.stages[i].pass || "model"));
  if (at !== undefined) links.push(el("button", { type: "button", onclick: () => go({ tab: "timeline", node: name }) }, "timeline"));
  if (bufferOf.has(name)) links.push(el("button", { type: "button", onclick: () => go({ tab: "memory", node: name }) }, "memory"));
  if (collectiveIndex.has(name)) links.push(el("button", { type: "button", onclick: () => { go({ tab: "collectives", node: data.collectives[collectiveIndex.get(name)].n }); scrollToChosen(); } }, "collective"));
  out.push(el("h3", {}, "Show in"), el("div", { class: "links" }, links));
  return out;
}

function aboutInGraph(name, pass, passes) {
  const stage = data.stages[pass], { section, at } = index(stage).get(name), n = nodesOf(stage, section)[at], op = data.ops[n.o];
  const r = n.r.find((r) => resultName(stage, section, r) === name);
  const dl = el("dl", {});
  const line = (t, ...d) => dl.append(el("dt", {}, t), el("dd", {}, ...d));
  line("operation", el("b", {}, n.o), ` ${op.doc}`);
  if (op.rule) line("rule", el("code", {}, op.rule));
  line("type", el("code", {}, r[1]));
  line("layout", r[2] ? el("span", { class: `mono layout ${r[3]}` }, r[2]) : data.ranks > 1 ? "whole on every rank" : "one rank has it");
  if (n.x) line("attributes", el("code", {}, n.x.trim()));
  if (n.s !== undefined) line("checkpoint", el("code", {}, textOf(stage, section, n.s).trim()));
  if (n.n !== undefined) line("why", textOf(stage, section, n.n));
  if (n.c) { line("FLOPs", el("code", {}, n.c[0])); line("bytes read", el("code", {}, n.c[1])); line("written", el("code", {}, n.c[2])); }
  line("passes", `${data.stages[passes[0]].pass ? `made by ${data.stages[passes[0]].pass}` : "of the model"}${passes[passes.length - 1] < data.stages.length - 1 ? `, gone after ${data.stages[passes[passes.length - 1] + 1].pass}` : ""}`);
  const list = (title, names) => names.length ? [el("h3", {}, title), el("ul", {}, names.slice(0, 40).map((x) => el("li", {}, el("button", { type: "button", class: "link mono", onclick: () => reveal(pass, x) }, x)))),
    names.length > 40 ? el("p", { class: "muted" }, `and ${names.length - 40} more`) : ""] : [];
  return [el("p", { class: "muted" }, `${data.sections[section]}, after ${stage.pass || "nothing: the model"}`), dl, ...list("Takes", (n.a || []).map((x) => argument(stage, section, x).name)), ...list("Taken by", usersOf(stage).get(name) || [])];
}

// usersOf maps values to the nodes that take them.
function usersOf(stage) {
  if (!stage.users) {
    stage.users = new Map();
    stage.of.forEach((_, section) => nodesOf(stage, section).forEach((n) => {
      for (const x of n.a || []) {
        const { name } = argument(stage, section, x);
        if (!stage.users.has(name)) stage.users.set(name, []);
        const user = resultName(stage, section, n.r[0]), list = stage.users.get(name);
        if (list[list.length - 1] !== user) list.push(user);
      }
    }));
  }
  return stage.users;
}

function aboutStep(at) {
  const st = data.steps[at], dl = el("dl", {});
  const line = (t, ...d) => dl.append(el("dt", {}, t), el("dd", {}, ...d));
  line("stream", st.s);
  line("a rank has", el("code", {}, st.t || ""));
  if (st.w) line("runs only for", st.w.join(", "));
  if (st.a) line("waits for", st.a.map((i) => el("div", {}, el("button", { type: "button", class: "link mono", onclick: () => choose(data.steps[i].n) }, data.steps[i].n))));
  for (const run of data.runs) {
    const e = run.end && rankEvents(run, 0).find((e) => e.s === at);
    if (e) line(run.name, `${seconds(e.took)}, from ${seconds(e.at)}`);
  }
  const c = data.collectives[collectiveIndex.get(st.n)];
  if (c) data.runs.forEach((r, i) => line(`bytes, ${r.name}`, `${number(c.p[i])}; a rank sends ${number(c.s[i])}`));
  return el("div", {}, el("h3", {}, `Step ${at + 1} of ${data.steps.length}`), dl);
}
