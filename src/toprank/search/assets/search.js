"use strict";
// Everything that comes from documents or from the service is put in place as text, never as markup.
const at = id => document.getElementById(id);
let asked = 0, shown = null, keeps = false;

function made(name, kind, ...content) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  element.append(...content);
  return element;
}

function button(words, label, act) {
  const element = made("button", "", words);
  element.type = "button";
  if (label) element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

function say(words, wrong) {
  at("message").textContent = words;
  at("message").className = wrong ? "wrong" : "";
}

async function ask(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (at("token").value) headers["Authorization"] = "Bearer " + at("token").value;
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw new Error("The service does not answer. Is it still running?");
  }
  let told = {};
  try {
    told = await answer.json();
  } catch { /* the status says enough */ }
  if (answer.status === 401) at("access").hidden = false;
  if (!answer.ok) throw new Error(told.error || `The service answered with status ${answer.status}.`);
  return told;
}

const number = value => value.toLocaleString("en");

async function about() {
  const told = await ask("/v1/search/about", {});
  keeps = told.logs;
  document.title = `${told.name} · toprank search`;
  at("about").textContent = `${told.name}: ${number(told.documents)} documents (${told.fields.join(", ")}). ` +
    (told.model ? `${told.first_stage} finds ${number(told.pool)} candidates; ${told.model} orders them by ${told.features} features.`
      : `${told.first_stage} makes the order; no ranker is trained yet.`) +
    (keeps ? " What you open and judge is logged for training." : "");
  const examples = told.examples.slice(0, 5);
  at("examples").replaceChildren(...(examples.length ? ["Try: "] : []), ...examples.map(words => {
    return button(words.length > 90 ? words.slice(0, 90) + " …" : words, "", () => { at("query").value = words; search(words); });
  }));
}

function movement(rank, before) {
  const moved = before - rank, element = made("span", "moved" + (moved > 0 ? " up" : moved < 0 ? " down" : ""));
  element.textContent = moved > 0 ? `▲ ${moved}, from ${before}` : moved < 0 ? `▼ ${-moved}, from ${before}` : "= same";
  element.setAttribute("aria-label", moved ? `${moved > 0 ? "up" : "down"} ${Math.abs(moved)}, from rank ${before} of the first stage`
    : "same rank as in the first stage");
  return element;
}

function passage(pieces) {
  return made("p", "passage", ...pieces.map((piece, i) => (i % 2 ? made("mark", "", piece) : piece)));
}

function event(kind, id) {
  if (!shown || !shown.request || !shown.ranking.some(one => one.id === id)) return Promise.resolve(false);
  return ask("/v1/events", { request: shown.request, events: [{ kind, document: id }] }).then(() => true);
}

function item(one, next, told) {
  const name = one.title || one.id, rank = made("span", "rank", String(one.rank));
  const title = made("button", "title", name);
  title.type = "button";
  title.addEventListener("click", () => open(one.id));
  const top = made("div", "top", rank, title, ...(told.learned ? [movement(one.rank, one.first_stage_rank)] : []));
  const row = made("li", "", top, passage(one.passage)), tools = made("div", "tools");
  if (told.request) {
    for (const [kind, sign, words, bad] of [["like", "Good", "Good result", ""], ["dislike", "Bad", "Bad result", "bad"]]) {
      const thumb = button(sign, `${words}: ${name}`, async () => {
        try {
          await event(kind, one.id);
          thumb.setAttribute("aria-pressed", "true");
        } catch (problem) {
          say(problem.message, true);
        }
      });
      thumb.className = bad;
      thumb.setAttribute("aria-pressed", "false");
      tools.append(thumb);
    }
  }
  if (told.learned && next) {
    const why = button("Why above the next?", `Why is ${name} above ${next.title || next.id}?`, () => explain(row, why, one, next));
    why.setAttribute("aria-expanded", "false");
    tools.append(why);
  }
  if (tools.childElementCount) row.append(tools);
  return row;
}

function short(one, told) {
  const title = made("button", "title", one.title || one.id);
  title.type = "button";
  title.addEventListener("click", () => open(one.id));
  const place = made("span", "moved", `now ${one.rank}`);
  place.setAttribute("aria-label", `rank ${one.rank} in the learned order`);
  return made("li", "", made("div", "top", made("span", "rank", String(one.first_stage_rank)), title, ...(told.learned ? [place] : [])));
}

async function search(words, keep) {
  const turn = ++asked;
  if (!words.trim()) {
    at("lists").hidden = true;
    say("Type some words to search for.");
    return;
  }
  if (!keep) history.pushState(null, "", "/?q=" + encodeURIComponent(words));
  say("Searching …");
  at("examples").hidden = true;
  try {
    const told = await ask("/v1/search", { query: words });
    if (turn !== asked) return; // another search was started since
    shown = told;
    at("learned").replaceChildren(...told.ranking.map((one, i) => item(one, told.ranking[i + 1], told)));
    at("first").replaceChildren(...told.first_stage.map(one => short(one, told)));
    at("learned-title").textContent = told.learned ? "Learned order" : "First stage";
    at("first-section").hidden = !told.learned;
    at("lists").className = told.learned ? "" : "alone";
    at("lists").hidden = !told.ranking.length;
    const spent = Object.entries(told.milliseconds), whole = spent.reduce((sum, [, ms]) => sum + ms, 0);
    const parts = spent.filter(([, ms]) => ms >= 0.05).map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(", ");
    say(told.ranking.length ? `${number(told.found)} candidates in ${whole.toFixed(1)} ms (${parts}).` : told.note || "Nothing was found.");
  } catch (problem) {
    if (turn !== asked) return;
    at("lists").hidden = true;
    say(problem.message, true);
  }
}

async function explain(row, control, a, b) {
  const before = row.querySelector(".why");
  if (before) {
    before.remove();
    control.setAttribute("aria-expanded", "false");
    return;
  }
  try {
    const told = await ask("/v1/search/why", { query: shown.query, a: a.id, b: b.id });
    const largest = Math.max(...told.reasons.map(one => Math.abs(one.contribution)), 1e-300);
    const rows = told.reasons.map(one => {
      const bar = made("span", "bar" + (one.contribution < 0 ? " minus" : ""));
      bar.style.width = `${Math.max(2, 100 * Math.abs(one.contribution) / largest)}%`;
      const drawn = made("td", "drawn", bar);
      return made("tr", "", made("th", "", one.feature), made("td", "number", one.a), made("td", "number", one.b), drawn,
        made("td", "number", (one.contribution > 0 ? "+" : "") + one.contribution.toPrecision(3)));
    });
    const head = made("tr", "", ...["feature", "here", "next", "", "share"].map(words => made("th", "", words)));
    const box = made("div", "why", made("p", "", told.summary), made("table", "", head, ...rows));
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Why");
    row.append(box);
    control.setAttribute("aria-expanded", "true");
  } catch (problem) {
    say(problem.message, true);
  }
}

async function open(id) {
  try {
    const told = await ask("/v1/search/document", { id });
    at("document-title").textContent = told.title || told.id;
    at("document-id").textContent = told.id;
    const several = Object.keys(told.fields).length > 1, parts = [];
    for (const [name, text] of Object.entries(told.fields)) {
      if (several) parts.push(made("h3", "", name));
      parts.push(made("div", "", text || "(empty)"));
    }
    if (told.cut) parts.push(made("p", "", "… The rest of this document is not shown."));
    at("document-text").replaceChildren(...parts);
    at("document-text").scrollTop = 0;
    at("document").showModal();
    await event("click", id);
  } catch (problem) {
    say(problem.message, true);
  }
}

function fromAddress() {
  const words = new URLSearchParams(location.search).get("q") || "";
  at("query").value = words;
  if (words) search(words, true);
  else {
    at("lists").hidden = true;
    at("examples").hidden = false;
    say("");
  }
}

at("form").addEventListener("submit", happened => {
  happened.preventDefault();
  search(at("query").value);
});
addEventListener("popstate", fromAddress);
addEventListener("keydown", pressed => {
  if (pressed.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName) && !at("document").open) {
    pressed.preventDefault();
    at("query").focus();
    at("query").select();
  }
});
at("token").addEventListener("change", () => about().then(fromAddress).catch(problem => say(problem.message, true)));
about().then(fromAddress).catch(problem => say(problem.message, true));
