// Columns of the page: decoding, programs and plans, the index over boxes, and how numbers are written.

const TYPES = { i4: Int32Array, i8: BigInt64Array, f8: Float64Array, u1: Uint8Array };
const EACH = 64;  // boxes of a group of the index
const OWN = -1, NOWHERE = -2;

const unpacked = async (text) => {
  const plain = atob(text), packed = new Uint8Array(plain.length);
  for (let k = 0; k < plain.length; k += 1) packed[k] = plain.charCodeAt(k);  // `from` with a function takes seconds for a million buffers
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
};

const reader = (block, directory) => (name) => {
  const [type, first, entries] = directory[name];
  return new TYPES[type](block, first, entries);
};

// Whole numbers as a column that can be calculated with; digits beyond 2^53 stay in the column it is made of.
const numbers = (column) => (column instanceof BigInt64Array ? Float64Array.from(column, Number) : column);

const texts = (column, name) => {
  const text = new TextDecoder().decode(column(`${name}.text`)), ends = column(`${name}.ends`);
  return { length: ends.length, at: (k) => text.slice(k ? ends[k - 1] : 0, ends[k]) };
};

// Rows of ops turned into rows of buffers: {starts, ops}, the ops of each in order.
const byBuffer = (starts, homes, count) => {
  const from = new Int32Array(count + 1), ops = new Int32Array(homes.length);
  for (const home of homes) from[home + 1] += 1;
  for (let k = 0; k < count; k += 1) from[k + 1] += from[k];
  const next = from.slice();
  for (let op = 0; op + 1 < starts.length; op += 1) {
    for (let k = starts[op]; k < starts[op + 1]; k += 1) ops[next[homes[k]]++] = op;
  }
  return { of: (buffer) => [...new Set(ops.subarray(from[buffer], from[buffer + 1]))] };
};

const programOf = (column, index, said) => {
  const name = `program${index}`, get = (part) => numbers(column(`${name}.${part}`));
  const names = texts(column, `${name}.names`), ops = texts(column, `${name}.opNames`);
  const [reads, readStarts, writes, writeStarts, opKind] = ["reads", "readStarts", "writes", "writeStarts", "opKind"].map(get);
  const kind = new Int32Array(names.length).fill(-1), stream = new Int32Array(names.length).fill(-1), streams = get("opStream");
  const view = said.kinds.indexOf("view");
  for (let op = ops.length - 1; op >= 0; op -= 1) {
    if (opKind[op] === view) continue;
    for (let k = writeStarts[op]; k < writeStarts[op + 1]; k += 1) { kind[writes[k]] = opKind[op]; stream[writes[k]] = streams[op]; }
  }
  return {
    ...said, names, ops, opKind, opStream: streams, kind, stream, role: get("role"), layer: get("layer"),
    readBy: byBuffer(readStarts, reads, names.length), writtenBy: byBuffer(writeStarts, writes, names.length),
    operands: (op) => [...new Set(reads.slice(readStarts[op], readStarts[op + 1]))],
    results: (op) => [...new Set(writes.slice(writeStarts[op], writeStarts[op + 1]))],
  };
};

// A plan with its boxes: x in steps, y in bytes counted through all lanes. Memory outside the arenas is a lane without addresses.
const planOf = (column, index, said, programs) => {
  const get = (part) => numbers(column(`plan${index}.${part}`));
  const [arena, low, size, start, stop, handed] = ["arena", "low", "size", "start", "stop", "handed"].map(get);
  const count = arena.length, until = Float64Array.from(stop), bottom = new Float64Array(count), donor = new Map(), recipient = new Map();
  for (let k = 0; k < handed.length; k += 3) {
    until[handed[k + 1]] = Math.max(handed[k], start[handed[k + 1]] + 1);
    donor.set(handed[k + 2], handed[k + 1]);
    recipient.set(handed[k + 1], handed[k + 2]);
  }
  const lanes = said.lanes.map((lane) => ({ ...lane, low: 0, high: lane.top }));
  const apart = { name: "memory of their own", top: 0, bound: 0, low: 0, high: 0, outside: true };
  const used = [];
  for (let k = 0; k < count; k += 1) {
    if (stop[k] <= start[k] || size[k] <= 0) continue;
    used.push(k);
    if (arena[k] >= 0) { lanes[arena[k]].low = Math.min(lanes[arena[k]].low, low[k]); continue; }
    bottom[k] = apart.high;
    apart.high += size[k];
  }
  lanes.push(apart);
  const drawn = lanes.filter((lane) => lane.high > lane.low), whole = drawn.reduce((sum, lane) => sum + lane.high - lane.low, 0);
  let at = 0;
  for (const lane of drawn) { lane.at = at - lane.low; at += lane.high - lane.low + (drawn.length > 1 ? whole * 0.03 : 0); }
  for (const k of used) bottom[k] = arena[k] >= 0 ? low[k] + lanes[arena[k]].at : bottom[k] + apart.at;
  const order = Int32Array.from(used).sort((a, b) => start[a] - start[b] || a - b);
  const plan = {
    ...said, index, program: programs[said.program], arena, low, exact: column(`plan${index}.low`), size, start, stop, until, bottom,
    donor, recipient, lanes: drawn, laneOf: (k) => (arena[k] >= 0 ? lanes[arena[k]] : apart), allLanes: lanes, top: at || 1, order,
    edges: get("edges"), height: get("height"), count,
  };
  plan.most = plan.height.reduce((a, b) => Math.max(a, b), 1);
  return { ...plan, groups: grouped(plan), marks: marksOf(plan) };
};

// The rectangles of all conflicts, each with the index of its conflict; one whose lane is not drawn has none.
const marksOf = (plan) => {
  const placed = plan.conflicts.flatMap((one, of) => {
    const lane = plan.allLanes[one.lane].at;
    return lane === undefined ? [] : one.boxes.map(([x0, x1, y0, y1]) => [x0, x1, y0 + lane, y1 + lane, of]);
  });
  const [x0, x1, y0, y1, of] = [0, 1, 2, 3, 4].map((edge) => Float64Array.from(placed, (box) => box[edge]));
  return { x0, x1, y0, y1, of };
};

// The index: for each EACH boxes in order of their start, the rectangle round them.
const grouped = (plan) => {
  const count = Math.ceil(plan.order.length / EACH), [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity].map((v) => new Float64Array(count).fill(v));
  plan.order.forEach((k, place) => {
    const g = Math.floor(place / EACH);
    x0[g] = Math.min(x0[g], plan.start[k]); x1[g] = Math.max(x1[g], plan.stop[k], plan.until[k]);
    y0[g] = Math.min(y0[g], plan.bottom[k]); y1[g] = Math.max(y1[g], plan.bottom[k] + plan.size[k]);
  });
  return { count, x0, x1, y0, y1 };
};

// Call `each` with the boxes that may meet a rectangle, closed; those of groups outside it are passed over.
const within = (plan, [x0, x1, y0, y1], each) => {
  const { groups, order } = plan;
  for (let g = 0; g < groups.count; g += 1) {
    if (groups.x0[g] > x1) break;
    if (groups.x1[g] < x0 || groups.y0[g] > y1 || groups.y1[g] < y0) continue;
    const end = Math.min((g + 1) * EACH, order.length);
    for (let place = g * EACH; place < end; place += 1) each(order[place]);
  }
};

const aliveAt = (plan, step) => {
  const found = [];
  within(plan, [step, step, -Infinity, Infinity], (k) => { if (plan.start[k] <= step && step < plan.stop[k]) found.push(k); });
  return found.sort((a, b) => plan.size[b] - plan.size[a] || a - b);
};

// The span of the curve in which a step lies.
const spanAt = (edges, step) => {
  let low = 0, high = edges.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (edges[middle] <= step) low = middle; else high = middle; }
  return low;
};
const heightAt = (plan, step) => plan.height[spanAt(plan.edges, step)] || 0;

// The box at a point, the smallest of several; `near` is how far a box thinner than a pixel reaches.
const boxAt = (plan, x, y, [nearX, nearY]) => {
  let best = -1;
  within(plan, [x - nearX, x + nearX, y - nearY, y + nearY], (k) => {
    const wide = Math.max(plan.until[k], plan.start[k] + nearX), high = Math.max(plan.bottom[k] + plan.size[k], plan.bottom[k] + nearY);
    if (x >= plan.start[k] && x < wide && y >= plan.bottom[k] && y < high && (best < 0 || plan.size[k] <= plan.size[best])) best = k;
  });
  return best;
};

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const bytes = (n) => {
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < UNITS.length - 1) { n /= 1024; unit += 1; }
  return `${unit ? +n.toPrecision(4) : n} ${UNITS[unit]}`;
};
const count = (n) => (typeof n === "bigint" ? n : Math.round(n)).toLocaleString("en");

const addressOf = (plan, k) => {
  if (plan.arena[k] === OWN) return "in memory of its own";
  if (plan.arena[k] === NOWHERE) return "without a slot";
  const low = plan.exact[k], size = typeof low === "bigint" ? BigInt(plan.size[k]) : plan.size[k];
  return `at [${count(low)}, ${count(low + size)}) of ${plan.laneOf(k).name}`;
};
