// The proof of the partitioned graph.

views.proof = {
  title: "Proof",
  show(main) {
    const c = data.certificate;
    if (!c) {
      main.append(el("div", { class: "head" }, el("h2", {}, "Not proved"), el("p", {}, data.unproved || "No proof was made.")));
      return {};
    }
    const m = c.minimum, known = !m.none && !m.unknown;
    main.append(
      el("div", { class: "head" }, el("h2", {}, "Proved"), el("p", {}, "The layouts of all nodes follow from the rules of the operations, every value of the source is computed once, and every partial sum is reduced before anything that needs it whole. The proof's search gives a lower bound of collectives.")),
      el("div", { class: "cards" }, card(number(c.nodes), "nodes whose layouts were derived again"), card(count(c.collectives, "collective"), known ? `the minimum is ${m.collectives}` : m.unknown || m.none),
        card(`${number(c.sent_bytes_one_token)} B`, `sent by a rank for one token${known ? `; the minimum is ${number(m.sent_bytes_one_token)}` : ""}`), card(c.exact ? "exact" : "rounded", "what travels between ranks"),
        card(data.executed ? "executed" : "not executed", data.executed ? "and compared in float64" : "krait prove runs it, too")),
      el("section", { class: "panel" }, el("h3", {}, "Part by part"), tableOf(["blocks", "collectives", "minimum", "made by, needed by", el("th", { class: "n" }, "sent by a rank")],
        c.parts.filter((p) => p.blocks.length || p.collectives.length).map(partRow))),
      c.outside_of_class && c.outside_of_class.length ? el("section", { class: "panel" }, el("h3", {}, "Outside of the class"), el("p", {}, c.outside_of_class.join("; "))) : "",
      el("section", { class: "panel" }, el("h3", {}, "The certificate"), el("pre", {}, data.certificate_text)));
    return {};
  },
};

function partRow(p) {
  const blocks = p.blocks.length ? `${p.blocks.length === 1 ? "layer" : "layers"} ${ranges(p.blocks.map((b) => Number(b.slice("layers.".length))))}` : "outside of layers";
  const m = p.minimum, n = p.collectives.length;
  const verdict = m.unknown ? "not established" : m.none ? "no placement in the class" : n === m.collectives ? "the minimum" : `${m.collectives}`;
  return el("tr", {}, el("td", {}, blocks, p.blocks.length > 1 ? el("div", { class: "muted" }, count(p.blocks.length, "equal block")) : ""), el("td", {}, `${n}${p.blocks.length > 1 ? " each" : ""}`),
    el("td", {}, el("span", { class: `badge ${verdict === "the minimum" ? "ok" : "change"}` }, verdict)),
    el("td", {}, p.collectives.map((c) => el("div", {}, el("span", { class: "badge comm" }, c.kind), " ", el("code", {}, c.values.join(", ")), el("div", { class: "reason" }, `${(c.made_by || []).join(", ")}; needed by ${(c.needed_by || []).join(", ") || "nothing"}`))),
      [...(p.notes || []), ...(p.inexact || [])].map((t) => el("div", { class: "reason" }, t)), (p.outside_of_class || []).map((t) => el("div", { class: "reason" }, `outside of the class: ${t}`))),
    el("td", { class: "n" }, el("code", {}, p.sent_bytes)));
}
