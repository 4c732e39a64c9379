"use strict";
// Everything that comes from documents or from the service is put in place as text, never as markup.
const at = id => document.getElementById(id);
let models = [], shown = [], sent = null;

function cell(row, content, kind) {
  const td = row.insertCell();
  if (kind) td.className = kind;
  td.append(content);
  return td;
}

function say(words, wrong) {
  at("message").textContent = words;
  at("message").className = wrong ? "wrong" : "";
}

async function ask(path, body) {
  const headers = {};
  if (at("token").value) headers["Authorization"] = "Bearer " + at("token").value;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

async function listModels() {
  const told = await ask("/v1/models");
  models = told.models;
  const options = models.map(model => new Option(model.name, model.name, false, model.name === told.primary));
  at("model").replaceChildren(...options);
  describe();
  say("");
}

const chosen = () => models.find(model => model.name === at("model").value);

function describe() {
  const model = chosen();
  at("about").textContent = model
    ? `${model.kind}, version ${model.version}: ${model.n_features} features` +
      (model.features ? ` (${model.features.slice(0, 8).join(", ")}${model.features.length > 8 ? ", …" : ""})` : "") + "."
    : "";
}

function example() {
  const model = chosen();
  if (!model) return;
  const number = (i, j) => Math.round(((i * 7919 + j * 104729) % 1000) / 10) / 100;
  const value = (i, j) => {
    const column = (model.columns || [])[j];
    if (column && column.levels) return column.levels.length ? column.levels[(i + j) % column.levels.length] : null;
    return column && column.holds === "dates" ? "2026-01-0" + i : number(i, j);
  };
  const documents = [1, 2, 3].map(i => ({
    id: "doc" + i, title: "Document " + i, values: Array.from({ length: model.n_features }, (_, j) => value(i, j)),
  }));
  at("documents").value = "[\n" + documents.map(one => "  " + JSON.stringify(one)).join(",\n") + "\n]";
}

function read() {
  let given;
  try {
    given = JSON.parse(at("documents").value);
  } catch (problem) {
    throw new Error("The documents are not JSON: " + problem.message);
  }
  if (given && !Array.isArray(given)) given = given.documents;
  if (!Array.isArray(given) || given.some(one => one === null || typeof one !== "object"))
    throw new Error("Give an array of documents: [{\"id\": …, \"values\": […]}, …].");
  return given;
}

function words(one) {
  const rest = Object.entries(one || {}).filter(([name]) => name !== "id" && name !== "values");
  return rest.map(([name, value]) => (typeof value === "string" ? value : `${name}: ${JSON.stringify(value)}`)).join("\n");
}

async function rank(event) {
  event.preventDefault();
  at("why").hidden = true;
  try {
    const given = read();
    sent = { model: at("model").value, documents: given.map(({ id, values }) => ({ id, values })) };
    if (at("query").value) sent.query = at("query").value;
    const told = await ask("/v1/rank", sent);
    shown = told.ranking;
    const known = new Map(given.map(one => [one.id, one]));
    const rows = shown.map((one, place) => {
      const row = document.createElement("tr");
      cell(row, String(one.rank), "number");
      const named = cell(row, String(one.id)), more = words(known.get(one.id));
      if (more) {
        const small = document.createElement("small");
        small.textContent = more;
        named.append(small);
      }
      cell(row, one.score.toPrecision(6), "number");
      const next = shown[place + 1];
      if (!next) {
        cell(row, "");
        return row;
      }
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Why above the next?";
      button.setAttribute("aria-label", `Why is ${one.id} above ${next.id}?`);
      button.addEventListener("click", () => explain(one.id, next.id));
      cell(row, button);
      return row;
    });
    at("ranking").replaceChildren(...rows);
    at("result").hidden = false;
    say(`${shown.length} documents, ranked by ${told.model}, version ${told.version}.`);
  } catch (problem) {
    at("result").hidden = true;
    say(problem.message, true);
  }
}

async function explain(a, b) {
  try {
    const told = await ask("/v1/explain", { ...sent, a, b });
    at("why-title").textContent = `Why ${a} is above ${b}: the scores differ by ${told.total.toPrecision(4)}`;
    at("sentence").textContent = told.summary;
    at("a").textContent = a;
    at("b").textContent = b;
    const count = told.contributions.filter(one => one.contribution !== 0);
    at("contributions").replaceChildren(...count.slice(0, 20).map(one => {
      const row = document.createElement("tr");
      cell(row, one.feature);
      cell(row, one.a);
      cell(row, one.b);
      const error = told.exact ? "" : " ± " + one.error.toPrecision(2);
      cell(row, (one.contribution > 0 ? "+" : "") + one.contribution.toPrecision(4) + error, "number");
      return row;
    }));
    const more = count.length > 20 ? `${count.length - 20} further features count less. ` : "";
    at("method").textContent = more + told.caveats.join(" ");
    at("why").hidden = false;
    at("why").focus();
  } catch (problem) {
    say(problem.message, true);
  }
}

at("form").addEventListener("submit", rank);
at("model").addEventListener("change", describe);
at("example").addEventListener("click", example);
at("token").addEventListener("change", () => listModels().catch(problem => say(problem.message, true)));
listModels().catch(problem => say(problem.message, true));
