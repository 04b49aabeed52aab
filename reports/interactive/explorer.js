// The explorer: what is chosen, how it is chosen by hand, by key and by address, and what is drawn then.

const at = (id) => document.getElementById(id);

const begin = (head, block, signal) => {
  const column = reader(block, head.columns);
  const programs = head.programs.map((said, index) => programOf(column, index, said));
  const made = new Map();
  const planAt = (index) => { if (!made.has(index)) made.set(index, planOf(column, index, head.plans[index], programs)); return made.get(index); };
  const views = [viewOf(at("map")), viewOf(at("beside"))], [map, beside] = views;
  const hint = element("div", "", { className: "tip", hidden: true });
  at("explorer").append(hint);
  const fields = { plan: at("plan"), other: at("other"), by: at("by"), find: at("find"), at: at("at") };
  const state = { at: 0, over: -1, kept: -1, cause: null, conflict: null, rule: null, window: null };

  const twin = (view, k) => {
    if (k < 0 || view.plan.program === map.plan.program) return k;
    if (!view.plan.byName) { view.plan.byName = new Map(); for (let o = 0; o < view.plan.count; o += 1) view.plan.byName.set(view.plan.program.names.at(o), o); }
    return view.plan.byName.get(map.plan.program.names.at(k)) ?? -1;
  };
  const parties = () => (state.conflict ? state.conflict.parties : state.cause ? state.cause.parties : []);
  state.framed = (view) => [
    ...parties().map(([role, k]) => [twin(view, k), role === "victim" ? RED : INK, role === "reader" ? [5, 3] : []]),
    [twin(view, state.over), FAINT, []], [twin(view, state.kept), "#000", []],
  ];
  const shown = () => views.filter((view) => view.plan);

  let queued = false;
  const draw = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      for (const view of shown()) { view.measure(); view.paint(state.window); view.mark(state.window, state); view.point(state.window, state); }
    });
  };

  // Which boxes are paled: what the filter leaves out, else all but the parties of the cause.
  const fade = () => {
    const chosen = new Set(parties().map(([, k]) => k));
    for (const view of shown()) {
      view.faint = state.rule || chosen.size ? new Uint8Array(view.plan.count) : null;
      const mine = new Set([...chosen].map((k) => twin(view, k)));
      if (state.rule) for (const k of view.plan.order) view.faint[k] = !state.rule(view.plan, k);
      else if (view.faint) { view.faint.fill(1); for (const k of mine) if (k >= 0) view.faint[k] = 0; }
      view.stale();
    }
  };

  const changed = (plan, view) => {
    const found = new Int32Array(plan.count), theirs = view && view.plan;
    if (theirs) for (const k of plan.order) { const o = view === beside ? twin(beside, k) : k; found[k] = o < 0 || theirs.stop[o] <= theirs.start[o] ? 0 : theirs.arena[o] === plan.arena[k] && Number(theirs.low[o]) === Number(plan.low[k]) ? 1 : 2; }
    return found;
  };
  const colour = () => {
    map.look = coloured(map.plan, fields.by.value, changed(map.plan, beside));
    if (beside.plan) beside.look = fields.by.value === "change" && beside.plan.program !== map.plan.program ? coloured(beside.plan, "kind") : coloured(beside.plan, fields.by.value, changed(beside.plan, map));
    at("legend").replaceChildren(...map.look.legend.map(([word, ink]) => { const one = element("span", word), spot = element("i", ""); spot.style.background = ink; one.prepend(spot); return one; }));
    shown().forEach((view) => view.stale());
  };

  const address = () => {
    const w = state.window, whole = entire(), words = new URLSearchParams();
    const said = { cause: state.cause && state.cause.number, place: state.conflict && places(state.conflict.cause).indexOf(state.conflict) || null, plan: fields.plan.value === "0" ? null : fields.plan.value, other: fields.other.value || null,
      by: fields.by.value === first ? null : fields.by.value, find: fields.find.value || null, at: state.at || null, buffer: state.kept < 0 ? null : state.kept,
      view: ["x0", "x1", "y0", "y1"].every((edge) => w[edge] === whole[edge]) ? null : [w.x0, w.x1, w.y0, w.y1].map((v) => +v.toPrecision(12)).join(",") };
    for (const [name, value] of Object.entries(said)) if (value !== null) words.set(name, value);
    if (location.hash.slice(1) !== words.toString()) history.replaceState(null, "", `#${words}`);
  };
  let waiting = 0;
  signal?.addEventListener("abort", () => clearTimeout(waiting));
  const remember = () => { clearTimeout(waiting); waiting = setTimeout(address, 150); };

  const tell = () => {
    const focused = at("told").contains(document.activeElement);
    at("told").replaceChildren(
      ...(state.cause || state.conflict ? toldOfCause(map.plan, state.cause, state.conflict, state.conflict ? places(state.conflict.cause) : [], { keep, place: jump }) : []),
      ...(state.kept >= 0 ? toldOfBuffer(map.plan, state.kept, { keep, step }) : []),
      ...toldOfOp(map.plan, state.at, { keep }),
    );
    if (focused) at("told").focus();  // else a key that followed a link would leave the focus nowhere
    remember();
    draw();
  };

  const entire = () => shown().map((view) => view.all()).reduce((a, b) => ({ x0: 0, x1: Math.max(a.x1, b.x1), y0: 0, y1: Math.max(a.y1, b.y1) }));
  const look = (window) => { state.window = window; remember(); draw(); };
  const frame = (x0, x1, y0, y1) => {
    const whole = entire(), wide = Math.min(Math.max((x1 - x0) * 1.5, 12), whole.x1), high = Math.min(Math.max((y1 - y0) * 1.3, 16), whole.y1);
    const x = Math.max(0, Math.min((x0 + x1 - wide) / 2, whole.x1 - wide)), y = Math.max(0, Math.min((y0 + y1 - high) / 2, whole.y1 - high));
    look({ x0: x, x1: x + wide, y0: y, y1: y + high });
  };
  const extent = (k) => [map.plan.start[k], map.plan.until[k], map.plan.bottom[k], map.plan.bottom[k] + map.plan.size[k]];

  function keep(k, move = true) {
    state.kept = k;
    if (k >= 0 && move && map.plan.stop[k] > map.plan.start[k]) {
      const [x0, x1, y0, y1] = extent(k), w = state.window;
      if (x1 < w.x0 || x0 > w.x1 || y0 > w.y1 || y1 < w.y0 || y1 - y0 < (w.y1 - w.y0) / 200) frame(x0, x1, y0 - (y1 - y0) * 2, y1 + (y1 - y0) * 2);
    }
    tell();
  }

  let alive = [];
  function step(to) {
    state.at = Math.max(0, Math.min(Math.max(map.plan.steps - 1, 0), Math.round(to) || 0));
    fields.at.value = state.at;
    const w = state.window, wide = w.x1 - w.x0;
    if (state.at < w.x0 || state.at + 1 > w.x1) look({ ...w, x0: state.at + 0.5 - wide / 2, x1: state.at + 0.5 + wide / 2 });
    alive = aliveAt(map.plan, state.at);
    at("liveHead").textContent = `Alive at step ${count(state.at)}: ${count(alive.length)} buffer${alive.length === 1 ? "" : "s"}, ${bytes(heightAt(map.plan, state.at))} in arenas`;
    lists.live.set(alive.length, (k) => `${bytes(map.plan.size[alive[k]])}  ${named(map.plan, alive[k])}`);
    tell();
  }

  // Causes by their number; where none were found for the conflicts, these themselves.
  const unnumbered = head.plans.flatMap((said, plan) => said.conflicts.filter((one) => !one.cause).map((conflict) => ({ conflict, plan })));
  const rows = [...head.causes.map((cause) => ({ cause })), ...unnumbered];
  const places = (number) => map.plan.conflicts.filter((one) => one.cause === number);
  function select(row) {
    const { cause = null, plan } = rows[row];
    lists.causes.choose(row);
    const has = (index) => head.plans[index].conflicts.some((one) => cause && one.cause === cause.number);
    const now = Number(fields.plan.value), where = plan ?? [now, ...head.plans.keys()].find(has) ?? (head.plans.findIndex((said) => cause.run !== null && said.run === cause.run));
    if (where >= 0 && where !== now) open(where);
    state.cause = cause;
    jump(cause ? places(cause.number)[0] || null : rows[row].conflict);
  }
  function jump(conflict) {
    state.conflict = conflict;
    state.kept = -1;
    if (conflict && !state.cause) state.cause = head.causes.find((cause) => cause.number === conflict.cause) || null;
    fade();
    const boxes = [], lane = conflict && map.plan.allLanes[conflict.lane].at;
    if (conflict) boxes.push(...conflict.boxes.map(([x0, x1, y0, y1]) => [x0, x1, y0 + lane, y1 + lane]));
    const from = boxes.length ? Math.min(...boxes.map((box) => box[0])) : -Infinity, to = boxes.length ? Math.max(...boxes.map((box) => box[1])) : Infinity, beyond = boxes.length ? Math.max(8, to - from) : 0;
    for (const [, k] of parties()) {
      if (map.plan.stop[k] <= map.plan.start[k]) continue;
      const [x0, x1, y0, y1] = extent(k);
      boxes.push([Math.min(Math.max(x0, from - beyond), x1), Math.max(Math.min(x1, to + beyond), x0), y0, y1]);
    }
    if (boxes.length) frame(...[0, 1, 2, 3].map((edge) => Math[edge % 2 ? "max" : "min"](...boxes.map((box) => box[edge]))));
    step((conflict && (conflict.read ?? conflict.taken)) ?? (boxes.length ? boxes[0][0] : state.at));
  }

  const release = () => { state.kept = -1; state.cause = state.conflict = null; lists.causes.choose(-1); fade(); tell(); };
  function open(index) {
    fields.plan.value = index;
    map.plan = planAt(index);
    state.kept = state.over = -1;
    state.cause = state.conflict = null;
    fields.at.max = Math.max(map.plan.steps - 1, 0);
    place();
  }
  function place() {
    beside.plan = fields.other.value === "" ? null : planAt(Number(fields.other.value));
    beside.place.hidden = !beside.plan;
    at("explorer").classList.toggle("two", Boolean(beside.plan));
    shown().forEach((view) => view.measure());
    state.window = entire();
    const outside = map.plan.count - map.plan.order.length;
    at("note").textContent = `${count(map.plan.order.length)} buffers drawn${outside ? `, ${count(outside)} that never live or are empty are found by name` : ""}; line: end of the plan (${map.plan.lanes.filter((l) => !l.outside).map((l) => bytes(l.top)).join(", ")}), dashed: most bytes alive (${map.plan.lanes.filter((l) => !l.outside).map((l) => bytes(l.bound)).join(", ")})`;
    if (beside.plan) { const mine = changed(map.plan, beside); at("note").textContent += `; ${count(map.plan.order.reduce((sum, k) => sum + (mine[k] !== 1), 0))} buffers lie elsewhere in the second plan`; }
    colour();
    fade();
    step(state.at);
  }

  let found = [];
  const search = () => {
    state.rule = rulesOf(fields.find.value);
    found = [];
    if (state.rule) for (let k = 0; k < map.plan.count; k += 1) if (state.rule(map.plan, k)) found.push(k);
    at("hits").textContent = state.rule ? `${count(found.length)} found` : "";
    fade();
    remember();
    draw();
  };
  const next = (by) => { if (found.length) keep(found[(found.indexOf(state.kept) + by + found.length) % found.length]); };

  const zoom = (factor, x, y) => {
    const w = state.window, whole = entire(), step_ = map.stepAt(w, x), byte = map.byteAt(w, y);
    const wide = Math.min((w.x1 - w.x0) * factor, (whole.x1 - whole.x0) * 2), high = Math.min((w.y1 - w.y0) * factor, (whole.y1 - whole.y0) * 2);
    if (wide < 1e-3 || high < 1e-3) return;
    const px = (step_ - w.x0) / (w.x1 - w.x0), py = (byte - w.y0) / (w.y1 - w.y0);
    look({ x0: step_ - px * wide, x1: step_ + (1 - px) * wide, y0: byte - py * high, y1: byte + (1 - py) * high });
  };
  const middle = (factor) => zoom(factor, LEFT + map.size().width / 2, TOP + map.size().height / 2);
  const pan = (from, dx, dy) => {  // by whole pixels
    const [nearX, nearY] = map.near(from), x = Math.round(dx) * nearX, y = Math.round(dy) * nearY;
    look({ x0: from.x0 - x, x1: from.x1 - x, y0: from.y0 + y, y1: from.y1 + y });
  };

  const cycle = (by) => { if (rows.length) { const now = rows.findIndex((row) => (state.cause ? row.cause === state.cause : row.conflict && row.conflict === state.conflict)); select(((now < 0 && by < 0 ? 0 : now) + by + rows.length) % rows.length); } };
  const compare = () => { const now = Number(fields.plan.value); fields.other.value = fields.other.value === "" && head.plans.length > 1 ? (now + 1) % head.plans.length : ""; fields.by.value = fields.other.value === "" ? first : "change"; place(); };
  const KEYS = {
    ArrowLeft: () => step(state.at - 1), ArrowRight: () => step(state.at + 1), PageUp: () => step(state.at - 100), PageDown: () => step(state.at + 100), Home: () => step(0), End: () => step(Infinity),
    "+": () => middle(0.6), "=": () => middle(0.6), "-": () => middle(1 / 0.6), 0: () => look(entire()), n: () => cycle(1), p: () => cycle(-1), d: compare, "/": () => fields.find.focus(), Escape: release,
    Enter: () => next(1), "?": () => at("help").click(),
  };
  const MOVES = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  document.addEventListener("keydown", (event) => {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName), pressing = event.target.tagName === "BUTTON" && event.key === "Enter";
    if (event.ctrlKey || event.metaKey || event.altKey || pressing || (typing && event.key !== "Escape")) return;
    if (event.target.closest && !event.target.closest("#explorer") && event.target !== document.body) return;
    const act = event.shiftKey && MOVES[event.key] ? () => pan(state.window, ...MOVES[event.key]) : KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    if (typing) event.target.blur();
    act();
  }, { signal });

  for (const view of views) {
    let from = null;
    const point = (event) => { const box = view.over.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const under = (event) => { const [x, y] = point(event); return x < LEFT || y < TOP ? -1 : boxAt(view.plan, view.stepAt(state.window, x), view.byteAt(state.window, y), view.near(state.window)); };
    const mine = (k) => (k < 0 || view === map || view.plan.program === map.plan.program ? k : -1);
    view.over.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(event.deltaY / 400), ...point(event)); }, { passive: false });
    view.over.addEventListener("pointerdown", (event) => { view.over.setPointerCapture(event.pointerId); from = { at: point(event), window: { ...state.window }, moved: false }; });
    view.over.addEventListener("pointermove", (event) => {
      if (from) {
        const [dx, dy] = point(event).map((v, k) => v - from.at[k]);
        from.moved = from.moved || Math.hypot(dx, dy) > 4;
        if (from.moved) { hint.hidden = true; pan(from.window, dx, dy); }
        return;
      }
      const k = under(event), around = at("explorer").getBoundingClientRect();
      hint.hidden = k < 0;
      if (k >= 0) {
        hint.replaceChildren(...tip(view.plan, k).map((line) => element("div", line)));
        hint.style.left = `${Math.max(0, Math.min(event.clientX - around.left + 14, around.width - hint.offsetWidth - 4))}px`;
        hint.style.top = `${event.clientY - around.top + 18}px`;
      }
      if (mine(k) !== state.over) { state.over = mine(k); draw(); }
    });
    view.over.addEventListener("pointerup", (event) => {
      const [x, y] = point(event);
      if (from && !from.moved) { if (y < TOP || under(event) < 0) step(Math.floor(view.stepAt(state.window, x))); else if (mine(under(event)) >= 0) keep(mine(under(event)), false); }
      from = null;
    });
    view.over.addEventListener("pointercancel", () => { from = null; });
    view.over.addEventListener("pointerleave", () => { hint.hidden = true; state.over = -1; draw(); });
    view.over.setAttribute("aria-label", "Memory map: steps across, addresses up; keys: left and right step, n and p causes");
  }

  const lists = { causes: listOf(at("causes"), select), live: listOf(at("live"), (k) => keep(alive[k])) };
  head.plans.forEach((said, index) => { fields.plan.append(new Option(said.title, index)); fields.other.append(new Option(`beside: ${said.title}`, index)); });
  fields.other.prepend(new Option("no second plan", ""));
  fields.plan.hidden = fields.other.hidden = head.plans.length < 2;
  fields.by.querySelector("[value=change]").hidden = head.plans.length < 2;
  at("causesHead").textContent = head.causes.length ? `${count(head.causes.length)} cause${head.causes.length > 1 ? "s" : ""}${unnumbered.length ? `, ${count(unnumbered.length)} conflicts without one` : ""}` : unnumbered.length ? `${count(unnumbered.length)} conflicts` : "No cause: nothing is wrong here";
  lists.causes.set(rows.length, (k) => (rows[k].cause ? `${rows[k].cause.number}. ${rows[k].cause.class} ${rows[k].cause.party}${rows[k].cause.about ? `, ${rows[k].cause.about}` : ""}: ${rows[k].cause.text}` : rows[k].conflict.words));
  at("causes").hidden = !rows.length;
  const layers = planAt(0).program.layer;
  const first = layers.reduce((sum, layer) => sum + (layer >= 0), 0) * 2 > layers.length ? "layer" : "kind";

  const restore = () => {
    const words = new URLSearchParams(location.hash.slice(1)), index = (name, most) => { const v = Number(words.get(name)); return words.has(name) && Number.isInteger(v) && v >= 0 && v < most ? v : null; };
    fields.other.value = index("other", head.plans.length) ?? "";
    fields.by.value = Object.keys(FAMILIES).includes(words.get("by")) ? words.get("by") : first;
    open(index("plan", head.plans.length) ?? 0);
    fields.find.value = words.get("find") || "";
    search();
    const row = rows.findIndex(({ cause }) => cause && String(cause.number) === words.get("cause"));
    if (row >= 0) {
      select(row);
      const place = index("place", state.cause ? places(state.cause.number).length : 0);
      if (place) jump(places(state.cause.number)[place]);
    } else { lists.causes.choose(-1); }
    if (index("at", map.plan.steps) !== null) step(index("at", map.plan.steps));
    if (index("buffer", map.plan.count) !== null) keep(index("buffer", map.plan.count), false);
    const edges = (words.get("view") || "").split(",").map(Number);
    if (edges.length === 4 && edges.every(Number.isFinite) && edges[0] < edges[1] && edges[2] < edges[3]) look({ x0: edges[0], x1: edges[1], y0: edges[2], y1: edges[3] });
  };

  fields.plan.addEventListener("change", () => { open(Number(fields.plan.value)); search(); });
  fields.other.addEventListener("change", place);
  fields.by.addEventListener("change", () => { colour(); remember(); draw(); });
  fields.find.addEventListener("input", search);
  fields.find.addEventListener("keydown", (event) => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); });
  fields.at.addEventListener("change", () => step(Number(fields.at.value)));
  const buttons = { in: () => middle(0.6), out: () => middle(1 / 0.6), reset: () => look(entire()), earlier: () => step(state.at - 1), later: () => step(state.at + 1) };
  for (const [id, act] of Object.entries(buttons)) at(id).addEventListener("click", act);
  at("help").addEventListener("click", () => { at("keys").hidden = !at("keys").hidden; at("help").setAttribute("aria-expanded", String(!at("keys").hidden)); });
  at("explorer").addEventListener("causes", tell);  // more is known of them
  window.addEventListener("hashchange", restore, { signal });
  window.addEventListener("resize", () => { shown().forEach((view) => view.stale()); draw(); }, { signal });
  restore();
  requestAnimationFrame(() => { document.documentElement.dataset.ready = "yes"; performance.mark("drawn"); });
};

// Show what there is in the explorer of the page; `signal` ends it.
const explore = (head, text, signal) => unpacked(text).then((block) => signal?.aborted || begin(head, block, signal)).catch((error) => { at("note").textContent = `The explorer cannot be shown: ${error.message}`; throw error; });
