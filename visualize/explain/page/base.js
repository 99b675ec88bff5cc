// What all views use: the data, names, and the selection.

const sides = JSON.parse(document.getElementById("data").textContent); // one, or two to compare
const sideAt = Number(new URLSearchParams(location.hash.slice(1)).get("side")) === 1 ? Math.min(1, sides.length - 1) : 0;
const data = sides[sideAt];
const sideName = (d) => `${count(d.ranks, "rank")}${d.ranks > 1 ? `, ${d.strategy}` : ""}`;
const last = data.sections.length - 1; // the section after the layers
const isLayer = (section) => section > 0 && section < last;

// tableOf has rows that become lists of named values where the window is narrow.
function tableOf(head, rows) {
  const names = head.map((h) => typeof h === "string" ? h : h.textContent);
  for (const r of rows) [...r.children].forEach((c, i) => { c.dataset.label = names[i]; });
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((h) => typeof h === "string" ? el("th", {}, h) : h))), el("tbody", {}, rows)));
}

// launches counts collectives, and what stages of a pipeline send apart: no proof counts that.
function launches(list) {
  const sends = list.filter((c) => c.k === "send").length;
  return count(list.length - sends, "collective") + (sends ? ` and ${count(sends, "send")}` : "");
}

const percent = (x) => `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)} %`;

// runs of numbers: 1 to 4, 7.
function ranges(list) {
  const out = [];
  for (let i = 0, j; i < list.length; i = j + 1) {
    for (j = i; j + 1 < list.length && list[j + 1] === list[j] + 1;) j++;
    out.push(j === i ? `${list[i]}` : j === i + 1 ? `${list[i]}, ${list[j]}` : `${list[i]} to ${list[j]}`);
  }
  return out.join(", ");
}

const layerOf = (section) => Number(data.sections[section].slice("layers.".length));
const shortName = (name, section) => isLayer(section) && name.startsWith(data.sections[section] + ".") ? name.slice(data.sections[section].length + 1) : name;

// A graph's sections of a kind are written once; a text in a slot counts layers from
// its own, between two characters that no text has.
function slot(stage, section, i) {
  const [kind, variant] = stage.of[section];
  const text = stage.kinds[kind].variants[variant][i];
  return text.replace(/\x01(-?\d+)\x01/g, (_, n) => String(layerOf(section) + Number(n)));
}

const textOf = (stage, section, x) => typeof x === "number" ? slot(stage, section, x) : x;
const nodesOf = (stage, section) => stage.kinds[stage.of[section][0]].nodes;
// resultName is the whole name of a result, which may be one of another layer.
const resultName = (stage, section, r) => typeof r[0] === "number" ? slot(stage, section, r[0]) : fullName(section, r[0]);
const fullName = (section, name) => isLayer(section) ? `${data.sections[section]}.${name}` : name;

// inSection is how a name is called in a section: one from elsewhere begins with a /.
const inSection = (section, name) => !isLayer(section) ? name : name.startsWith(data.sections[section] + ".") ? shortName(name, section) : `/${name}`;

// argument gives the whole name of an operand, and how it is called in its section.
function argument(stage, section, x) {
  const text = textOf(stage, section, x);
  const name = typeof x === "number" ? text.slice(1) : fullName(section, text.slice(1));
  return { name, shown: text[0] + inSection(section, name) };
}

// nodes of a stage by the names of all their results.
function index(stage) {
  if (!stage.index) {
    stage.index = new Map();
    stage.of.forEach((_, section) => nodesOf(stage, section).forEach((n, at) => {
      for (const r of n.r) stage.index.set(resultName(stage, section, r), { section, at });
    }));
  }
  return stage.index;
}

const stepIndex = new Map(data.steps.map((s, i) => [s.n, i]));
const bufferOf = new Map(); // which buffer of rank 0's arena a value lies in
data.memory[0].buffers.forEach((b, i) => { for (const n of [b.n, ...(b.a || [])]) bufferOf.set(n, i); });
const collectiveIndex = new Map(data.collectives.map((c, i) => [c.n, i]));
data.collectives.forEach((c, i) => { for (const v of c.v || []) if (!collectiveIndex.has(v)) collectiveIndex.set(v, i); });

// What is chosen; views draw it, and the address of the page keeps it.
const state = {
  tab: "overview", pass: Math.min(1, data.stages.length - 1), layer: Math.min(2, last - 1), run: 0, rank: 0,
  node: "", drawing: false, brief: false, unfolded: new Set(), opened: new Set(), allRanks: false,
};
const views = {}; // by tab: title, and show(main), which may give { key(event), leave() }
let current = null;

function go(change) {
  Object.assign(state, change);
  if (current && current.leave) current.leave();
  keep();
  show();
}

// keep writes what is chosen to the address, from which start reads it.
function keep() {
  const p = new URLSearchParams({ view: state.tab });
  if (state.tab === "passes") p.set("pass", data.stages[state.pass].pass || "model");
  if (state.tab === "timeline" || state.tab === "memory") p.set("run", state.run);
  if (isLayer(state.layer)) p.set("layer", layerOf(state.layer));
  if (state.node) p.set("node", state.node);
  if (sideAt) p.set("side", sideAt);
  try { history.replaceState(null, "", "#" + p); } catch { /* not where the page has no address of its own */ }
}

function show() {
  for (const b of byId("tabs").children) {
    b.setAttribute("aria-selected", String(b.dataset.view === state.tab));
    if (b.dataset.view === state.tab) b.parentNode.scrollLeft = b.offsetLeft + b.offsetWidth / 2 - b.parentNode.offsetLeft - b.parentNode.clientWidth / 2;
  }
  hideTip();
  const main = byId("main");
  main.replaceChildren();
  current = views[state.tab].show(main) || {};
  showDetail();
}

function tip(x, y, ...lines) {
  const t = byId("tip");
  t.replaceChildren(...lines.map((l, i) => el(i ? "div" : "b", {}, l)));
  t.hidden = false;
  const box = t.getBoundingClientRect();
  t.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  t.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}

function hideTip() { byId("tip").hidden = true; }

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function kindColour(kind) { return `k${kind % 8}`; }

// strip has a button for each layer, in the colour of its kind.
function strip(stage, chosen, choose) {
  const kinds = []; // in order of appearance
  const buttons = [];
  for (let s = 1; s < last; s++) {
    const k = stage.of[s][0];
    if (!kinds.includes(k)) kinds.push(k);
    const letter = nodesOf(stage, s).length ? stage.kinds[k].letter : "·";
    buttons.push(el("button", {
      type: "button", class: kindColour(kinds.indexOf(k)), title: `${data.sections[s]}`, "aria-label": data.sections[s],
      "aria-pressed": String(s === chosen), onclick: () => choose(s),
    }, letter));
  }
  return el("div", { class: "strip", role: "group", "aria-label": "Layers" }, buttons);
}

// choices is a row of buttons of which one is pressed.
function choices(label, names, chosen, choose) {
  return el("span", { class: "row", role: "group", "aria-label": label }, names.map((name, i) => el("button", {
    type: "button", "aria-pressed": String(i === chosen), onclick: () => choose(i),
  }, name)));
}
