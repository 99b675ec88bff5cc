// The frame: tabs, keys, light and dark, and what the address says.

const order = ["overview", "passes", "collectives", "timeline", "memory", "proof", ...sides.length > 1 ? ["compare"] : []];

const keysOf = [["/", "search"], [`1 to ${order.length}`, "views"], ["j k", "passes: next, previous"], ["[ ]", "passes: previous, next layer"], ["f", "fold or unfold: equal layers, equal ranks"],
  ["c", "passes: changes only"], ["d", "passes: text or drawing"], ["+ − 0", "timeline, memory: zoom in, out, show all"], ["← →", "timeline, memory: move"], ["n p", "timeline: next, previous step"], ["t", "light or dark"], ["Esc", "close"]];

function dark() { return document.documentElement.classList.contains("dark"); }

function setTheme(on) {
  document.documentElement.classList.toggle("dark", on);
  byId("theme").textContent = on ? "☀" : "☾";
  if (current && current.paint) current.paint();
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || byId("help").open) return;
  if (e.target.closest("input, select, textarea")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const n = Number(e.key);
  if (n >= 1 && n <= order.length) go({ tab: order[n - 1] });
  else if (e.key === "0" && current.key && current.key(e)) { /* it was for the view */ }
  else if (e.key === "/") byId("query").focus();
  else if (e.key === "?") byId("help").showModal();
  else if (e.key === "t") setTheme(!dark());
  else if (e.key === "Escape") choose("");
  else if (!(current.key && (!e.key.startsWith("Arrow") || ownsArrows(e)) && current.key(e))) return;
  e.preventDefault();
}

// ownsArrows leaves the arrow keys to who scrolls: views of graphs take them across only.
function ownsArrows(e) {
  return state.tab !== "passes" || e.key === "ArrowLeft" || e.key === "ArrowRight";
}

function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  if (order.includes(p.get("view"))) state.tab = p.get("view");
  const pass = data.stages.findIndex((s) => (s.pass || "model") === p.get("pass"));
  if (pass >= 0) state.pass = pass;
  const layer = data.sections.indexOf(`layers.${p.get("layer")}`);
  if (layer > 0) state.layer = layer;
  const run = Number(p.get("run"));
  if (data.runs[run]) state.run = run;
  if (index(data.stages[data.stages.length - 1]).has(p.get("node")) || stepIndex.has(p.get("node"))) state.node = p.get("node");
}

// sideTo opens the other side: all that the page computes of its data is computed anew.
function sideTo(i) {
  const p = new URLSearchParams(location.hash.slice(1));
  p.set("side", i);
  location.hash = p;
  location.reload();
}

function start() {
  byId("model").textContent = data.model;
  byId("about").append(sides.length > 1 ? choices("Side", sides.map(sideName), sideAt, sideTo) : sideName(data));
  byId("tabs").append(...order.map((v, i) => el("button", { type: "button", role: "tab", "data-view": v, title: `${i + 1}`, onclick: () => go({ tab: v }) }, views[v].title)));
  byId("theme").addEventListener("click", () => setTheme(!dark()));
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("help").append(el("h2", {}, "Keys"), el("dl", {}, keysOf.map(([k, t]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, t)])), el("p", {}, el("button", { type: "button", onclick: () => byId("help").close() }, "Close")));
  document.addEventListener("keydown", onKey);
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(system.matches);
  system.addEventListener("change", (e) => setTheme(e.matches));
  readAddress();
  if (sides.length > 1 && !location.hash) state.tab = "compare";
  addEventListener("hashchange", () => { readAddress(); show(); });
  startSearch();
  show();
}

start();
