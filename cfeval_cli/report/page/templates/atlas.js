
// all cells of the atlas: filtered, sorted and copied
const atlas = parsed("atlas");
if (atlas) {
  const shown = 200;
  const keys = atlas.keys.length;
  const heads = [...atlas.keys, ...atlas.figures];
  const text = (row, i) => (i < keys ? atlas.names[i][row[i]] : row[i] === null ? "–" : String(row[i]));
  const state = { at: keys, down: true };
  const picks = atlas.keys.map((key, i) => {
    const label = made("label", `${key} `);
    const pick = made("select");
    pick.append(new Option("all", ""));
    atlas.names[i].forEach((name, place) => pick.append(new Option(name, String(place))));
    pick.addEventListener("change", fill);
    label.append(pick);
    byId("filters").append(label);
    return pick;
  });
  const chosen = () => {
    const rows = atlas.rows.filter((row) => picks.every((pick, i) => pick.value === "" || row[i] === Number(pick.value)));
    const sign = state.down ? -1 : 1;
    return rows.sort((a, b) => {
      const one = a[state.at];
      const two = b[state.at];
      return one === null ? 1 : two === null ? -1 : sign * (one - two);
    });
  };
  function fill() {
    const rows = chosen();
    const head = made("tr");
    heads.forEach((name, i) => {
      const cell = Object.assign(made("th"), { scope: "col" });
      const button = made("button", name, "sort");
      button.type = "button";
      button.addEventListener("click", () => {
        state.down = state.at === i ? !state.down : i >= keys;
        state.at = i;
        fill();
      });
      if (state.at === i) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      cell.append(button);
      head.append(cell);
    });
    const body = made("tbody");
    for (const row of rows.slice(0, shown)) {
      const line = made("tr");
      heads.forEach((_, i) => line.append(made("td", text(row, i))));
      body.append(line);
    }
    const top = made("thead");
    top.append(head);
    byId("grid").replaceChildren(top, body);
    byId("many").textContent = `${rows.length} cells${rows.length > shown ? `, the first ${shown} shown` : ""}`;
  }
  byId("copy-cells").addEventListener("click", async () => {
    const quoted = (one) => (/[",\n]/.test(one) ? `"${one.replaceAll('"', '""')}"` : one);
    const lines = [heads, ...chosen().map((row) => heads.map((_, i) => text(row, i)))];
    try {
      await copy(lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n");
      byId("many").textContent = "copied";
    } catch (error) {
      byId("many").textContent = String(error.message || error);
    }
  });
  byId("browse").hidden = false;
  fill();
}
