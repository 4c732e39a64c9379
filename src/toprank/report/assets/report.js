"use strict";
(() => {
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- light and dark ----
  const theme = document.querySelector(".theme");
  const wishes = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (wishes.matches ? "dark" : "light")) === "dark";
  const remember = (value) => { try { localStorage.setItem("toprank-theme", value); } catch { /* a browser may refuse files a memory */ } };
  const remembered = () => { try { return localStorage.getItem("toprank-theme"); } catch { return null; } };
  const label = () => {
    theme.textContent = isDark() ? "☀ Light" : "☾ Dark";
    theme.setAttribute("aria-label", isDark() ? "Use light colors" : "Use dark colors");
  };
  if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(document.documentElement.dataset.theme);
    label();
  });
  wishes.addEventListener("change", label);
  theme.hidden = false;
  label();

  // ---- marks tell what they are at once, not after a second ----
  const tip = document.querySelector(".tip");
  let pointed = null;
  const release = () => {
    if (pointed) pointed.node.textContent = pointed.words;
    pointed = null;
    tip.hidden = true;
  };
  document.addEventListener("pointerover", (event) => {
    release();
    const owner = event.target.closest(".plot *");
    const node = owner && (owner.querySelector(":scope > title") || owner.parentNode.querySelector(":scope > title"));
    if (!node || !node.textContent) return;
    pointed = { node, words: node.textContent };
    tip.textContent = pointed.words;
    node.textContent = ""; // else the browser shows its own, too
    tip.hidden = false;
  });
  document.addEventListener("pointermove", (event) => {
    if (tip.hidden) return;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below}px`;
  });
  document.addEventListener("scroll", release, { passive: true });
  document.documentElement.addEventListener("pointerleave", release);

  // ---- one system steps forward ----
  for (const button of all(".legend button")) {
    const around = button.closest("figure") || button.closest("section");
    const dim = (on) => {
      for (const group of all("g[data-s]", around)) group.classList.toggle("faint", on && group.dataset.s !== button.dataset.s);
    };
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => dim(true));
    for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => dim(false));
  }

  // ---- copying ----
  for (const button of all(".copy")) {
    const source = button.parentNode.querySelector("pre");
    button.addEventListener("click", async () => {
      let done = false;
      try { await navigator.clipboard.writeText(source.textContent); done = true; } catch {
        getSelection().selectAllChildren(source);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // ---- the explorer ----
  const STEP = 100;
  const shown = (value) => (value === null ? "–" : value.toFixed(4).replace("-", "−"));

  function explore(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const role = (name) => root.querySelector(`[data-role="${name}"]`);
    const body = root.querySelector(".queries tbody");
    const count = root.querySelector(".count");
    const more = root.querySelector(".more");
    const detail = root.querySelector(".detail");
    const state = { key: "d", down: true, limit: STEP, selected: null, rows: [] };
    const hasDocuments = "size" in data;

    const value = (i, system, metric) => {
      const whole = data.values[i][system][metric];
      return whole === null ? null : whole / data.scale;
    };
    const chosen = () => ({ a: +role("a").value, b: +role("b").value, metric: +role("metric").value });
    const row = (i, { a, b, metric }) => {
      const left = value(i, a, metric), right = value(i, b, metric);
      const known = left !== null && right !== null;
      return { i, id: data.id[i], size: hasDocuments ? data.size[i] : 0, relevant: hasDocuments ? data.relevant[i] : 0,
        a: left, b: right, d: known ? left - right : null };
    };
    const compareText = new Intl.Collator("en", { numeric: true }).compare;
    const order = (x, y) => {
      const turn = state.down ? -1 : 1;
      const p = x[state.key], q = y[state.key];
      if (p === null || q === null) return (p === null) - (q === null) || x.i - y.i; // unknown ones last, either way
      const found = state.key === "id" ? compareText(p, q) : p - q;
      return turn * found || x.i - y.i;
    };
    const wanted = (one, sign) => {
      const better = one.d === null ? null : sign * one.d;
      switch (role("filter").value) {
        case "1": return better > 0;
        case "2": return better !== null && better < 0;
        case "3": return better === 0;
        default: return true;
      }
    };

    function update() {
      const now = chosen();
      const text = role("find").value.trim().toLowerCase();
      const sign = data.lower[now.metric] ? -1 : 1;
      state.rows = data.id.map((_, i) => row(i, now))
        .filter((one) => (!text || one.id.toLowerCase().includes(text)) && wanted(one, sign))
        .sort(order);
      if (!state.rows.some((one) => one.i === state.selected)) state.selected = state.rows.length ? state.rows[0].i : null;
      render();
    }

    function render() {
      const now = chosen();
      const sign = data.lower[now.metric] ? -1 : 1;
      body.replaceChildren(...state.rows.slice(0, state.limit).map((one) => line(one, sign)));
      count.textContent = `${state.rows.length.toLocaleString("en")} of ${data.id.length.toLocaleString("en")} queries · ` +
        `A: ${data.systems[now.a]} · B: ${data.systems[now.b]} · ${data.metrics[now.metric]}`;
      more.hidden = state.rows.length <= state.limit;
      for (const button of all("[data-sort]", root)) {
        const sorted = button.dataset.sort === state.key;
        button.closest("th").setAttribute("aria-sort", sorted ? (state.down ? "descending" : "ascending") : "none");
      }
      show();
    }

    function line(one, sign) {
      const cell = (content, kind = "n") => make("td", { className: kind }, content);
      const button = make("button", { type: "button", className: "name", textContent: one.id });
      const gain = one.d === null ? 0 : sign * one.d;
      const mark = gain > 0 ? " ▲" : gain < 0 ? " ▼" : "";
      const difference = make("span", { className: gain > 0 ? "win" : gain < 0 ? "loss" : "muted",
        textContent: one.d === null ? "–" : shown(one.d) + mark });
      const sizes = hasDocuments ? [cell(String(one.size), "n extra"), cell(String(one.relevant), "n extra")] : [];
      const found = make("tr", {}, cell(button, ""), ...sizes, cell(shown(one.a)), cell(shown(one.b)), cell(difference));
      found.dataset.i = one.i;
      found.setAttribute("aria-selected", String(one.i === state.selected));
      return found;
    }

    function select(i, focus) {
      state.selected = i;
      for (const found of all("tr", body)) {
        const is = +found.dataset.i === i;
        found.setAttribute("aria-selected", String(is));
        if (is && focus) found.querySelector("button").focus();
      }
      show();
    }

    function show() {
      if (state.selected === null) {
        detail.replaceChildren(make("p", { className: "remark", textContent: "No query is listed." }));
        return;
      }
      const i = state.selected, now = chosen(), one = row(i, now);
      const numbers = `${data.metrics[now.metric]}: A ${shown(one.a)}, B ${shown(one.b)}` +
        (hasDocuments ? `; ${one.size} documents, ${one.relevant} relevant` : "");
      const parts = [make("h3", {}, "Query ", make("span", { className: "name", textContent: one.id })),
        make("p", { className: "remark", textContent: numbers })];
      const documents = data.documents[data.number[i]];
      if (documents) {
        const sides = [["A", now.a, now.b], ["B", now.b, now.a]];
        parts.push(make("div", { className: "rankings" }, ...sides.map(([name, mine, other]) => side(documents, name, mine, other))));
      } else if (hasDocuments) {
        parts.push(make("p", { className: "remark", textContent: "The documents of this query were left out to keep the file small." }));
      }
      detail.replaceChildren(...parts);
    }

    function side(documents, name, mine, other) {
      const ranks = new Map(documents.r[other].map((document, rank) => [document, rank + 1]));
      const heads = ["", "grade", "document", "score", `in ${name === "A" ? "B" : "A"}`];
      const lines = documents.r[mine].map((document, rank) => {
        const grade = documents.g[document];
        const level = grade === "?" || !(+grade > 0) ? 0 : 1 + Math.round((3 * +grade) / data.top);
        const score = documents.s[mine][rank];
        return make("tr", {},
          make("td", { className: "muted", textContent: rank + 1 }),
          make("td", {}, make("span", { className: `grade g${level}`, textContent: grade })),
          make("td", { className: "name", textContent: documents.d[document] }),
          make("td", { className: "n", textContent: score.replace("-", "−"), title: score.endsWith("=") ? "the same score as the one above" : "" }),
          make("td", { className: "n muted", textContent: ranks.has(document) ? `#${ranks.get(document)}` : "–" }));
      });
      return make("div", {}, make("h4", { textContent: `${name}: ${data.systems[mine]}` }),
        make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head, at) => make("th", { scope: "col", className: at > 2 ? "n" : "", textContent: head })))),
          make("tbody", {}, ...lines)));
    }

    const reset = () => { state.limit = STEP; update(); };
    for (const name of ["a", "b", "metric", "filter"]) role(name).addEventListener("change", reset);
    role("find").addEventListener("input", reset);
    root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    for (const button of all("[data-sort]", root)) {
      button.addEventListener("click", () => {
        const key = button.dataset.sort;
        state.down = state.key === key ? !state.down : key !== "id";
        state.key = key;
        reset();
      });
    }
    more.addEventListener("click", () => { state.limit += STEP; render(); });
    body.addEventListener("click", (event) => {
      const found = event.target.closest("tr");
      if (found) select(+found.dataset.i, false);
    });
    const list = root.querySelector(".list");
    list.addEventListener("keydown", (event) => {
      const at = state.rows.findIndex((one) => one.i === state.selected);
      const last = state.rows.length - 1;
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
      if (to === undefined || last < 0) return;
      event.preventDefault();
      const next = Math.min(Math.max(to, 0), last);
      if (next >= state.limit) { state.limit = STEP * Math.ceil((next + 1) / STEP); render(); }
      select(state.rows[next].i, true);
    });
    role("find").addEventListener("keydown", (event) => {
      if (event.key === "Escape") { role("find").value = ""; reset(); }
      if (event.key === "ArrowDown" && state.rows.length) { event.preventDefault(); select(state.rows[0].i, true); }
    });
    document.addEventListener("keydown", (event) => {
      const typing = /^(input|select|textarea)$/i.test(event.target.tagName);
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      // of several explorers, the first one that is not above the window answers
      const near = all(".explorer").find((one) => one.getBoundingClientRect().bottom > 0) || all(".explorer").at(-1);
      if (near !== root) return;
      event.preventDefault();
      role("find").focus();
      role("find").scrollIntoView({ block: "center" });
    });

    // from a bar or a card elsewhere on the page to the query here
    const position = new Map(data.number.map((number, i) => [number, i]));
    root.open = (number) => {
      if (!position.has(number)) return false;
      role("find").value = "";
      role("filter").value = "0";
      update();
      const at = state.rows.findIndex((one) => one.i === position.get(number));
      if (at >= state.limit) { state.limit = STEP * Math.ceil((at + 1) / STEP); render(); }
      select(position.get(number), true);
      return true;
    };
    update();
  }

  const explorers = all(".explorer");
  explorers.forEach(explore);
  const explorerOf = (element) => {
    const part = element.closest("section").id.split("-")[0];
    return explorers.find((one) => one.dataset.part === part);
  };
  const openFrom = (event) => {
    const link = event.target.closest("[data-open]");
    const bar = event.target.closest(".bar[data-q]");
    const origin = link || bar;
    if (!origin) return;
    const found = explorerOf(origin);
    if (found && found.open(Number(link ? link.dataset.open : bar.dataset.q))) {
      event.preventDefault();
      found.scrollIntoView();
    }
  };
  document.addEventListener("click", openFrom);

  // bars by keyboard: Tab reaches one of a plot, arrows go on from there, Enter and Space open
  document.addEventListener("keydown", (event) => {
    const bar = event.target.closest(".bar[data-q]");
    if (!bar || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      openFrom(event);
      return;
    }
    const bars = all(".bar[data-q]", bar.closest("svg"));
    const at = bars.indexOf(bar), last = bars.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = bars[Math.min(Math.max(to, 0), last)];
    bar.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
})();
