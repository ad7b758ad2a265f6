// Saving what the page holds: the table that is shown as CSV, all data as JSON.

const FORMULA = /^[=+\-@\t\r]/; // a spreadsheet would run it; an apostrophe keeps it text

function quoted(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** What CSV says of a line, under the names that `bench table --format csv` uses; fractions with six decimals. */
function recordOf(line, metrics, headline) {
  const { block } = line;
  const method = DATA.methods[line.method];
  const [train, validation, gold] = line.labels ?? [null, null, null];
  const record = {
    model: block.model, task: block.task, preset: DATA.preset, group: method.group, method: method.name,
    variant: line.variant, sorted_by: headline, rank: rankOf(line, headline), leading: Number(leads(line, headline)),
    status: line.status, n: line.n, seeds: line.seeds.length, runs: line.runs,
    labels_train: train, labels_validation: validation, labels_gold: gold,
    ece_floor: line.mean?.[FLOOR] ?? null,
  };
  for (const m of metrics) {
    const { name } = METRICS[m];
    record[`${name}_mean`] = line.mean?.[m] ?? null;
    for (const key of ["half", "low", "high", "std", "seed_std"]) {
      record[`${name}_${key}`] = line.exact?.[key]?.[m] ?? null;
    }
    record[`${name}_best`] = line.best?.[m] ?? null;
  }
  record.forward_tokens_alone = line.tokens ?? null;
  record.generated_tokens_alone = line.generated ?? null;
  const notes = [...line.notes, ...line.reasons, ...metrics.flatMap((m) => line.remarks?.[m] ?? [])];
  record.notes = [...new Set(notes)].map((k) => DATA.footnotes[k - 1]).join("; ");
  record.caption = block.caption;
  return record;
}

function commaSeparated(lines, metrics, headline) {
  const records = lines.map((line) => recordOf(line, metrics, headline));
  const rows = [Object.keys(records[0] ?? {}), ...records.map((record) => Object.values(record))];
  return rows.map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function startSaving() {
  byId("save-csv").addEventListener("click", () => {
    const { lines, metrics, headline } = shownTable();
    save("leaderboard.csv", "text/csv", commaSeparated(lines, metrics, headline));
  });
  byId("save-json").addEventListener("click", () => save("report.json", "application/json", byId("data").textContent));
}
