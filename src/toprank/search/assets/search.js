"use strict";
// Everything that comes from documents or from the service is put in place as text, never as markup.
const at = id => document.getElementById(id);
let asked = 0, shown = null, collection = "", trained = false;

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

function thumb() {
  const [picture, line] = ["svg", "path"].map(name => document.createElementNS("http://www.w3.org/2000/svg", name));
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  line.setAttribute("d", "M8 11v10H3V11zm0 0 4-8c1.7 0 2.6 1 2.6 2.5V9H21l-2 12H8z");
  picture.append(line);
  return picture;
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
    answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) });
  } catch (problem) {
    throw new Error(problem.name === "TimeoutError" ? "The service has not answered for a minute. Try again later."
      : "The service does not answer. Is it still running?");
  }
  let reply = {};
  try {
    reply = await answer.json();
  } catch { /* the status says enough */ }
  if (answer.status === 401) {
    at("access").hidden = false;
    at("token").select();
    throw new Error(at("token").value ? "The service does not take this token." : "This service answers only those who give its token.");
  }
  at("access").hidden = true;
  if (!answer.ok) throw Object.assign(new Error(reply.error || `The service answered with status ${answer.status}.`), { status: answer.status });
  return reply;
}

const number = value => value.toLocaleString("en");
const signed = (value, digits) => (value < 0 ? "−" : value > 0 ? "+" : "") + Math.abs(value).toFixed(digits);
const brief = text => (text.trim() && isFinite(text) ? String(Number(Number(text).toPrecision(3))).replace("-", "−") : text);
const nameOf = one => one.title || one.id;

async function about() {
  const reply = await ask("/v1/search/about", {});
  collection = reply.name;
  trained = reply.model !== null;
  at("query").placeholder = `Search ${number(reply.documents)} ${reply.documents === 1 ? "document" : "documents"} …`;
  at("about").replaceChildren(made("b", "", collection), " · " +
    (reply.model ? `${reply.first_stage} finds up to ${number(reply.n_candidates)} candidates, ${reply.model} reranks them by ${reply.features} features.`
      : `${reply.first_stage} ranks the documents; no model is trained yet.`) +
    (reply.logs ? " What you open and judge is logged for training." : ""));
  at("examples").replaceChildren(...reply.examples.map(words => button(words, "", () => search(words))));
}

function movement(rank, before, here) {
  // Reranked list: movement and old rank. First stage: rank after reranking.
  const up = before - rank, element = made("span", "moved" + (up > 0 ? " up" : up < 0 ? " down" : ""));
  const sign = up > 0 ? "▲" : up < 0 ? "▼" : "=";
  if (!up) element.append(here ? "= same" : "same");
  else element.append(made("b", "", here ? `${sign} ${Math.abs(up)}` : sign), here ? ` was ${before}` : ` now ${rank}`);
  const way = up > 0 ? `up ${up}` : `down ${-up}`;
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", !up ? "same rank in both orders"
    : here ? `${way}, from rank ${before} of the first stage` : `${way}, rank ${rank} after reranking`);
  return element;
}

function passage(pieces) {
  const element = made("p", "passage", ...pieces.map((piece, i) => (i % 2 ? made("mark", "", piece) : piece)));
  element.dir = "auto";
  return element;
}

async function event(kind, id) {
  if (!shown || !shown.request || !shown.ranking.some(one => one.id === id)) return;
  try {
    await ask("/v1/events", { request: shown.request, events: [{ kind, document: id }] });
  } catch (problem) {
    throw problem.status === 404 ? new Error("These results are too old to be judged; search again.") : problem;
  }
}

function entry(one, rank, reply, here) {
  // What both lists show of a document; the same one in the other list is lit while this one is pointed at.
  const title = button(nameOf(one), "", () => open(one.id));
  title.className = "title";
  title.dir = "auto";
  const moved = reply.reranked ? [movement(one.rank, one.first_stage_rank, here)] : [];
  const row = made("li", "", made("div", "top", made("span", "rank", String(rank)), title, ...moved));
  row.dataset.id = one.id;
  const light = lit => document.querySelectorAll("#lists li").forEach(other => {
    other.classList.toggle("twin", lit && reply.reranked && other.dataset.id === one.id);
  });
  for (const [happened, lit] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
    row.addEventListener(happened, () => light(lit));
  }
  return row;
}

function thumbs(one) {
  const both = [["like", "Good", ""], ["dislike", "Bad", "bad"]].map(([kind, words, look]) => {
    const control = button(words, `${words} result: ${nameOf(one)}`, async () => {
      if (control.getAttribute("aria-pressed") === "true") return; // it is in the log already
      try {
        await event(kind, one.id);
        for (const each of both) each.setAttribute("aria-pressed", String(each === control));
      } catch (problem) {
        say(problem.message, true);
      }
    });
    control.prepend(thumb());
    control.className = look;
    control.setAttribute("aria-pressed", "false");
    return control;
  });
  return both;
}

function item(one, place, reply) {
  const row = entry(one, one.rank, reply, true), tools = made("div", "tools", ...(reply.request ? thumbs(one) : []));
  row.append(passage(one.passage));
  if (reply.reranked && reply.ranking.length > 1) {
    const why = button("Why here?", `Why is ${nameOf(one)} at rank ${one.rank}?`, () => explain(row, why, one, place));
    why.setAttribute("aria-expanded", "false");
    tools.append(why);
  }
  if (tools.childElementCount) row.append(tools);
  return row;
}

async function search(words, keep) {
  const turn = ++asked, address = "/?q=" + encodeURIComponent(words);
  if (!words.trim()) {
    at("lists").hidden = true;
    say("Type some words to search for.");
    return;
  }
  at("query").value = words;
  document.title = `${words} · ${collection}`;
  if (!keep && location.pathname + location.search !== address) history.pushState(null, "", address);
  say("Searching …");
  document.body.classList.remove("home");
  at("examples").hidden = true;
  at("lists").classList.add("busy");
  try {
    const reply = await ask("/v1/search", { query: words });
    if (turn !== asked) return; // another search was started since
    shown = reply;
    if (reply.reranked !== trained) about().catch(problem => say(problem.message, true)); // it was trained meanwhile
    at("learned").replaceChildren(...reply.ranking.map((one, place) => item(one, place, reply)));
    at("first").replaceChildren(...reply.first_stage.map(one => entry(one, one.first_stage_rank, reply, false)));
    at("learned-title").textContent = reply.reranked ? "Reranked" : "First stage";
    at("first-section").hidden = !reply.reranked;
    at("lists").className = reply.reranked ? "" : "alone";
    at("lists").hidden = !reply.ranking.length;
    const spent = Object.entries(reply.milliseconds), whole = spent.reduce((sum, [, ms]) => sum + ms, 0);
    const parts = spent.filter(([, ms]) => ms >= 0.05).map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(" · ");
    say(reply.ranking.length ? `${number(reply.found)} ${reply.found === 1 ? "candidate" : "candidates"} in ${whole.toFixed(1)} ms: ${parts}. ${reply.note}`
      : reply.note || "Nothing was found.");
  } catch (problem) {
    if (turn !== asked) return;
    at("lists").hidden = true;
    say(problem.message, true);
  }
}

function explain(row, control, one, place) {
  const before = row.querySelector(".why");
  control.setAttribute("aria-expanded", String(!before));
  if (before) {
    before.remove();
    return;
  }
  // Any other document that is on the page; at first the next, or at the end the one before.
  const reply = shown, others = new Map([...reply.ranking, ...reply.first_stage].filter(other => other.id !== one.id).map(other => [other.id, other]));
  const choice = made("select", "", ...[...others.values()].map(other => new Option(`${other.rank}. ${nameOf(other)}`, other.id)));
  choice.value = (reply.ranking[place + 1] || reply.ranking[place - 1]).id;
  choice.setAttribute("aria-label", "The document to compare with");
  const lead = document.createTextNode(""), tried = made("p", ""), table = made("table", "");
  const box = made("div", "why", made("p", "", lead, choice), tried, table);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Why");
  row.append(box);
  const compare = async () => {
    const other = others.get(choice.value), above = one.rank < other.rank;
    lead.data = `${nameOf(one)} is ranked ${above ? "above" : "below"} `;
    try {
      const why = await ask("/v1/search/why", { query: reply.query, a: one.id, b: other.id, top: reply.ranking.length });
      if (choice.value !== other.id) return; // another was chosen since
      tried.textContent = above === why.total > 0 || !why.total ? ""
        : "Here the service tries out the order of two neighbors; the model itself would have it the other way round.";
      table.replaceChildren(...chart(why));
    } catch (problem) {
      say(problem.message, true);
    }
  };
  choice.addEventListener("change", compare);
  compare();
}

function chart(why) {
  const largest = Math.max(...why.reasons.map(one => Math.abs(one.contribution)), Math.abs(why.others), 1e-300);
  const digits = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(largest)))); // the same of all, so that they add up
  const line = (words, value, kind, drawn) => {
    const bar = made("span", "bar" + (value < 0 ? " minus" : "")), half = Math.max(1, 50 * Math.abs(value) / largest);
    bar.style.width = `${half}%`;
    bar.style.marginLeft = `${value < 0 ? 50 - half : 50}%`;
    return made("tr", kind, words, made("td", drawn ? "drawn" : "", ...(drawn ? [bar] : [])), made("td", "number", signed(value, digits)));
  };
  const rows = why.reasons.map(one => line(made("th", "", one.feature, made("span", "", `${brief(one.a)} against ${brief(one.b)}`), made("small", "", one.meaning)), one.contribution, "", true));
  if (why.others) rows.push(line(made("th", "", "all other features"), why.others, "", true));
  return [...rows, line(made("th", "", "difference of the scores"), why.total, "sum", false)];
}

async function open(id) {
  try {
    const reply = await ask("/v1/search/document", { id });
    at("document-title").textContent = reply.title || reply.id;
    at("document-id").textContent = reply.id;
    at("document-id").hidden = !reply.title || reply.title === reply.id;
    const several = Object.keys(reply.fields).length > 1, parts = [];
    for (const [name, text] of Object.entries(reply.fields)) {
      if (several) parts.push(made("h3", "", name));
      const part = made("div", "", text || "(empty)");
      part.dir = "auto";
      parts.push(part);
    }
    if (reply.cut) parts.push(made("p", "", "… The rest of this document is not shown."));
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
    asked++; // an answer that is on its way comes too late
    document.body.classList.add("home");
    document.title = `${collection} · toprank search`;
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
at("document").addEventListener("click", happened => {
  if (happened.target === at("document")) at("document").close(); // beside the text: the backdrop
});
addEventListener("keydown", pressed => {
  if (pressed.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName) && !at("document").open) {
    pressed.preventDefault();
    at("query").focus();
    at("query").select();
  }
});
at("token").addEventListener("change", () => {
  about().then(fromAddress).then(() => at("query").focus()).catch(problem => say(problem.message, true));
});
about().then(fromAddress).catch(problem => say(problem.message, true));
