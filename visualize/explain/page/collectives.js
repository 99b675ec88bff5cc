// The collectives of a step: reason, payload and time.

views.collectives = {
  title: "Collectives",
  show(main) {
    const c = data.collectives;
    main.append(el("div", { class: "head" }, el("h2", {}, launches(c) + " in a step"),
      el("p", {}, data.ranks === 1 ? "One rank needs no collectives." : "Collectives gather shards or reduce partial sums. Equal ones of several layers are one line, which opens. The payload counts each operand once; sent is the bytes that one rank sends in a ring.")));
    if (!c.length) return {};
    main.append(linkTable());
    const timed = c[0].d;
    const head = ["collective", el("th", { class: "wide" }, "why"), el("th", { class: "n wide" }, "elements"),
      ...data.runs.flatMap((r) => [el("th", { class: "n" }, `payload, ${r.name}`), el("th", { class: "n wide" }, `sent, ${r.name}`), ...timed ? [el("th", { class: "n", title: r.clock }, `time, ${r.name}`)] : []])];
    const sum = el("tr", { class: "sum" }, el("td", {}, "all"), el("td", { class: "wide" }), el("td", { class: "wide" }), data.runs.map((r, i) => [
      el("td", { class: "n" }, bytes(total(c, "p", i))), el("td", { class: "n wide" }, bytes(total(c, "s", i))), timed && el("td", { class: "n" }, hiddenText(c, i))]));
    main.append(el("section", { class: "panel" }, tableOf(head, [...alike(c).flatMap((g) => collectiveRows(g, timed)), sum])));
    return { chosen() { for (const tr of document.querySelectorAll("tr.c")) tr.classList.toggle("chosen", tr.dataset.name === state.node); } };
  },
};

// linkTable says what crosses which link in a step: equal axes and levels of all runs are a line.
function linkTable() {
  const rows = new Map();
  data.runs.forEach((r, i) => (r.links || []).forEach((l) => {
    const key = `${l.axes}\n${l.level}`;
    rows.set(key, rows.get(key) || { l, of: [] });
    rows.get(key).of[i] = l;
  }));
  if (!rows.size) return "";
  const cell = (text) => el("td", { class: "n" }, text);
  const cells = (l, r) => l ? [cell(bytes(l.sent)), cell(l.seconds ? seconds(l.seconds) : "–"), cell(l.seconds ? percent(l.seconds / r.end) : "–")] : [cell(""), cell(""), cell("")];
  return el("section", { class: "panel links" }, el("div", { class: "head" }, el("h3", {}, "What crosses which link"),
    el("span", { class: "muted" }, "in a step: bytes that a rank sends on average, and the time of its collectives alone on their links. All of the time of a ring or tree over nodes counts between them.")),
    tableOf(["axis", "level", ...data.runs.flatMap((r) => ["sent", "time", "share"].map((h) => el("th", { class: "n" }, `${h}, ${r.name}`)))],
      [...rows.values()].map((x) => el("tr", {}, el("td", {}, x.l.axes), el("td", {}, x.l.level), data.runs.map((r, i) => cells(x.of[i], r))))));
}

const total = (list, key, run) => list.reduce((s, c) => s + c[key][run], 0);

// hiddenText says how long several take together, and what of it kernels hide.
function hiddenText(list, run) {
  const all = total(list, "d", run), hidden = total(list, "h", run);
  return [list.length > 1 && el("div", { class: "muted" }, `${seconds(all / 1e9)} in all`),
    el("div", { class: "muted" }, all && hidden / all > 0.0005 ? `${percent(hidden / all)} behind kernels` : "nothing hides it")];
}

// alike puts together the same collective of several layers.
function alike(list) {
  const groups = new Map();
  list.forEach((c) => {
    const key = isLayer(c.l) ? [c.k, shortName(c.n, c.l), c.e, c.r.replace(/layers\.\d+/g, "layers")].join("\n") : c.n;
    groups.set(key, [...(groups.get(key) || []), c]);
  });
  return [...groups.values()];
}

function collectiveRows(g, timed) {
  const c = g[0], many = g.length > 1;
  const open = g.some((x) => x.n === state.node || (x.v || []).includes(state.node)) && many;
  const more = g.map((x) => collectiveRow(x, [x], x.n, "", timed, "sub"));
  const name = many ? `layers.*.${shortName(c.n, c.l)}` : c.n;
  const extra = many ? ` ×${g.length}` : "";
  const row = collectiveRow(c, g, name, extra, timed, "");
  if (many) {
    const b = el("button", { type: "button", class: "link", "aria-expanded": String(open) }, open ? "hide them" : `show all ${g.length}`);
    b.addEventListener("click", (e) => {
      e.stopPropagation();
      const show = b.getAttribute("aria-expanded") !== "true";
      b.setAttribute("aria-expanded", String(show));
      b.textContent = show ? "hide them" : `show all ${g.length}`;
      for (const r of more) r.hidden = !show;
    });
    row.firstChild.append(el("div", {}, `layers ${ranges(g.map((x) => layerOf(x.l)))} · `, b));
    for (const r of more) r.hidden = !open;
    return [row, ...more];
  }
  return [row];
}

function collectiveRow(c, g, name, extra, timed, sub) {
  return el("tr", { class: `c ${sub} ${!sub && g.length > 1 ? "" : c.n === state.node ? "chosen" : ""}`, "data-name": g.length > 1 ? "" : c.n, onclick: () => choose(c.n) },
    el("td", {}, el("span", { class: "badge comm" }, c.k), " ", el("code", {}, name), el("b", {}, extra), !sub && el("div", { class: "reason narrow" }, c.r || "")),
    el("td", { class: "wide" }, sub ? "" : el("div", { class: "reason" }, c.r || "")), el("td", { class: "n wide" }, el("code", {}, c.e)),
    data.runs.map((r, i) => [el("td", { class: "n" }, bytes(c.p[i])), el("td", { class: "n wide" }, bytes(c.s[i])),
      timed && el("td", { class: "n" }, seconds(c.d[i] / 1e9), sub ? "" : hiddenText(g, i))]));
}
