// Markdown of answers, as elements. A text is never markup: what is no Markdown is shown as written.

const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const listItem = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;

// inlineParts finds code, links and emphasis. A pattern of a mark takes no mark of its own kind, so
// that it is linear in the line.
const inlineParts = /(`+)([^`](?:[^`]|(?!\1)`)*?)\1(?!`)|!?\[([^\[\]\n]{1,500})\]\(<?([^\s()<>]{1,2000})>?(?: "[^"\n]{0,200}")?\)|\*\*(?=\S)([^*\n]+(?:\*[^*\n]+\*[^*\n]*)?)\*\*|\*(?=[^\s*])([^*\n]+)\*|(?<!\w)_(?=\S)([^_\n]+)_(?!\w)|~~(?=\S)([^~\n]+)~~|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;

// inline returns the nodes of a line of text.
function inline(text, depth = 0) {
  const out = [];
  let at = 0;
  if (depth < 6) for (const m of text.matchAll(inlineParts)) {
    if (m.index > 0 && text[m.index - 1] === "\\") continue;
    out.push(text.slice(at, m.index), part(m, depth + 1));
    at = m.index + m[0].length;
  }
  out.push(text.slice(at));
  return out.filter((x) => x !== "").map((x) => typeof x === "string" ? x.replace(/\\([\\`*_{}\[\]()#+.!|~>-])/g, "$1") : x);
}

function part([all, , code, label, address, strong, em, em2, gone, bare], depth) {
  if (code !== undefined) return el("code", {}, code.trim() || code);
  if (label !== undefined) return link(address, inline(label, depth), all);
  if (strong !== undefined) return el("strong", {}, inline(strong, depth));
  if (gone !== undefined) return el("del", {}, inline(gone, depth));
  if (bare !== undefined) return link(bare, bare, all);
  return el("em", {}, inline(em === undefined ? em2 : em, depth));
}

// link opens http and https addresses in another tab, which does not learn of this page. Others, and
// images, are shown as they are written.
function link(address, content, written) {
  let url;
  try { url = new URL(address); } catch { return written; }
  if (!/^https?:\/\//i.test(address) || !["http:", "https:"].includes(url.protocol) || url.username || url.password || written.startsWith("!")) return written;
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, content);
}

// blocks returns the elements of a text.
function blocks(text, depth = 0) {
  const lines = text.split("\n"), out = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) out.push(el("p", {}, paragraph.flatMap((l, i) => i ? [el("br"), ...inline(l)] : inline(l))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    let m;
    if (m = fence.exec(line)) {
      flush();
      const code = [];
      for (i++; i < lines.length && !new RegExp(`^ {0,3}${m[1][0]}{${m[1].length},}\\s*$`).test(lines[i]); i++) code.push(lines[i]);
      out.push(codeBlock(code.join("\n"), m[2]));
    } else if (!line.trim()) flush();
    else if (m = /^ {0,3}(#{1,6})\s+(.*?)#*\s*$/.exec(line)) { flush(); out.push(el(`h${Math.min(6, m[1].length + 2)}`, {}, inline(m[2].trim()))); }
    else if (/^ {0,3}([-*_])( *\1){2,}\s*$/.test(line)) { flush(); out.push(el("hr")); }
    else if (depth < 8 && /^ {0,3}>/.test(line)) {
      flush();
      const quoted = [];
      for (; i < lines.length && /^ {0,3}>/.test(lines[i]); i++) quoted.push(lines[i].replace(/^ {0,3}> ?/, ""));
      i--;
      out.push(el("blockquote", {}, blocks(quoted.join("\n"), depth + 1)));
    } else if (depth < 8 && (m = listItem.exec(line))) { flush(); i = list(lines, i, m, out, depth) - 1; }
    else if (line.includes("|") && /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?$/.test(lines[i + 1] || "")) { flush(); i = table(lines, i, out) - 1; }
    else paragraph.push(line.trim());
  }
  flush();
  return out;
}

function codeBlock(code, language) {
  return el("figure", {}, el("figcaption", { class: "muted" }, language || "code", el("button", { type: "button", class: "link", onclick: (e) => copy(e.target, code) }, "Copy")),
    el("pre", { tabindex: 0 }, el("code", {}, code)));
}

// list adds a list, whose items hold the lines that are indented below them, and returns the line
// after it.
function list(lines, i, first, out, depth) {
  const ordered = /\d/.test(first[2]), items = [];
  for (let m; i < lines.length && (m = listItem.exec(lines[i])) && /\d/.test(m[2]) === ordered && m[1].length <= first[1].length + 1;) {
    const content = [m[4]], width = m[1].length + m[2].length + 1;
    for (i++; i < lines.length; i++) {
      const indent = lines[i].length - lines[i].trimStart().length;
      if (lines[i].trim() && indent <= m[1].length) break;
      if (!lines[i].trim() && !(i + 1 < lines.length && lines[i + 1].startsWith(" ".repeat(m[1].length + 2)))) break;
      content.push(lines[i].slice(Math.min(indent, width)));
    }
    const inner = blocks(content.join("\n"), depth + 1);
    items.push(el("li", {}, inner.length && inner[0].tagName === "P" ? [...inner[0].childNodes, ...inner.slice(1)] : inner));
    if (i + 1 < lines.length && !lines[i].trim() && listItem.test(lines[i + 1])) i++; // items with a line between them
  }
  out.push(el(ordered ? "ol" : "ul", ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {}, items));
  return i;
}

// table adds a table, and returns the line after it.
function table(lines, i, out) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());
  const sides = cells(lines[i + 1]).map((c) => !c.endsWith(":") ? null : c.startsWith(":") ? "center" : "right");
  const row = (tag, line) => el("tr", {}, cells(line).map((c, j) => el(tag, { class: sides[j] }, inline(c))));
  const head = row("th", lines[i]), body = [];
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) body.push(row("td", lines[i]));
  out.push(el("div", { class: "table", tabindex: 0 }, el("table", {}, el("thead", {}, head), el("tbody", {}, body))));
  return i;
}

// rendering shows a text that grows. Blocks before the last empty line outside of code are final, and
// only those after it are made again.
class rendering {
  constructor(box, plain) {
    Object.assign(this, { box, plain, text: "", done: 0, tail: [], due: 0 });
    if (plain) box.append(this.node = document.createTextNode(""));
  }

  add(text) {
    this.text += text;
    if (this.plain) this.node.appendData(text);
    else if (!this.due) this.due = setTimeout(() => this.show(), 60);
  }

  // show makes what is not final anew, and is called a last time when the text has ended.
  show() {
    clearTimeout(this.due);
    this.due = 0;
    if (this.plain) return;
    const near = atEnd();
    for (const e of this.tail) e.remove();
    const final = this.final();
    this.box.append(...blocks(this.text.slice(this.done, final)));
    this.done = final;
    this.tail = blocks(this.text.slice(final));
    this.box.append(...this.tail);
    if (near) follow(true);
  }

  // final returns where the last paragraph begins that later text cannot change, from done on.
  final() {
    let at = this.done, open = "", begin = this.done;
    for (const line of this.text.slice(this.done).split("\n")) {
      const m = fence.exec(line);
      if (m && !open) open = m[1];
      else if (open && line.trim().startsWith(open)) open = "";
      else if (!open && at > this.done && /^\S/.test(line) && !listItem.test(line) && this.text[at - 1] === "\n" && this.text[at - 2] === "\n") begin = at;
      at += line.length + 1;
    }
    return begin;
  }
}
