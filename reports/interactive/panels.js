// What stands beside the maps: lists of any length, what is told of a cause, a buffer, an op, and the filter. Names are text, never markup.

const ROW = 22, SPARE = 4;  // pixels of a row; rows made above and below those in sight

const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

// A list of `set(count, row)` rows, of which only those in sight are made; `open(index)` is called on a click, and on Enter.
const listOf = (place, open) => {
  const room = element("div", "", { className: "room" });
  place.append(room);
  let entries = 0, text = () => "", chosen = -1;
  const fill = () => {
    room.style.height = `${entries * ROW}px`;
    const first = Math.max(0, Math.floor(place.scrollTop / ROW) - SPARE), last = Math.min(entries, Math.ceil((place.scrollTop + place.clientHeight) / ROW) + SPARE);
    const rows = [];
    for (let k = first; k < last; k += 1) {
      const row = element("div", text(k), { className: "row", id: `${place.id}-${k}`, title: text(k) });
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(k === chosen));
      row.setAttribute("aria-setsize", String(entries));
      row.setAttribute("aria-posinset", String(k + 1));
      row.style.top = `${k * ROW}px`;
      row.addEventListener("click", () => open(k));
      rows.push(row);
    }
    room.replaceChildren(...rows);
    if (chosen >= 0) place.setAttribute("aria-activedescendant", `${place.id}-${chosen}`); else place.removeAttribute("aria-activedescendant");
  };
  const choose = (index) => {
    chosen = index;
    if (index >= 0 && index * ROW < place.scrollTop) place.scrollTop = index * ROW;
    if (index >= 0 && (index + 1) * ROW > place.scrollTop + place.clientHeight) place.scrollTop = (index + 1) * ROW - place.clientHeight;
    fill();
  };
  place.addEventListener("scroll", fill);
  place.addEventListener("keydown", (event) => {
    const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: entries - 1, PageDown: chosen + 10, PageUp: chosen - 10 }[event.key];
    if (to === undefined && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (to !== undefined) choose(Math.max(0, Math.min(entries - 1, to))); else if (chosen >= 0) open(chosen);
  });
  return { set: (many, row) => { entries = many; text = row; chosen = Math.min(chosen, many - 1); fill(); }, choose };
};

const SIZES = { "": 1, b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

// Turn the words of the filter into a rule over (plan, buffer); null where there is no word.
const FIELDS = {
  layer: (p, k, v) => String(p.program.layer[k]) === v,
  kind: (p, k, v) => (p.program.kind[k] < 0 ? "given" : p.program.kinds[p.program.kind[k]]).toLowerCase() === v,
  role: (p, k, v) => p.program.roles[p.program.role[k]] === v,
  stream: (p, k, v) => p.program.stream[k] >= 0 && (String(p.program.stream[k]) === v || p.program.streams[p.program.stream[k]].toLowerCase() === v),
  arena: (p, k, v) => p.laneOf(k).name.toLowerCase() === v || String(p.arena[k]) === v,
};
const rulesOf = (words) => {
  const rules = words.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const size = /^size([<>]=?)([\d.]+)([kmgt]?i?b?)$/.exec(word);
    if (size) {
      const least = Number(size[2]) * (SIZES[size[3]] || SIZES[`${size[3][0]}ib`] || 1), above = size[1][0] === ">", equal = size[1].length > 1;
      return (p, k) => (above ? p.size[k] > least : p.size[k] < least) || (equal && p.size[k] === least);
    }
    const [field, ...value] = word.split(":");
    if (value.length && FIELDS[field]) return (p, k) => FIELDS[field](p, k, value.join(":"));
    return (p, k) => p.program.names.at(k).toLowerCase().includes(word);
  });
  return rules.length ? (plan, k) => rules.every((rule) => rule(plan, k)) : null;
};

const named = (plan, k) => plan.program.names.at(k) || "(no name)";
const opNamed = (program, op) => `${count(op)} ${program.ops.at(op) || program.kinds[program.opKind[op]] || "?"}`;

const MOST_LINKS = 24;  // of one line; the rest are counted, and are reached through the ops

const links = (title, things, word, go) => {
  if (!things.length) return [];
  const line = element("div", `${title} `, { className: "links" });
  for (const one of things.slice(0, MOST_LINKS)) {
    const button = element("button", word(one), { type: "button" });
    button.addEventListener("click", () => go(one));
    line.append(button);
  }
  if (things.length > MOST_LINKS) line.append(`and ${count(things.length - MOST_LINKS)} more`);
  return [line];
};

const tip = (plan, k) => [
  named(plan, k),
  `${bytes(plan.size[k])} ${addressOf(plan, k)}, steps [${count(plan.start[k])}, ${count(plan.stop[k])})`,
];

// Those that have some of its bytes before and after it, the nearest in time.
const neighbours = (plan, k) => {
  let before = -1, after = -1;
  const top = plan.bottom[k] + plan.size[k];
  within(plan, [-Infinity, Infinity, plan.bottom[k], top], (o) => {
    if (o === k || plan.bottom[o] >= top || plan.bottom[o] + plan.size[o] <= plan.bottom[k]) return;
    if (plan.stop[o] <= plan.start[k] && (before < 0 || plan.stop[o] > plan.stop[before])) before = o;
    if (plan.start[o] >= plan.stop[k] && (after < 0 || plan.start[o] < plan.start[after])) after = o;
  });
  return [before, after].map((o) => (o < 0 ? [] : [o]));
};

const toldOfBuffer = (plan, k, { keep, step }) => {
  const { program } = plan, op = (n) => opNamed(program, n), name = (o) => named(plan, o), [before, after] = neighbours(plan, k);
  const kind = program.kind[k] < 0 ? "given" : program.kinds[program.kind[k]], one = (map) => (map.has(k) ? [map.get(k)] : []);
  return [
    element("h3", named(plan, k)),
    element("div", `${tip(plan, k)[1]}; ${program.roles[program.role[k]]}, ${kind}${program.layer[k] < 0 ? "" : `, layer ${program.layer[k]}`}`),
    ...links("written by", program.writtenBy.of(k), op, step),
    ...links("read by", program.readBy.of(k), op, step),
    ...links("takes its bytes in place from", one(plan.donor), name, keep),
    ...links("gives its bytes in place to", one(plan.recipient), name, keep),
    ...links("before it here", before, name, keep),
    ...links("after it here", after, name, keep),
  ];
};

const toldOfOp = (plan, at, { keep }) => {
  const { program } = plan;
  if (at >= program.ops.length) return [];
  const name = (k) => named(plan, k), stream = program.streams.length > 1 ? `, stream ${program.streams[program.opStream[at]]}` : "";
  return [element("h3", `op ${opNamed(program, at)} (${program.kinds[program.opKind[at]]}${stream})`), ...links("reads", program.operands(at), name, keep), ...links("writes", program.results(at), name, keep)];
};

const WORDS = { victim: "victim", taker: "taken by", writer: "written by", reader: "read into", sharing: "sharing", racing: "racing" };

const toldOfCause = (plan, cause, conflict, places, { keep, place }) => {
  const parties = conflict ? conflict.parties : (cause ? cause.parties : []), roles = [...new Set(parties.map(([role]) => role))];
  return [
    ...(cause ? [element("h3", `${cause.number}. ${cause.class} ${cause.party}`), element("div", cause.text), element("div", `mend: ${cause.mend}`), ...(cause.cure ? [element("div", `cure: ${cause.cure}`)] : [])] : []),
    ...(conflict ? [element("div", conflict.words, { className: "fault" })] : []),
    ...(cause && !conflict ? [element("div", "not a place in a plan shown here: nothing to frame", { className: "note" })] : []),
    ...roles.flatMap((role) => links(WORDS[role] || role, parties.filter(([r]) => r === role).map(([, k]) => k), (k) => named(plan, k), keep)),
    ...(places.length > 1 ? links(`place ${count(places.indexOf(conflict) + 1)} of ${count(places.length)}:`, [-1, 1], (by) => (by < 0 ? "the one before" : "the next"), (by) => place(places[(places.indexOf(conflict) + by + places.length) % places.length])) : []),
  ];
};
