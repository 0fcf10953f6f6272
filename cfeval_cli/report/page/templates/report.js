"use strict";
const byId = (id) => document.getElementById(id);
const readJson = (id) => (byId(id) ? JSON.parse(byId(id).textContent) : null);
const makeElement = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};
const makeHeading = (scope, text) => Object.assign(makeElement("th", text), { scope });
document.documentElement.classList.add("js");

// The theme is that of the system until the reader chooses one.
byId("theme").hidden = false;
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});

// Paper cannot open what is closed.
addEventListener("beforeprint", () => { for (const element of document.querySelectorAll("details")) element.open = true; });

// A page that is opened as a file may not have the clipboard interface.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = makeElement("textarea", text);
    area.setAttribute("readonly", "");
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    if (!isCopied) throw new Error("the browser does not let this page copy");
  }
}
const tableTexts = readJson("table-texts") || [];
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const { copy: source, table } = button.dataset;
    const status = button.parentElement.querySelector(".status");
    const focused = document.activeElement;
    try {
      await copyText(table === undefined ? byId(source).textContent : tableTexts[Number(table)][source]);
      status.textContent = "copied";
    } catch (error) {
      status.textContent = String(error.message || error);
    }
    focused.focus();
    setTimeout(() => { status.textContent = ""; }, 2000);
  });
}

// Rows are sorted by a column, and columns by a row where the columns are explainers.
const getValue = (cell) => (cell.dataset.value === undefined ? null : Number(cell.dataset.value));
const compareCells = (descending) => (a, b) => {
  const [x, y] = [getValue(a), getValue(b)];
  if (x === null && y === null) return a.textContent.localeCompare(b.textContent) * (descending ? -1 : 1);
  if (x === null || y === null) return x === null ? 1 : -1; // missing values come last
  return descending ? y - x : x - y;
};
for (const table of document.querySelectorAll("table.sortable")) {
  const headRow = table.tHead.rows[0];
  const bodies = [...table.tBodies];
  const originalRows = bodies.map((body) => [...body.rows]);
  const clearSorting = (keptCell) => {
    for (const cell of table.querySelectorAll("[aria-sort]")) if (cell !== keptCell) cell.removeAttribute("aria-sort");
  };
  const addSortButton = (cell, onClick) => {
    const links = [...cell.querySelectorAll("a.definition")];
    for (const link of links) link.remove();
    const button = makeElement("button", cell.textContent.trim(), "sort");
    button.type = "button";
    cell.replaceChildren(button, ...links);
    button.addEventListener("click", onClick);
  };
  const sortRows = (cell) => {
    const state = cell.getAttribute("aria-sort");
    clearSorting(cell);
    if (state === "ascending") { // the third click restores the original order
      cell.removeAttribute("aria-sort");
      bodies.forEach((body, i) => body.append(...originalRows[i]));
      return;
    }
    const isTitle = cell.cellIndex === 0;
    const nextState = state ? "ascending" : "descending";
    cell.setAttribute("aria-sort", nextState);
    const descending = isTitle ? state === "descending" : !state;
    const compare = compareCells(descending);
    const rows = originalRows.flat();
    bodies[0].append(...rows.sort((a, b) => compare(a.cells[cell.cellIndex], b.cells[cell.cellIndex])));
  };
  for (const cell of headRow.cells) addSortButton(cell, () => sortRows(cell));
  if (table.dataset.across === undefined) continue;
  const originalHeadings = [...headRow.cells].slice(1);
  const originalCells = new Map([headRow, ...originalRows.flat()].map((row) => [row, [...row.cells].slice(1)]));
  for (const row of originalRows.flat()) {
    addSortButton(row.cells[0], () => {
      const wasSorted = row.cells[0].classList.contains("sorted-by");
      for (const cell of table.querySelectorAll("th.sorted-by")) cell.classList.remove("sorted-by");
      const order = originalHeadings.map((_, i) => i);
      if (!wasSorted) {
        row.cells[0].classList.add("sorted-by");
        const compare = compareCells(row.dataset.direction !== "lower");
        order.sort((a, b) => compare(originalCells.get(row)[a], originalCells.get(row)[b]));
      }
      for (const [line, cells] of originalCells) line.append(...order.map((i) => cells[i]));
    });
  }
}

const browserData = readJson("browser-data");
if (browserData && browserData.instances.length) startBrowser(browserData);

// The fields of `data` are those of InstanceBrowser in instance_browser.py.
function startBrowser(data) {
  const browser = byId("browser");
  browser.hidden = false;
  const state = { position: 0, level: data.access_levels.length - 1, truth: data.truths[0], filter: "all" };
  const getTopFeatures = (explanation) => explanation.features.slice(0, data.k);
  const listFlips = (instance) =>
    instance.counterfactuals.map((edits) => edits[state.level]).filter(Boolean).map((edit) => edit.label !== instance.predicted);
  const countSelections = (instance) => new Set(instance.explanations.map((e) => String(getTopFeatures(e).sort()))).size;
  const filters = {
    all: ["all", () => true],
    disagree: ["explainers select different features", (instance) => countSelections(instance) > 1],
    some: ["some counterfactuals flip, some do not", (instance) => new Set(listFlips(instance)).size > 1],
    none: ["no counterfactual flips", (instance) => !listFlips(instance).includes(true)],
    wrong: ["wrongly predicted", (instance) => instance.predicted !== instance.label],
    missed: ["an explanation is missing or incomplete", (instance) => instance.explanations.some((e) => getTopFeatures(e).length < data.k)],
  };
  const fillSelect = (id, options) => {
    for (const [value, text] of options) byId(id).append(new Option(text, value));
    byId(id).closest("label").hidden = options.length < 2;
  };
  fillSelect("instance-filter", Object.entries(filters).map(([name, [text]]) => [name, text]));
  fillSelect("access-level", data.access_levels.map((name, i) => [i, name]));
  fillSelect("truth", data.truths.map((name) => [name, name]));
  byId("access-level").value = String(state.level);
  let instances = [];

  const applyFilter = () => {
    const previous = instances[state.position];
    instances = data.instances.filter(filters[state.filter][1]);
    byId("instance").replaceChildren(
      ...instances.map((instance, i) => new Option(`${instance.id}: ${data.classes[instance.predicted]}`, i)),
    );
    state.position = Math.max(0, instances.indexOf(previous));
    showInstance();
  };
  const move = (step) => {
    if (!instances.length) return;
    state.position = Math.min(instances.length - 1, Math.max(0, state.position + step));
    showInstance();
  };
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("instance").addEventListener("change", (event) => { state.position = Number(event.target.value); showInstance(); });
  byId("instance-filter").addEventListener("change", (event) => { state.filter = event.target.value; applyFilter(); });
  byId("access-level").addEventListener("change", (event) => { state.level = Number(event.target.value); applyFilter(); });
  byId("truth").addEventListener("change", (event) => { state.truth = event.target.value; showInstance(); });
  browser.addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) { move(step); event.preventDefault(); }
  });

  const formatPercent = (probability) => `${(100 * probability).toFixed(1)} %`;
  const getFeatures = (instance) => (instance.features.length ? instance.features : instance.values.map((_, i) => i));
  const getValueName = (instance, i) => data.value_names[instance.values[i]];
  const getReference = (instance) => instance.reference[state.truth] || [];
  // the score and the rank of each feature
  const getScores = (explanation) =>
    new Map(explanation.features.map((feature, i) => [feature, { score: explanation.scores[i], rank: i + 1 }]));
  // the precision of a rule, or a random number, is no effect of a feature and has no colour
  const findLargest = (scores, explainer) =>
    (data.has_effects[explainer] ? Math.max(0, ...[...scores.values()].map(({ score }) => Math.abs(score))) : 0);
  const colourByScore = (element, entry, largest) => {
    if (entry === undefined) return;
    const size = largest > 0 ? Math.min(5, Math.ceil((5 * Math.abs(entry.score)) / largest)) : 0;
    if (size) element.classList.add((entry.score < 0 ? "n" : "p") + size);
    if (entry.rank <= data.k) element.classList.add("top-k");
  };
  const describePosition = (feature) => (data.kind === "text" ? `position ${Number(feature) + 1}` : data.features[feature]);

  function describeNewValue(value, ownName) {
    if (value === undefined || value === null) return "moved";
    const name = data.value_names[value];
    if (!data.moves_embeddings) return name;
    return name === ownName ? "moved, still nearest to itself" : `near ${name}`;
  }

  function makeEdit(instance, explainer) {
    const line = makeElement("p", undefined, "edit");
    const edit = instance.counterfactuals[explainer][state.level];
    if (!edit) {
      const reason = instance.explanations[explainer].missing_reason;
      line.append(makeElement("span", `no counterfactual: no usable explanation${reason ? `: ${reason}` : ""}`, "note"));
      return line;
    }
    const ownNames = new Map(getFeatures(instance).map((feature, i) => [feature, getValueName(instance, i)]));
    if (!edit.features.length) line.append(makeElement("span", "none of the selected features may change", "note"));
    edit.features.forEach((feature, i) => {
      if (i) line.append(", ");
      if (data.kind !== "text") line.append(`${data.features[feature]}: `);
      const ownName = ownNames.get(feature);
      line.append(makeElement("del", ownName), " → ", makeElement("ins", describeNewValue(edit.values[i], ownName)));
    });
    const flips = edit.label !== instance.predicted;
    line.append(makeElement("br"));
    line.append(makeElement("span", flips ? `flips to ${data.classes[edit.label]}` : `stays ${data.classes[edit.label]}`, "outcome"));
    if (edit.probability !== null) {
      line.append(` · P(${data.classes[instance.predicted]}) ${formatPercent(instance.probability)} → ${formatPercent(edit.probability)}`);
    }
    line.append(` · distance ${edit.distance}`, edit.converged === false ? " · not converged" : "");
    return line;
  }

  function makeTable(instance) {
    const reference = new Set(getReference(instance));
    const table = makeElement("table");
    const headRow = table.createTHead().insertRow();
    for (const text of ["Feature", ...data.explainers]) headRow.append(makeHeading("col", text));
    const body = table.createTBody();
    const scores = instance.explanations.map(getScores);
    const largest = scores.map(findLargest);
    getFeatures(instance).forEach((feature, i) => {
      const row = body.insertRow();
      const heading = makeHeading("row");
      const isReference = reference.has(feature);
      const name = makeElement("span", data.features[feature], isReference ? "reference" : "");
      heading.append(name, " = ", makeElement("b", getValueName(instance, i)), isReference ? " ★" : "");
      row.append(heading);
      scores.forEach((ofExplainer, explainer) => {
        const cell = row.insertCell();
        const entry = ofExplainer.get(feature);
        if (entry) cell.append(String(entry.score), makeElement("small", ` #${entry.rank}`));
        colourByScore(cell, entry, largest[explainer]);
      });
    });
    const lastRow = body.insertRow();
    lastRow.className = "edits";
    lastRow.append(makeHeading("row", "Counterfactual"));
    data.explainers.forEach((_, explainer) => lastRow.insertCell().append(makeEdit(instance, explainer)));
    const wrapper = makeElement("div", undefined, "wide");
    wrapper.tabIndex = 0;
    wrapper.append(table);
    return [wrapper];
  }

  function makeTexts(instance) {
    const reference = new Set(getReference(instance));
    const unknown = new Set(instance.unknown);
    return instance.explanations.map((explanation, explainer) => {
      const section = makeElement("div", undefined, "explanation");
      const scores = getScores(explanation);
      const largest = findLargest(scores, explainer);
      const text = makeElement("div", undefined, "words");
      getFeatures(instance).forEach((feature, i) => {
        const isReference = reference.has(feature);
        const isUnknown = unknown.has(feature);
        const word = makeElement("span", getValueName(instance, i), isReference ? "reference" : "");
        const entry = scores.get(feature);
        colourByScore(word, entry, largest);
        if (isUnknown) word.classList.add("unknown");
        const facts = [describePosition(feature), entry ? `score ${entry.score}, rank ${entry.rank}` : "not selected"];
        if (isReference) facts.push("reference feature");
        if (isUnknown) facts.push("not in the vocabulary of the model");
        word.title = facts.join(", ");
        if (entry && entry.rank <= data.k) word.append(makeElement("small", ` ${entry.score}`));
        text.append(word, " ");
      });
      section.append(makeElement("h4", data.explainers[explainer]), text, makeEdit(instance, explainer));
      return section;
    });
  }

  function showInstance() {
    const instance = instances[state.position];
    byId("previous").disabled = state.position <= 0;
    byId("next").disabled = state.position >= instances.length - 1;
    byId("position").textContent = instances.length ? `${state.position + 1} of ${instances.length}` : "no such instance";
    if (!instance) { byId("instance-details").replaceChildren(); return; }
    byId("instance").value = String(state.position);
    const line = makeElement("div", undefined, "instance-facts");
    const addFact = (name, text) => {
      const fact = makeElement("span", `${name} `);
      fact.append(makeElement("b", text));
      line.append(fact);
    };
    const probability = instance.probability === null ? "" : ` (${formatPercent(instance.probability)})`;
    addFact("Instance", String(instance.id));
    addFact("predicted", data.classes[instance.predicted] + probability);
    addFact("true", data.classes[instance.label] + (instance.label === instance.predicted ? "" : " ✗"));
    const features = getFeatures(instance);
    const reference = getReference(instance).map((feature) =>
      (data.kind === "text" ? getValueName(instance, features.indexOf(feature)) : data.features[feature]));
    if (data.truths.length) addFact(`ground truth (${state.truth})`, reference.join(", ") || "not computed");
    byId("instance-details").replaceChildren(line, ...(data.kind === "text" ? makeTexts(instance) : makeTable(instance)));
  }
  applyFilter();
}
