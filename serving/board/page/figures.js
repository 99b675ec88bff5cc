// Drawings of the board. Each has its content as text, too.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// canvas clears a canvas, and returns its context, width and element.
function canvas(id, height) {
  const c = byId(id), scale = devicePixelRatio || 1, width = c.clientWidth || 600;
  c.style.height = `${height}px`;
  if (c.width !== Math.round(width * scale) || c.height !== Math.round(height * scale)) {
    c.width = Math.round(width * scale);
    c.height = Math.round(height * scale);
  }
  const to = c.getContext("2d");
  to.setTransform(scale, 0, 0, scale, 0, 0);
  to.clearRect(0, 0, width, height);
  to.font = "11px system-ui, sans-serif";
  to.textBaseline = "middle";
  return [to, width, c];
}

function legend(id, list) {
  byId(id).replaceChildren(...list.map(([name, text]) => el("span", {}, el("i", { class: `c-${name}` }), text)));
}

// drawBars draws a bar for each entry of a list, the newest at the right: prefill tokens above, decode
// tokens below, on separate scales. at has their indices in an entry.
function drawBars(id, list, each, at, most) {
  const upper = 64, lower = 44, gap = 10, left = barsLeft, [to, width, c] = canvas(id, upper + gap + lower);
  const row = (i, name, top, height, scale) => {
    to.strokeStyle = colour("line");
    for (const share of [0, 1]) {
      const y = Math.round(top + height - share * (height - 8)) - 0.5;
      to.beginPath(); to.moveTo(left, y); to.lineTo(width, y); to.stroke();
    }
    to.fillStyle = colour("muted");
    to.fillText(number(scale), 0, top + 8);
    to.fillStyle = colour(name);
    list.forEach((s, k) => {
      const h = s[i] ? Math.max(s[i] / scale * (height - 8), 1.5) : 0;
      to.fillRect(width - (list.length - k) * each, top + height - h, each - 1, h);
    });
  };
  row(at[0], "prefill", 0, upper, Math.max(32, ...list.map((s) => s[at[0]])));
  row(at[1], "decode", upper + gap, lower, Math.max(most, ...list.map((s) => s[at[1]])));
  return c;
}

const barsLeft = 40;
const barsWidth = (id) => (byId(id).clientWidth || 600) - barsLeft;

// drawMinute draws the tokens of each of the last sixty seconds.
function drawMinute(list) {
  const c = drawBars("minute", list, barsWidth("minute") / 60, [0, 1], 1);
  const sum = (i) => list.reduce((all, s) => all + s[i], 0);
  const text = `${count(sum(0), "prefill token")}, ${count(sum(1), "decode token")}`;
  say(byId("minute-text"), text);
  c.setAttribute("aria-label", `The last minute: ${text}`);
}

// drawSteps draws the tokens of each of the last steps.
function drawSteps(steps, slots) {
  const each = Math.max(3, Math.min(9, barsWidth("steps") / 100)), list = steps.slice(-Math.floor(barsWidth("steps") / each));
  const c = drawBars("steps", list, each, [3, 4], Math.max(1, slots));
  const last = list[list.length - 1];
  const text = last ? `step ${number(last[0] + 1)}: ${count(last[4], "decode token")}, ${count(last[3], "prefill token")} of ${count(last[2], "prompt")}, ${seconds(last[1] / 1e6)}` : "none yet";
  say(byId("steps-text"), text);
  c.setAttribute("aria-label", `Tokens of the last ${list.length} steps; ${text}`);
  c.dataset.steps = list.length;
}

const rankKinds = [["multiply", "products with weights"], ["mix", "mixes tokens"], ["other", "other kernels"], ["comm", "collectives"], ["wait", "waits"]];

// drawRanks draws a row for each rank: the share of each kind of work over time.
function drawRanks(lanes) {
  const n = lanes ? lanes.ranks.length : 0, rowHeight = n > 4 ? 22 : 34, gap = 6, [to, width, c] = canvas("ranks", Math.max(1, n) * (rowHeight + gap));
  const left = 34, right = 44, busy = [];
  if (!lanes) {
    say(byId("ranks-text"), "");
    to.fillStyle = colour("muted");
    to.fillText("No measurements yet.", 0, 10);
    c.setAttribute("aria-label", "No measurements yet");
    return;
  }
  lanes.ranks.forEach((kinds, rank) => {
    const y = rank * (rowHeight + gap), columns = kinds[0].length, w = (width - left - right) / columns;
    to.fillStyle = colour("soft");
    to.fillRect(left, y, width - left - right, rowHeight);
    let all = 0;
    for (let i = 0; i < columns; i++) {
      let from = y + rowHeight;
      kinds.forEach((k, j) => {
        if (!k[i]) return;
        const h = Math.min(k[i] / 100 * rowHeight, from - y);
        to.fillStyle = colour(rankKinds[j][0]);
        to.fillRect(left + i * w, from - h, Math.ceil(w), h);
        from -= h;
      });
      all += Math.min(100, kinds[0][i] + kinds[1][i] + kinds[2][i] + kinds[3][i]);
    }
    busy.push(all / columns);
    to.fillStyle = colour("ink");
    to.fillText(`${rank}`, 0, y + rowHeight / 2);
    to.textAlign = "right";
    to.fillText(`${Math.round(all / columns)} %`, width, y + rowHeight / 2);
    to.textAlign = "left";
  });
  const text = `busy ${busy.map((b) => `${Math.round(b)} %`).slice(0, 8).join(", ")}`;
  say(byId("ranks-text"), text);
  c.setAttribute("aria-label", `What ${count(n, "rank")} did in the last second: ${text}`);
  c.dataset.ranks = n;
}

// place gives nodes of a tree rows: leaves one each, and others those of what is below them.
function place(nodes) {
  const below = nodes.map(() => []), roots = [], rows = [];
  nodes.forEach((n, i) => (n.parent < 0 ? roots : below[n.parent]).push(i));
  let next = 0;
  const walk = (i) => { // parents come first in nodes, so that depth is bounded by their number
    const at = next;
    for (const b of below[i]) walk(b);
    if (next === at) next++;
    rows[i] = [at, next];
  };
  roots.forEach(walk);
  return { rows, leaves: next };
}

// drawTree draws the prefix cache with its root at the left. Widths are square roots of tokens, so
// that short nodes stay visible; the colour shows hits, and an edge at the right a snapshot.
function drawTree(cache) {
  const box = byId("tree");
  if (!cache) {
    say(byId("tree-text"), "");
    box.replaceChildren(el("p", { class: "muted" }, "Off. Start the server with --prefix-cache BYTES."));
    return;
  }
  const share = cache.prompt_tokens ? cache.hit_tokens / cache.prompt_tokens : 0;
  say(byId("tree-text"), `${bytes(cache.bytes)} of ${bytes(cache.capacity)} · ${count(cache.hits, "hit")} of ${count(cache.requests, "request")} · ${percent(share)} of prompt tokens`);
  if (!cache.nodes.length) { box.replaceChildren(el("p", { class: "muted" }, "It is empty.")); return; }
  const { rows, leaves } = place(cache.nodes), each = leaves > 24 ? 9 : leaves > 10 ? 14 : 20, height = leaves * each;
  const width = Math.max(200, box.clientWidth), most = Math.max(...cache.nodes.map((n) => n.to)), hits = Math.max(1, ...cache.nodes.map((n) => n.hits));
  const x = (t) => Math.sqrt(t / most) * (width - 2);
  const all = cache.nodes.map((n, i) => {
    const [from, to] = rows[i], w = Math.max(x(n.to) - x(n.from), 2);
    const about = `${number(n.from)} to ${number(n.to)} tokens, ${bytes(n.bytes)}${n.state ? " with a snapshot" : ""}; ${count(n.hits, "hit")}; unused for ${seconds(n.unused)}`;
    const parts = [svg("title", {}), svg("rect", { x: x(n.from) + 0.5, y: from * each + 0.5, width: w - 1, height: (to - from) * each - 1, rx: 2, class: `node h${n.hits ? Math.min(4, 1 + Math.floor(3 * n.hits / hits)) : 0}` })];
    parts[0].textContent = about;
    if (n.state) parts.push(svg("rect", { x: x(n.from) + w - 3.5, y: from * each + 2, width: 2.5, height: (to - from) * each - 4, class: "state" }));
    if (w > 58 && each >= 14) { const t = svg("text", { x: x(n.from) + 6, y: (from + to) / 2 * each, class: "length" }); t.textContent = number(n.to); parts.push(t); }
    return svg("g", {}, ...parts);
  });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Tree of the prefix cache: ${count(cache.nodes.length, "node")}${cache.more ? `, ${cache.more} more not shown` : ""}, up to ${number(most)} tokens long` }, ...all);
  box.replaceChildren(el("div", { class: "scroll" }, picture), el("p", { class: "muted" }, `The root is at the left; the longest path has ${count(most, "token")}.${cache.more ? ` ${count(cache.more, "least recently used node")} not shown.` : ""} The board has numbers only, no texts.`));
}
