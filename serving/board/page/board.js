// The board: the server's state, requested twice a second while the board is visible.

const board = { paused: false, timer: 0, last: null, rates: [], asking: false };
const history = 120; // points of the line of tokens per second

const cards = [["rate", "tokens per second"], ["running", "running texts"], ["waiting", "queued"], ["step", "per step"], ["busy", "of the time in steps"], ["hits", "of prompt tokens cached"]];

function startBoard() {
  byId("cards").append(...cards.map(([id, text]) => el("div", { class: "card" }, el("b", { id: `card-${id}` }, "–"), el("span", {}, text))));
  byId("card-rate").parentNode.append(svg("svg", { id: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("polyline", { points: "" })));
  legend("slots-legend", [["cached", "prompt, from the prefix cache"], ["prefill", "prompt, prefilled"], ["decode", "generated"]]);
  legend("minute-legend", [["prefill", "prefill tokens per second"], ["decode", "decode tokens per second"]]);
  legend("steps-legend", [["prefill", "prefill tokens"], ["decode", "decode tokens"]]);
  legend("ranks-legend", rankKinds);
  byId("pause").addEventListener("click", () => pause(!board.paused));
  document.addEventListener("visibilitychange", look);
  addEventListener("resize", () => { if (board.last) draw(board.last); });
  look();
}

function pause(on) {
  board.paused = on;
  byId("pause").setAttribute("aria-pressed", String(on));
  say(byId("pause"), on ? "Resume" : "Pause");
  look();
}

const seen = () => document.visibilityState === "visible" && !board.paused && byId("board").offsetParent !== null;

// look polls the state while the board is visible.
async function look() {
  clearTimeout(board.timer);
  if (!seen() || board.asking) return;
  board.asking = true;
  try {
    const reply = await ask("/board");
    if (reply.status === 401) wantKey(await failure(reply));
    else if (!reply.ok) throw new Error(await failure(reply));
    else { const state = await reply.json(); show(state); status(state.draining ? "draining" : "ready"); }
  } catch (e) {
    status("no answer");
  }
  board.asking = false;
  clearTimeout(board.timer);
  board.timer = setTimeout(look, calm.matches ? 2000 : 500);
}

function show(state) {
  const before = board.last;
  if (before && state.now > before.now && state.totals.steps >= before.totals.steps) {
    const took = state.now - before.now, t = state.totals, b = before.totals;
    board.rates.push({ at: state.now, took, tokens: t.decode - b.decode + t.prefill - b.prefill, steps: t.steps - b.steps, busy: t.busy - b.busy });
    board.rates = board.rates.slice(-history);
  } else if (before && state.now < before.now) board.rates = []; // another server
  board.last = state;
  draw(state);
}

// over returns a rate per second over the last states.
function over(rates, name) {
  const list = rates.slice(-3), time = list.reduce((s, r) => s + r.took, 0);
  return time ? list.reduce((s, r) => s + r[name], 0) / time : 0;
}

function draw(s) {
  const rate = over(board.rates, "tokens"), steps = over(board.rates, "steps"), busy = over(board.rates, "busy");
  say(byId("card-rate"), digits(rate));
  say(byId("card-running"), `${number(s.running)} of ${number(s.slots)}`);
  say(byId("card-waiting"), number(s.waiting));
  say(byId("card-step"), steps ? seconds(busy / steps) : "–");
  say(byId("card-busy"), percent(Math.min(1, busy)));
  say(byId("card-hits"), s.cache && s.cache.prompt_tokens ? percent(s.cache.hit_tokens / s.cache.prompt_tokens) : "–");
  spark();
  say(byId("queue"), `${number(s.waiting)} of at most ${number(s.max_waiting)} texts queued; running and queued texts may take ${number(s.tokens)} of ${number(s.max_tokens)} tokens`);
  drawSlots(s);
  drawMinute(s.minute || []);
  drawSteps(s.steps || [], s.slots);
  drawRanks(s.lanes);
  drawTree(s.cache);
  say(byId("asof"), `${count(s.ranks, "rank")}, up for ${seconds(s.now)}`);
  byId("board").dataset.asof = s.now;
}

function spark() {
  const list = board.rates.map((r) => r.tokens / r.took), most = Math.max(1, ...list);
  document.querySelector("#spark polyline").setAttribute("points", list.map((r, i) => `${120 - (list.length - 1 - i) * 120 / Math.max(40, list.length)},${23 - r / most * 21}`).join(" "));
}

// drawSlots updates a line per slot.
function drawSlots(s) {
  const box = byId("slots"), shown = Math.min(s.slots, 64), has = new Map((s.requests || []).map((r) => [r.slot, r]));
  while (box.children.length > shown) box.lastChild.remove();
  while (box.children.length < shown) {
    box.append(el("li", {}, el("span", { class: "slot" }, `${box.children.length}`), el("span", { class: "track", "aria-hidden": "true" }, el("i", { class: "cached" }), el("i", { class: "read" }), el("i", { class: "written" })), el("span", { class: "what" })));
  }
  for (let i = 0; i < shown; i++) {
    const line = box.children[i], r = has.get(i), [cached, read, written] = line.querySelectorAll("i");
    const reads = r && r.read < r.prompt, all = r ? r.prompt + r.most : 1;
    line.className = r ? reads ? "reads" : "writes" : "free";
    cached.style.width = `${r ? 100 * r.cached / all : 0}%`;
    read.style.width = `${r ? 100 * (r.read - r.cached) / all : 0}%`;
    written.style.width = `${r ? 100 * r.chosen / all : 0}%`;
    say(line.lastChild, !r ? "free" : reads ? `prefill ${number(r.read)} of ${number(r.prompt)}` : `decode ${number(r.chosen)} of ${number(r.most)}`);
  }
}
