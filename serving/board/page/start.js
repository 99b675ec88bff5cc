// The frame: views, keyboard shortcuts, light and dark, and the API key.

const keysOf = [["Enter", "send"], ["Shift Enter", "a new line"], ["Esc", "stop the answer; leave a field"], ["/", "focus the message"], ["s", "settings"], ["n", "a new conversation"], ["1 2", "chat, board"], ["p", "board: pause or resume"], ["t", "light or dark"]];

const dark = () => document.documentElement.classList.contains("dark");

function setTheme(on) {
  document.documentElement.classList.toggle("dark", on);
  byId("theme").textContent = on ? "☀" : "☾";
  if (board.last) draw(board.last);
}

function view(name) {
  document.body.dataset.view = name;
  for (const v of ["chat", "board"]) {
    byId(`tab-${v}`).setAttribute("aria-selected", String(v === name));
    byId(`tab-${v}`).tabIndex = v === name ? 0 : -1;
  }
  if (name === "chat" && chat.active) follow(true);
  if (board.last) draw(board.last);
  look();
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || byId("help").open || byId("ask").open) return;
  if (e.key === "Escape") {
    if (chat.active) stop();
    else if (e.target.closest("input, select, textarea")) e.target.blur();
    return;
  }
  if (e.target.closest("input, select, textarea")) return;
  const tab = e.target.closest("[role=tab]");
  if (tab && (e.key === "ArrowLeft" || e.key === "ArrowRight")) {
    view(document.body.dataset.view === "chat" ? "board" : "chat");
    byId(`tab-${document.body.dataset.view}`).focus();
  } else if (e.key === "1" || e.key === "2") view(e.key === "1" ? "chat" : "board");
  else if (e.key === "/") { view("chat"); byId("prompt").focus(); }
  else if (e.key === "s") { view("chat"); openSettings(byId("settings").hidden); }
  else if (e.key === "n") { view("chat"); clear(); }
  else if (e.key === "p") pause(!board.paused);
  else if (e.key === "t") setTheme(!dark());
  else if (e.key === "?") byId("help").showModal();
  else return;
  e.preventDefault();
}

function status(text) {
  const s = byId("status");
  say(s, text);
  s.className = `badge ${{ ready: "ok", draining: "change", "no answer": "cut", "key required": "change" }[text] || ""}`;
}

// wantKey opens the dialog for the API key, unless it is open.
function wantKey(why) {
  status("key required");
  if (byId("ask").open) return;
  if (key.value) say(byId("ask-why"), why);
  byId("ask").showModal();
}

// hello requests the names of the models.
async function hello() {
  try {
    const reply = await ask("/v1/models");
    if (reply.status === 401) return wantKey(await failure(reply));
    if (!reply.ok) throw new Error();
    offer((await reply.json()).data.map((m) => String(m.id)));
    status("ready");
  } catch { status("no answer"); }
}

function start() {
  startSettings();
  startChat();
  byId("models").addEventListener("change", (e) => { settings.model = e.target.value; stored.write("settings", settings); offer(models); });
  for (const v of ["chat", "board"]) byId(`tab-${v}`).addEventListener("click", () => view(v));
  byId("theme").addEventListener("click", () => setTheme(!dark()));
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("help").append(el("h2", {}, "Keys"), el("dl", {}, keysOf.map(([k, t]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, t)])), el("p", {}, el("button", { type: "button", onclick: () => byId("help").close() }, "Close")));
  byId("ask-form").addEventListener("submit", () => { key.set(byId("ask-key").value); byId("key").value = key.value; byId("ask-key").value = ""; });
  byId("ask").addEventListener("close", () => { hello(); look(); });
  document.addEventListener("keydown", onKey);
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(system.matches);
  system.addEventListener("change", (e) => setTheme(e.matches));
  hello();
  startBoard();
  byId("prompt").focus();
}

start();
