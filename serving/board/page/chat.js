// The conversation: messages, and the answer in progress.

const chat = { messages: [], active: null }; // active: the AbortController of the answer in progress

const keptMost = 2_000_000; // letters of a conversation that the browser keeps

// remember keeps the conversation in the browser, and an answer in progress as far as it came.
function remember(partial) {
  const list = partial ? [...chat.messages, partial] : chat.messages.slice();
  let size = 0, from = list.length;
  while (from > 0 && (size += list[from - 1].content.length) <= keptMost) from--;
  stored.write("chat", settings.keep === "no" ? [] : list.slice(from));
}

// restore shows the conversation that the browser kept.
function restore() {
  const kept = stored.read("chat");
  if (!Array.isArray(kept) || settings.keep === "no") return;
  for (const m of kept) {
    if (!m || typeof m.content !== "string" || m.role !== "user" && m.role !== "assistant") continue;
    const message = { role: m.role, content: m.content, as: m.as === "text" ? "text" : "chat", about: typeof m.about === "string" ? m.about : "" };
    if (!chat.messages.length) byId("log").replaceChildren();
    chat.messages.push(message);
    const shown = bubble(m.role, m.role === "user" ? m.content : "");
    if (m.role === "assistant") { const r = render(shown, message.as); r.add(m.content); r.show(); foot(shown, message.about, m.content); }
  }
  if (chat.messages.length && chat.messages[chat.messages.length - 1].role === "user") foot(bubble("assistant", ""), "The answer did not come.", "");
  follow(true);
}

function startChat() {
  byId("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
  byId("prompt").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
  });
  byId("prompt").addEventListener("input", grow);
  byId("stop").addEventListener("click", stop);
  byId("clear").addEventListener("click", clear);
  addEventListener("pagehide", () => { if (chat.partial) remember(chat.partial()); });
  greet();
  restore();
}

// render returns the rendering of an answer: Markdown, or plain for texts to continue and by choice.
function render(shown, as) {
  const plain = as === "text" || settings.format === "plain";
  shown.body.classList.toggle("markdown", !plain);
  return new rendering(shown.body, plain);
}

// grow lets the field be as high as its text, within bounds of the style.
function grow() {
  const p = byId("prompt");
  p.style.height = "auto";
  p.style.height = `${p.scrollHeight + 2}px`;
}

function greet() {
  if (chat.messages.length) return;
  byId("log").replaceChildren(el("div", { class: "empty" }, el("p", {}, "No messages yet."), el("p", { class: "muted" }, "Messages go to this server only. The board shows how it processes them.")));
}

function clear() {
  stop();
  chat.messages = [];
  remember();
  greet();
  byId("prompt").focus();
}

function stop() { if (chat.active) chat.active.abort(); }

function busy(control) {
  chat.active = control;
  byId("stop").hidden = !control;
  byId("send").hidden = !!control;
}

// bubble shows a message.
function bubble(role, text) {
  const body = el("div", { class: "text" }, text);
  const foot = el("div", { class: "foot muted" });
  const box = el("article", { class: `message ${role}`, "aria-label": role === "user" ? "You" : "The model" }, el("div", { class: "who" }, role === "user" ? "You" : "Model"), body, foot);
  byId("log").append(box);
  return { box, body, foot };
}

function send() {
  const text = byId("prompt").value;
  if (!text.trim() || chat.active) return;
  byId("prompt").value = "";
  grow();
  if (!chat.messages.length) byId("log").replaceChildren();
  chat.messages.push({ role: "user", content: text });
  remember();
  bubble("user", text);
  answer();
}

// again replaces the last answer by a new one.
function again() {
  if (chat.active) return;
  while (chat.messages.length && chat.messages[chat.messages.length - 1].role === "assistant") chat.messages.pop();
  const log = byId("log");
  while (log.lastChild && !log.lastChild.classList.contains("user")) log.lastChild.remove();
  if (chat.messages.length) answer();
}

// answer requests the next message, and shows it as it streams.
async function answer() {
  const control = new AbortController(), messages = chat.messages, shown = bubble("assistant", "");
  const as = settings.as, out = render(shown, as);
  shown.box.setAttribute("aria-busy", "true");
  busy(control);
  follow(true);
  const begun = performance.now(), got = { text: "", tokens: 0, first: 0, last: 0, finish: "", usage: null, error: "" };
  chat.partial = () => got.text && chat.messages === messages ? { role: "assistant", content: got.text, as, about: "interrupted" } : null;
  try {
    const [path, body] = request(messages);
    const reply = await ask(path, { method: "POST", signal: control.signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (!reply.ok) {
      got.error = await failure(reply);
      if (reply.status === 401) wantKey(got.error);
    } else {
      for await (const part of events(reply.body)) take(part, got, out);
    }
  } catch (e) {
    if (control.signal.aborted) got.finish = "stopped";
    else got.error = e.message === "Failed to fetch" ? "the server does not respond" : e.message;
  }
  if (chat.active === control) busy(null);
  chat.partial = null;
  out.show();
  shown.box.removeAttribute("aria-busy");
  const about = finish(shown, got, begun);
  if (chat.messages === messages) {
    if (got.text) messages.push({ role: "assistant", content: got.text, as, about });
    remember();
  }
  follow(false);
}

// take adds an event to the answer.
function take(part, got, out) {
  if (part.error) { got.error = String(part.error.message); return; }
  if (part.usage) got.usage = part.usage;
  const c = part.choices && part.choices[0];
  if (!c) return;
  const thought = c.delta && c.delta.reasoning_content;
  if (typeof thought === "string" && thought) {
    got.last = performance.now();
    got.first = got.first || got.last;
    if (!got.thoughts) out.box.prepend(got.thoughts = el("p", { class: "muted thoughts" }));
    got.thoughts.append(thought);
  }
  const text = c.delta ? c.delta.content : c.text;
  if (typeof text === "string" && text) {
    got.last = performance.now();
    got.first = got.first || got.last;
    got.text += text;
    const near = atEnd();
    out.add(text);
    if (near) follow(true);
  }
  if (c.finish_reason) got.finish = c.finish_reason;
}

// finish shows the figures of an answer below it, and returns them.
function finish(shown, got, begun) {
  if (got.error) shown.body.append(el("p", { class: "error", role: "alert" }, got.error));
  else if (!got.text) shown.body.append(el("p", { class: "muted" }, got.finish === "stopped" ? "Stopped before the first token." : "The answer is empty."));
  const facts = [];
  const why = { stopped: "stopped", length: "ended by max tokens" }[got.finish];
  if (why) facts.push(why);
  if (got.usage) {
    facts.push(count(got.usage.completion_tokens, "token"));
    const cached = got.usage.prompt_tokens_details ? got.usage.prompt_tokens_details.cached_tokens : 0;
    facts.push(`prompt of ${number(got.usage.prompt_tokens)}${cached ? `, ${number(cached)} cached` : ""}`);
    if (got.last > got.first && got.usage.completion_tokens > 1) facts.push(`${digits((got.usage.completion_tokens - 1) / (got.last - got.first) * 1000)} tokens/s`);
  }
  if (got.first) facts.push(`first token after ${seconds((got.first - begun) / 1000)}`);
  foot(shown, facts.join(" · "), got.text);
  return facts.join(" · ");
}

// foot shows what is known of an answer, and what can be done with it.
function foot(shown, about, text) {
  shown.foot.replaceChildren(el("span", {}, about),
    text && el("button", { type: "button", class: "link", onclick: (e) => copy(e.target, text) }, "Copy") || "",
    el("button", { type: "button", class: "link again", onclick: again }, "Regenerate"));
  for (const b of document.querySelectorAll("#log .again")) b.hidden = b.closest(".message") !== shown.box;
}

async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); say(button, "Copied"); } catch { say(button, "Not allowed"); }
  setTimeout(() => say(button, "Copy"), 1500);
}

const atEnd = () => { const l = byId("log"); return l.scrollHeight - l.scrollTop - l.clientHeight < 60; };

// follow scrolls to the end.
function follow(always) {
  const l = byId("log");
  if (always || atEnd()) l.scrollTop = l.scrollHeight;
}
