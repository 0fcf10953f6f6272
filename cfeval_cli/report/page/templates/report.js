"use strict";
const byId = (id) => document.getElementById(id);
const parsed = (id) => (byId(id) ? JSON.parse(byId(id).textContent) : null);
const made = (tag, text, kind) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
};
document.documentElement.classList.add("js");

// the theme: the system's, until the reader chooses
byId("theme").hidden = false;
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// paper has no way to open what is closed
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });

// copying; a page that is opened as a file may not have the clipboard's interface
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = made("textarea", text);
    area.setAttribute("readonly", "");
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser does not let this page copy");
  }
}
const texts = parsed("texts") || [];
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const { copy: form, table } = button.dataset;
    const said = button.parentElement.querySelector(".said");
    const focused = document.activeElement;
    try {
      await copy(table === undefined ? byId(form).textContent : texts[Number(table)][form]);
      said.textContent = "copied";
    } catch (error) {
      said.textContent = String(error.message || error);
    }
    focused.focus();
    setTimeout(() => { said.textContent = ""; }, 2000);
  });
}

// sorting: rows by a column, and columns by a row where these are the explainers
const value = (cell) => (cell.dataset.value === undefined ? null : Number(cell.dataset.value));
const compare = (down) => (a, b) => {
  const [x, y] = [value(a), value(b)];
  if (x === null && y === null) return a.textContent.localeCompare(b.textContent) * (down ? -1 : 1);
  if (x === null || y === null) return x === null ? 1 : -1; // what has no value comes last
  return down ? y - x : x - y;
};
for (const table of document.querySelectorAll("table.sortable")) {
  const head = table.tHead.rows[0];
  const bodies = [...table.tBodies];
  const original = bodies.map((body) => [...body.rows]);
  const forget = (but) => {
    for (const cell of table.querySelectorAll("[aria-sort]")) if (cell !== but) cell.removeAttribute("aria-sort");
  };
  const press = (cell, what) => {
    const ways = [...cell.querySelectorAll("a.what")]; // to the glossary, which stay
    for (const way of ways) way.remove();
    const button = made("button", cell.textContent.trim(), "sort");
    button.type = "button";
    cell.replaceChildren(button, ...ways);
    button.addEventListener("click", what);
  };
  const rowsBy = (cell) => {
    const state = cell.getAttribute("aria-sort");
    forget(cell);
    if (state === "ascending") { // the third time: as it was
      cell.removeAttribute("aria-sort");
      bodies.forEach((body, i) => body.append(...original[i]));
      return;
    }
    const text = cell.cellIndex === 0;
    const down = text ? state === "descending" : !state;
    const next = state ? "ascending" : "descending";
    cell.setAttribute("aria-sort", next);
    const rows = original.flat();
    const order = compare(text ? next !== "descending" : down);
    bodies[0].append(...rows.sort((a, b) => order(a.cells[cell.cellIndex], b.cells[cell.cellIndex])));
  };
  for (const cell of head.cells) press(cell, () => rowsBy(cell));
  if (table.dataset.across === undefined) continue;
  const first = [...head.cells].slice(1);
  const mine = new Map([head, ...original.flat()].map((row) => [row, [...row.cells].slice(1)]));
  for (const row of original.flat()) {
    press(row.cells[0], () => {
      const again = row.cells[0].classList.contains("by");
      for (const cell of table.querySelectorAll("th.by")) cell.classList.remove("by");
      let order = first.map((_, i) => i);
      if (!again) {
        row.cells[0].classList.add("by");
        const better = compare(row.dataset.direction !== "lower");
        order.sort((a, b) => better(mine.get(row)[a], mine.get(row)[b]));
      }
      for (const [line, cells] of mine) line.append(...order.map((i) => cells[i]));
    });
  }
}

// the instance browser
const data = parsed("data");
if (data && data.instances.length) browse(data);

function browse(data) {
  const box = byId("browser");
  box.hidden = false;
  const chosen = { at: 0, level: data.levels.length - 1, gold: data.golds[0], filter: "all" };
  const top = (told) => (typeof told[0] === "string" ? [] : told.filter((_, i) => i % 2 === 0).slice(0, data.k));
  const flips = (one) => one.c.map((c) => c[chosen.level]).filter(Boolean).map((c) => c[2] !== one.said);
  const filters = {
    all: ["all", () => true],
    disagree: ["explainers name different features", (one) => new Set(one.e.map((e) => String([...top(e)].sort()))).size > 1],
    some: ["some counterfactuals flip, some do not", (one) => new Set(flips(one)).size > 1],
    none: ["no counterfactual flips", (one) => !flips(one).includes(true)],
    wrong: ["wrongly predicted", (one) => one.said !== one.true],
    missed: ["an explainer has no explanation", (one) => one.e.some((e) => top(e).length < data.k)],
  };
  const select = (id, options) => {
    for (const [name, text] of options) {
      const option = made("option", text);
      option.value = name;
      byId(id).append(option);
    }
    byId(id).closest("label").hidden = options.length < 2;
  };
  select("filter", Object.entries(filters).map(([name, [text]]) => [name, text]));
  select("level", data.levels.map((name, i) => [i, name]));
  select("golds", data.golds.map((name) => [name, name]));
  byId("level").value = String(chosen.level);
  let some = [];

  const refill = () => {
    const before = some[chosen.at];
    some = data.instances.filter(filters[chosen.filter][1]);
    byId("pick").replaceChildren(...some.map((one, i) => {
      const option = made("option", `${one.id}: ${data.classes[one.said]}`);
      option.value = i;
      return option;
    }));
    chosen.at = Math.max(0, some.indexOf(before));
    show();
  };
  const go = (step) => {
    if (!some.length) return;
    chosen.at = Math.min(some.length - 1, Math.max(0, chosen.at + step));
    show();
  };
  byId("before").addEventListener("click", () => go(-1));
  byId("after").addEventListener("click", () => go(1));
  byId("pick").addEventListener("change", (event) => { chosen.at = Number(event.target.value); show(); });
  byId("filter").addEventListener("change", (event) => { chosen.filter = event.target.value; refill(); });
  byId("level").addEventListener("change", (event) => { chosen.level = Number(event.target.value); refill(); });
  byId("golds").addEventListener("change", (event) => { chosen.gold = event.target.value; show(); });
  box.addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) { go(step); event.preventDefault(); }
  });

  const percent = (p) => `${(100 * p).toFixed(1)} %`;
  const places = (one) => (one.at.length ? one.at : data.features.map((_, i) => i));
  const scores = (told) => {
    const found = new Map();
    if (typeof told[0] === "string") return found;
    for (let i = 0; i < told.length; i += 2) found.set(told[i], [told[i + 1], i / 2 + 1]);
    return found;
  };
  // a rule's precision, or a random number, says nothing of how much a feature does, and has no colour
  const largest = (found, e) => (data.effects[e] ? Math.max(0, ...[...found.values()].map(([s]) => Math.abs(s))) : 0);
  const paint = (element, score, most) => {
    if (score === undefined) return;
    const size = most > 0 ? Math.min(5, Math.ceil((5 * Math.abs(score[0])) / most)) : 0;
    if (size) element.classList.add((score[0] < 0 ? "n" : "p") + size);
    if (score[1] <= data.k) element.classList.add("top");
  };
  const named = (j) => (data.kind === "text" ? `position ${Number(j) + 1}` : data.features[j]);

  function edit(one, e) {
    const line = made("p", undefined, "edit");
    const c = one.c[e][chosen.level];
    if (!c) {
      const fault = typeof one.e[e][0] === "string" ? `: ${one.e[e][0]}` : "";
      line.append(made("span", `no counterfactual was searched: no usable explanation${fault}`, "note"));
      return line;
    }
    const [features, values, label, p, distance, rested] = c;
    const own = new Map(places(one).map((j, i) => [j, data.words[one.v[i]]]));
    if (!features.length) line.append(made("span", "nothing that the explanation names may change", "note"));
    features.forEach((j, i) => {
      if (i) line.append(", ");
      if (data.kind !== "text") line.append(`${data.features[j]}: `);
      const to = values[i] === undefined || values[i] < 0 ? "moved" : data.words[values[i]];
      line.append(made("del", own.get(j)), " → ", made("ins", !data.moved ? to : to === own.get(j) ? "moved, still nearest to itself" : `near ${to}`));
    });
    const before = one.p;
    const flipped = label !== one.said;
    line.append(made("br"));
    line.append(made("span", flipped ? `flips to ${data.classes[label]}` : `stays ${data.classes[label]}`, "outcome"));
    line.append(p === null ? "" : ` · P(${data.classes[one.said]}) ${percent(before)} → ${percent(p)}`);
    line.append(` · distance ${distance}`, rested === 0 ? " · not converged" : "");
    return line;
  }

  function table(one) {
    const golds = new Set(one.gold[chosen.gold] || []);
    const made_ = made("table");
    const head = made_.createTHead().insertRow();
    for (const text of ["Feature", ...data.explainers]) head.append(Object.assign(made("th", text), { scope: "col" }));
    const body = made_.createTBody();
    const told = one.e.map(scores);
    const most = told.map(largest);
    places(one).forEach((j, i) => {
      const row = body.insertRow();
      const name = Object.assign(made("th"), { scope: "row" });
      const label = made("span", data.features[j], golds.has(j) ? "gold" : "");
      name.append(label, " = ", made("b", data.words[one.v[i]]), golds.has(j) ? " ★" : "");
      row.append(name);
      told.forEach((found, e) => {
        const cell = row.insertCell();
        const score = found.get(j);
        if (score) cell.append(String(score[0]), made("small", ` #${score[1]}`));
        paint(cell, score, most[e]);
      });
    });
    const last = body.insertRow();
    last.className = "edits";
    last.append(Object.assign(made("th", "Counterfactual"), { scope: "row" }));
    one.e.forEach((_, e) => last.insertCell().append(edit(one, e)));
    const wide = made("div", undefined, "wide");
    wide.tabIndex = 0;
    wide.append(made_);
    return [wide];
  }

  function sentences(one) {
    const golds = new Set(one.gold[chosen.gold] || []);
    const unknown = new Set(one.u || []);
    return one.e.map((told, e) => {
      const part = made("div", undefined, "told");
      const found = scores(told);
      const most = largest(found, e);
      const line = made("div", undefined, "words");
      places(one).forEach((j, i) => {
        const word = made("span", data.words[one.v[i]], golds.has(j) ? "gold" : "");
        const score = found.get(j);
        paint(word, score, most);
        if (unknown.has(j)) word.classList.add("unknown");
        const facts = [named(j), score ? `score ${score[0]}, number ${score[1]}` : "not named"];
        if (golds.has(j)) facts.push("gold");
        if (unknown.has(j)) facts.push("unknown to the model");
        word.title = facts.join(", ");
        if (score && score[1] <= data.k) word.append(made("small", ` ${score[0]}`));
        line.append(word, " ");
      });
      part.append(made("h4", data.explainers[e]), line, edit(one, e));
      return part;
    });
  }

  function show() {
    const one = some[chosen.at];
    byId("before").disabled = chosen.at <= 0;
    byId("after").disabled = chosen.at >= some.length - 1;
    byId("place").textContent = some.length ? `${chosen.at + 1} of ${some.length}` : "no such instance";
    if (!one) { byId("case").replaceChildren(); return; }
    byId("pick").value = String(chosen.at);
    const line = made("div", undefined, "case");
    const fact = (name, text) => {
      const part = made("span", `${name} `);
      part.append(made("b", text));
      line.append(part);
    };
    fact("Instance", String(one.id));
    fact("predicted", data.classes[one.said] + (one.p === null ? "" : ` (${percent(one.p)})`));
    fact("true", data.classes[one.true] + (one.true === one.said ? "" : " ✗"));
    const golds = (one.gold[chosen.gold] || []).map((j) => (data.kind === "text" ? data.words[one.v[places(one).indexOf(j)]] : data.features[j]));
    if (golds.length) fact(`gold (${chosen.gold})`, golds.join(", "));
    byId("case").replaceChildren(line, ...(data.kind === "text" ? sentences(one) : table(one)));
  }
  refill();
}
