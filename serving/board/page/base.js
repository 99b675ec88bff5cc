// What all parts use: elements, figures, what is kept in the browser, and the key.

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

// say changes a text only where it is another, so that nothing is read out twice.
function say(e, text) { if (e.textContent !== text) e.textContent = text; }

const number = (n) => n.toLocaleString("en-US");
const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;
const digits = (x) => x >= 100 ? number(Math.round(x)) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
const percent = (x) => `${Math.round(100 * x)} %`;

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
  return "0 s";
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");

// kept is what the browser remembers. The key is not among it: that is the tab's.
const kept = {
  read(name) { try { return JSON.parse(localStorage.getItem(`krait.${name}`)); } catch { return null; } },
  write(name, value) { try { localStorage.setItem(`krait.${name}`, JSON.stringify(value)); } catch { /* it is not remembered */ } },
};

const key = {
  value: (() => { try { return sessionStorage.getItem("krait.key") || ""; } catch { return ""; } })(),
  set(value) {
    key.value = value.trim();
    try { key.value ? sessionStorage.setItem("krait.key", key.value) : sessionStorage.removeItem("krait.key"); } catch { /* it is for this page only */ }
  },
};

// ask asks the server. Addresses are its own, whatever happens.
function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" });
}

// failure is what an answer that is none says.
async function failure(answer) {
  try {
    const said = await answer.json();
    if (said.error && said.error.message) return String(said.error.message);
  } catch { /* it is no JSON */ }
  return `the server answers with status ${answer.status}`;
}
