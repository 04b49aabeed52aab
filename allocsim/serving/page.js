// The page: hands a document's text to the worker, shows what comes back. Names are text, never markup.
const worker = new Worker("worker.js", { type: "module" });
const at = (id) => document.getElementById(id);
const STEP = 200; // rows shown at once
let rows = [];
let shown = 0;
let unlisted = 0;
let began = 0;
let clock = 0;

const say = (text) => { at("state").textContent = text; };

const element = (tag, text) => {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
};

const more = () => {
  for (const row of rows.slice(shown, shown + STEP)) {
    const place = row.step === null ? "" : ` at op ${row.step}${row.run === null ? "" : ` of run ${row.run}`}`;
    const item = element("li", row.text);
    item.prepend(element("strong", `${row.kind}${row.severity === "warning" ? " (warning)" : ""}${place}: `));
    at("rows").append(item);
  }
  shown = Math.min(shown + STEP, rows.length);
  at("more").replaceChildren();
  if (shown === rows.length && unlisted > 0) at("more").textContent = `${unlisted} more are not listed`;
  if (shown < rows.length) {
    const button = element("button", `show more: ${rows.length - shown} are left`);
    button.addEventListener("click", more);
    at("more").append(button);
  }
};

const show = (found) => {
  at("report").hidden = false;
  const many = found.count === 1 ? "1 violation" : `${found.count} violations`;
  at("verdict").textContent = found.clean ? "clean: no violation" : many;
  at("counts").replaceChildren(...found.counts.map((cells) => {
    const line = document.createElement("tr");
    line.append(...cells.map((cell) => element("td", String(cell))));
    return line;
  }));
  at("rows").replaceChildren();
  rows = found.rows;
  unlisted = found.count - rows.filter((row) => row.severity === "violation").length;
  shown = 0;
  more();
};

worker.addEventListener("message", ({ data }) => {
  if (data.what === "ready") say("Ready.");
  if (data.what === "failed") say(`Python did not load: ${data.text}`);
  if (data.what === "sizes") {
    const { ops, runs } = data.found;
    say(`Judging ${ops} ops in ${runs} ${runs === 1 ? "run" : "runs"}.`);
    clock = setInterval(() => say(`Judging ${ops} ops in ${runs} ${runs === 1 ? "run" : "runs"}, for ${Math.round((performance.now() - began) / 1000)} s.`), 1000);
  }
  if (data.what === "judged") {
    clearInterval(clock);
    if (data.found.refused !== undefined) {
      say(`${data.name}: ${data.found.refused}`);
      return;
    }
    show(data.found);
    say(`${data.name}: judged in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
  }
});
worker.addEventListener("error", (event) => say(`Python did not load: ${event.message}`));

const take = async (file) => {
  if (!file) return;
  at("report").hidden = true;
  began = performance.now();
  say(`Reading ${file.name}.`);
  try {
    worker.postMessage({ name: file.name, text: await file.text() });
  } catch (error) {
    say(`${file.name}: cannot be read: ${error.message}`);
  }
};

at("file").addEventListener("change", (event) => take(event.target.files[0]));
for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    if (name === "drop") take(event.dataTransfer.files[0]);
  });
}
