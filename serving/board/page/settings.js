// Parameters of requests. An empty field leaves the server's default.

const fields = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05 },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01 },
  { name: "top_k", label: "Top k", min: -1, max: 2 ** 31 - 1, step: 1 },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01 },
  { name: "repetition_penalty", label: "Repetition", min: 0.01, max: 100, step: 0.01 },
  { name: "max_tokens", label: "Max tokens", min: 1, max: 1 << 24, step: 1 },
  { name: "seed", label: "Seed", min: 0, max: 2 ** 53 - 1, step: 1 },
];

const settings = { as: "chat", system: "", format: "markdown", keep: "browser", model: "", ...stored.read("settings") };

function startSettings() {
  const change = (name, value) => { settings[name] = value; stored.write("settings", settings); };
  const mode = el("select", { id: "as", onchange: (e) => { change("as", e.target.value); showMode(); } },
    el("option", { value: "chat" }, "Chat"), el("option", { value: "text" }, "Text to continue"));
  mode.value = settings.as === "text" ? "text" : "chat";
  const system = el("textarea", { id: "system", rows: 2, oninput: (e) => change("system", e.target.value) });
  system.value = String(settings.system || "");
  const inputs = fields.map((f) => {
    const input = el("input", { id: f.name, type: "number", min: f.min, max: f.max, step: f.step, placeholder: "default", inputmode: "decimal", "aria-describedby": `${f.name}-bad`,
      oninput: (e) => { const ok = e.target.checkValidity(); e.target.setAttribute("aria-invalid", String(!ok)); if (ok) change(f.name, e.target.value === "" ? null : Number(e.target.value)); } });
    if (typeof settings[f.name] === "number") input.value = settings[f.name];
    return el("label", {}, f.label, input);
  });
  const secret = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", placeholder: "if required", onchange: (e) => { key.set(e.target.value); hello(); } });
  secret.value = key.value;
  const choice = (name, label, options, after) => {
    const s = el("select", { id: name, onchange: (e) => { change(name, e.target.value); after(); } }, Object.entries(options).map(([value, text]) => el("option", { value }, text)));
    s.value = settings[name] in options ? settings[name] : Object.keys(options)[0];
    return el("label", {}, label, s);
  };
  byId("settings").append(el("label", {}, "Mode", mode), ...inputs, choice("format", "Answers as", { markdown: "Markdown", plain: "Plain text" }, () => {}),
    choice("keep", "Keep the chat", { browser: "Yes", no: "No" }, () => remember()), el("label", {}, "Key", secret), el("label", { class: "wide", id: "system-row" }, "System prompt", system));
  byId("toggle").addEventListener("click", () => openSettings(byId("settings").hidden));
  showMode();
}

function openSettings(on) {
  byId("settings").hidden = !on;
  byId("toggle").setAttribute("aria-expanded", String(on));
  if (on) byId("as").focus();
}

function showMode() {
  byId("system-row").hidden = settings.as === "text";
  byId("prompt").placeholder = settings.as === "text" ? "Text that the model continues" : "Ask the model something";
}

let models = []; // names

// offer shows the names of the server's models: one as a title, several to choose from.
function offer(names) {
  models = names;
  const one = names.length < 2, select = byId("models"), chosen = names.includes(settings.model) ? settings.model : names[0];
  byId("model").classList.toggle("sr", !one);
  select.hidden = one;
  select.replaceChildren(...names.map((n) => el("option", { value: n }, n)));
  select.value = chosen;
  say(byId("model"), chosen);
  document.title = `${chosen} · krait serve`;
}

// request returns the path and the body of a request for a conversation.
function request(messages) {
  const body = { stream: true, stream_options: { include_usage: true } };
  if (models.length > 1) body.model = byId("models").value;
  for (const f of fields) if (typeof settings[f.name] === "number") body[f.name] = settings[f.name];
  if (settings.as === "text") {
    return ["/v1/completions", { ...body, max_tokens: body.max_tokens || 256, prompt: messages[messages.length - 1].content }];
  }
  const system = settings.system ? [{ role: "system", content: settings.system }] : [];
  return ["/v1/chat/completions", { ...body, messages: [...system, ...messages.map(({ role, content }) => ({ role, content }))] }];
}
