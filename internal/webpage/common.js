// What all pages use: elements, and figures as texts.

const byId = (id) => document.getElementById(id);

// el makes an element. Texts come in as text nodes, never as markup.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(e, attributes);
  e.append(...children);
  return e;
}

function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
}

const number = (n) => n.toLocaleString("en-US");
const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;

// digits leaves three significant digits, and all before the point.
const digits = (x) => x >= 100 ? number(Math.round(x)) : x >= 10 ? x.toFixed(1) : x.toFixed(2);

function bytes(n) {
  for (const [size, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) {
    if (n >= size) return `${digits(n / size)} ${unit}`;
  }
  return `${number(n)} B`;
}

function seconds(s) {
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (s >= size) return `${digits(s / size)} ${unit}`;
  }
  return s > 0 ? `${digits(s * 1e9)} ns` : "0 s";
}

