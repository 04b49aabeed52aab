// Python in a thread of its own: loads once, then answers one document after the other, the quickest answer first.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const ready = (async () => {
  const python = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  const archive = await (await fetch("allocsim.zip")).arrayBuffer();
  python.unpackArchive(archive, "zip", { extractDir: "/allocsim" });
  python.runPython("import sys; sys.path.insert(0, '/allocsim'); from reports.serving import in_browser");
  return python.globals.get("in_browser");
})();

ready.then(
  () => postMessage({ what: "ready" }),
  (error) => postMessage({ what: "failed", text: String(error).split("\n").at(-1) || String(error) }),
);

const STAGES = ["sizes", "judged", "explained", "cured"];

addEventListener("message", async ({ data }) => {
  const answer = (what, found) => postMessage({ what, name: data.name, found });
  let stage = STAGES[0];
  try {
    const python = await ready;
    for (stage of STAGES) {
      const found = JSON.parse(python[stage](data.text));
      answer(stage, found);
      if (found.refused !== undefined) return;
    }
  } catch (error) {
    answer(stage, { refused: `could not be judged: ${String(error).trim().split("\n").at(-1)}` });
  }
});
