// The overview: what it comes to, in figures, and what each pass did.

views.overview = {
  title: "Overview",
  show(main) {
    const memory = data.memory.map((m) => m.same < 0 ? m : data.memory[m.same]);
    const cards = [card(count(data.ranks, "rank"), data.strategy)];
    cards.push(card(launches(data.collectives), "in a step" + proved()));
    if (data.certificate && data.ranks > 1) cards.push(card(bytes(data.certificate.sent_bytes_one_token), "that a rank sends for one token"));
    cards.push(card(bytes(Math.max(...memory.map((m) => m.weights + m.constants))), "weights of a rank"));
    main.append(
      el("div", { class: "head" }, el("h2", {}, "What the compiler did"),
        el("p", {}, `${data.model} laid over ${count(data.ranks, "rank")}. Everything on this page comes from the compiler's own graphs, schedules and proof. Press / to search, ? for the keys.`)),
      el("div", { class: "cards" }, cards),
      el("div", { class: "pair" }, data.runs.map((r, i) => runPanel(r, i, memory))),
      layers(), facts(), passList());
  },
};

// runPanel is what a run comes to.
function runPanel(r, i, memory) {
  const part = (figure, text) => el("div", {}, el("b", {}, figure), el("span", {}, text));
  return el("section", { class: "panel run" }, el("div", { class: "head" }, el("h3", {}, r.name), el("span", { class: "muted" }, r.about)),
    el("div", { class: "figures" },
      r.end && part(seconds(r.end), r.clock),
      r.measured && part(seconds(r.measured), r.measured_on),
      r.comm && data.ranks > 1 && part(percent(r.exposed / r.end), "of it in collectives that nothing hides"),
      part(bytes(Math.max(...memory.map((m) => arena(m, r)))), "activations of a rank"),
      data.ranks > 1 && part(bytes(total(data.collectives, "s", i)), "sent by a rank")),
    el("div", { class: "row" }, el("button", { type: "button", onclick: () => go({ tab: "timeline", run: i }) }, "Timeline"), el("button", { type: "button", onclick: () => go({ tab: "memory", run: i }) }, "Memory")));
}

function card(figure, text) { return el("div", { class: "card" }, el("b", {}, figure), el("span", {}, text)); }

// proved compares the number of collectives with what the proof found.
function proved() {
  const c = data.certificate;
  if (!c || c.minimum.none || c.minimum.unknown) return "";
  return c.collectives === c.minimum.collectives ? ", the fewest possible" : `; ${c.minimum.collectives} would do`;
}

// arena is the bytes of a rank's activations in a run.
function arena(m, r) { return m.regions.reduce((sum, b, i) => sum + b * r.counts[i], 0); }

function layers() {
  const stage = data.stages[data.stages.length - 1];
  if (last < 2) return "";
  const kinds = new Map();
  for (let s = 1; s < last; s++) {
    const k = stage.of[s][0];
    kinds.set(k, [...(kinds.get(k) || []), layerOf(s)]);
  }
  const lines = [...kinds].map(([k, list], i) => el("div", { class: "row" },
    el("span", { class: `badge ${kindColour(i)}` }, stage.kinds[k].letter), el("span", {}, `layer${list.length > 1 ? "s" : ""} ${ranges(list)}\u2002`,
      el("span", { class: "muted" }, count(stage.kinds[k].nodes.filter((n) => data.ops[n.o].class === "compute").length, "kernel") +
        ", " + count(stage.kinds[k].nodes.filter((n) => data.ops[n.o].class === "collective").length, "collective")))));
  return el("section", { class: "panel" },
    el("div", { class: "head" }, el("h3", {}, count(last - 1, "layer")), el("span", { class: "muted" }, "as they run; layers of a colour are equal. M mixes by a scan, A by attention, H by both, C by a convolution, B by none.")),
    strip(stage, 0, (s) => go({ tab: "passes", layer: s })), el("div", { class: "kinds" }, lines));
}

function facts() {
  if (!data.facts.length) return "";
  return el("section", { class: "panel" }, el("table", {}, el("tbody", {}, data.facts.map((f) => el("tr", {}, el("th", { scope: "row" }, f.name), el("td", {}, f.text))))));
}

function passList() {
  return el("section", { class: "panel" }, el("h3", {}, "Passes that changed something"),
    el("ol", { class: "steps" }, data.stages.map((s, i) => el("li", {}, el("button", { type: "button", onclick: () => go({ tab: "passes", pass: i }) },
      el("span", { class: "name" }, s.pass || "model"), el("span", { class: "muted" }, s.doc || "the graph as its family defines it"), counts(s))))));
}

// counts says what a pass changed.
function counts(stage) {
  const d = stage.diff;
  if (!d) return el("span", { class: "counts" }, count(stage.nodes, "node"));
  return el("span", { class: "counts" },
    d.added ? el("span", { class: "a" }, `+${number(d.added)} `) : "", d.removed ? el("span", { class: "c" }, `−${number(d.removed)} `) : "",
    d.changed ? el("span", { class: "m" }, `~${number(d.changed)} `) : "", d.moved ? el("span", { class: "muted" }, `↕${number(d.moved)}`) : "");
}
