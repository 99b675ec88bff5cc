// What all parts of the page use: settings that the browser stores, and the key.

// say changes a text only where it is another, so that nothing is read out twice.
function say(e, text) { if (e.textContent !== text) e.textContent = text; }

const percent = (x) => `${Math.round(100 * x)} %`;

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
