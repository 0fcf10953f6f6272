// The table of all cells of the atlas is filtered, sorted and copied here.
const atlasData = readJson("atlas-data");
if (atlasData) {
  const MAX_SHOWN_ROWS = 200;
  const nKeys = atlasData.keys.length;
  const headings = [...atlasData.keys, ...atlasData.figures];
  const formatCell = (row, i) => (i < nKeys ? atlasData.names[i][row[i]] : row[i] === null ? "–" : String(row[i]));
  const state = { column: nKeys, descending: true };
  const selects = atlasData.keys.map((key, i) => {
    const label = makeElement("label", `${key} `);
    const select = makeElement("select");
    select.append(new Option("all", ""));
    atlasData.names[i].forEach((name, number) => select.append(new Option(name, String(number))));
    select.addEventListener("change", fillTable);
    label.append(select);
    byId("filters").append(label);
    return select;
  });
  const selectRows = () => {
    const rows = atlasData.rows.filter((row) =>
      selects.every((select, i) => select.value === "" || row[i] === Number(select.value)));
    const sign = state.descending ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [a[state.column], b[state.column]];
      return x === null ? 1 : y === null ? -1 : sign * (x - y);
    });
  };
  function fillTable() {
    const rows = selectRows();
    const headRow = makeElement("tr");
    headings.forEach((name, i) => {
      const cell = makeHeading("col");
      const button = makeElement("button", name, "sort");
      button.type = "button";
      button.addEventListener("click", () => {
        state.descending = state.column === i ? !state.descending : i >= nKeys;
        state.column = i;
        fillTable();
      });
      if (state.column === i) cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      cell.append(button);
      headRow.append(cell);
    });
    const body = makeElement("tbody");
    for (const row of rows.slice(0, MAX_SHOWN_ROWS)) {
      const line = makeElement("tr");
      headings.forEach((_, i) => line.append(makeElement("td", formatCell(row, i))));
      body.append(line);
    }
    const head = makeElement("thead");
    head.append(headRow);
    byId("cell-table").replaceChildren(head, body);
    const limit = rows.length > MAX_SHOWN_ROWS ? `, the first ${MAX_SHOWN_ROWS} shown` : "";
    byId("cell-status").textContent = `${rows.length} cells${limit}`;
  }
  byId("copy-cells").addEventListener("click", async () => {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [headings, ...selectRows().map((row) => headings.map((_, i) => formatCell(row, i)))];
    try {
      await copyText(lines.map((line) => line.map(quote).join(",")).join("\n") + "\n");
      byId("cell-status").textContent = "copied";
    } catch (error) {
      byId("cell-status").textContent = String(error.message || error);
    }
  });
  byId("cell-browser").hidden = false;
  fillTable();
}
