// Python in a thread of its own: loads once, then answers one document after the other.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const ready = (async () => {
  const python = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  const archive = await (await fetch("allocsim.zip")).arrayBuffer();
  python.unpackArchive(archive, "zip", { extractDir: "/allocsim" });
  python.runPython("import sys; sys.path.insert(0, '/allocsim'); from allocsim.serving import in_browser");
  return python.globals.get("in_browser");
})();

ready.then(
  () => postMessage({ what: "ready" }),
  (error) => postMessage({ what: "failed", text: String(error).split("\n").at(-1) || String(error) }),
);

addEventListener("message", async ({ data }) => {
  const answer = (found) => postMessage({ what: "judged", name: data.name, found });
  try {
    const judge = await ready;
    const sizes = JSON.parse(judge.sizes(data.text));
    if (sizes.refused !== undefined) {
      answer(sizes);
      return;
    }
    postMessage({ what: "sizes", found: sizes });
    answer(JSON.parse(judge.judged(data.text)));
  } catch (error) {
    answer({ refused: `could not be judged: ${String(error).trim().split("\n").at(-1)}` });
  }
});
