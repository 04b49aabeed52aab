// The page: hands a document's text to the worker, shows what comes back. Names are text, never markup.
import { explore } from "./explorer.js";

const at = (id) => document.getElementById(id);
const STEP = 200; // rows shown at once
let rows = [];
let shown = 0;
let unlisted = 0;
let began = 0;
let clock = 0;
let busy = false;
let head = null; // what the explorer shows
let closing = new AbortController();

const say = (text) => { at("state").textContent = text; };

const element = (tag, text) => {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
};

const seconds = () => (performance.now() - began) / 1000;

// Say what is being done, and for how long.
const doing = (text) => {
  clearInterval(clock);
  say(`${text}.`);
  clock = setInterval(() => say(`${text}, for ${Math.round(seconds())} s.`), 1000);
};

const done = (text) => {
  clearInterval(clock);
  busy = false;
  say(text);
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

const close = () => {
  closing.abort();
  closing = new AbortController();
  if (head) history.replaceState(null, "", location.pathname); // the view was the last document's
  head = null;
  at("clauses").replaceChildren();
  at("explored").replaceChildren();
};

const SHOW = {
  sizes: ({ ops, runs }) => doing(`Judging ${ops} ops in ${runs} ${runs === 1 ? "run" : "runs"}`),
  judged: (found, name) => {
    at("report").hidden = false;
    at("verdict").textContent = found.title;
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
    doing(`${name}: judged in ${seconds().toFixed(1)} s; looking for causes`);
  },
  explained: (found, name) => {
    at("clauses").replaceChildren(...found.clauses.map((clause) => element("li", clause)));
    head = found.head;
    if (head.plans.length) {
      at("explored").replaceChildren(at("explorerParts").content.cloneNode(true));
      explore(head, found.block, closing.signal);
    }
    doing(`${name}: causes known in ${seconds().toFixed(1)} s; looking for cures`);
  },
  cured: (found, name) => {
    at("clauses").replaceChildren(...found.clauses.map((clause) => element("li", clause)));
    for (const cause of head.causes ?? []) cause.cure = found.cures[cause.number];
    at("explorer")?.dispatchEvent(new Event("causes"));
    done(`${name}: done in ${seconds().toFixed(1)} s.`);
  },
};

const listen = ({ data }) => {
  if (data.what === "ready" && !busy) say("Ready.");
  if (data.what === "failed") done(`Python did not load: ${data.text}`);
  if (!SHOW[data.what]) return;
  if (data.found.refused === undefined) SHOW[data.what](data.found, data.name);
  else done(`${data.name}: ${data.found.refused}`);
};

const started = () => {
  const made = new Worker("worker.js", { type: "module" });
  made.addEventListener("message", listen);
  made.addEventListener("error", (event) => done(`Python did not load: ${event.message}`));
  return made;
};
let worker = started();

const take = async (file) => {
  if (!file) return;
  at("report").hidden = true;
  close();
  if (busy) { // what it does is not asked for any more
    worker.terminate();
    worker = started();
  }
  busy = true;
  began = performance.now();
  doing(`Reading ${file.name}`);
  try {
    worker.postMessage({ name: file.name, text: await file.text() });
  } catch (error) {
    done(`${file.name}: cannot be read: ${error.message}`);
  }
};

at("file").addEventListener("change", (event) => take(event.target.files[0]));
for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    if (name === "drop") take(event.dataTransfer.files[0]);
  });
}
