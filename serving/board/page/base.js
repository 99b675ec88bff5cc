// What all parts of the page use: stored settings, and the API key.

// say sets a text only if it differs, so that screen readers do not repeat it.
function say(e, text) { if (e.textContent !== text) e.textContent = text; }

const percent = (x) => `${Math.round(100 * x)} %`;

const calm = matchMedia("(prefers-reduced-motion: reduce)");

// stored is the browser's local storage. The API key is not in it, but in the tab's session storage.
const stored = {
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

// ask sends a request to this server, never to another.
function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" });
}

// failure returns the message of an error response.
async function failure(answer) {
  try {
    const said = await answer.json();
    if (said.error && said.error.message) return String(said.error.message);
  } catch { /* it is no JSON */ }
  return `the server answered with status ${answer.status}`;
}
