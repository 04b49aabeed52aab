// Boxes as pixels. A box thinner than a pixel covers a part of it: thousands of them make a shade, not a block.

const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#AA4499", "#56B4E9", "#999933", "#332288"];
const GREY = "#9AA0A6", RED = "#C8102E", INK = "#1a1a1a", FAINT = "#5f6368";
const LAYERS = ["#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39"];

const channels = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
const mixed = (stops, part) => {
  const at = Math.max(0, Math.min(1, part)) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [stops[low], stops[low + 1]].map(channels);
  return `#${a.map((v, k) => Math.round(v + (b[k] - v) * (at - low)).toString(16).padStart(2, "0")).join("")}`;
};

// Red, green and blue of each colour and, after them all, of each paled: `rasterize` reads them for every box.
const inksOf = (colours) => {
  const inks = new Float64Array(6 * colours.length);
  colours.forEach((colour, index) => channels(colour).forEach((v, c) => { inks[3 * index + c] = v; inks[3 * (colours.length + index) + c] = v + (255 - v) * 0.72; }));
  return inks;
};

// What to colour by: the family of each buffer and what a family is called.
const FAMILIES = {
  kind: (plan) => [plan.program.kind, (f) => (f < 0 ? "given" : plan.program.kinds[f])],
  role: (plan) => [plan.program.role, (f) => plan.program.roles[f]],
  stream: (plan) => [plan.program.stream, (f) => (f < 0 ? "given" : `stream ${plan.program.streams[f]}`)],
  layer: (plan) => [plan.program.layer, (f) => (f < 0 ? "no layer" : `layer ${f}`)],
  change: (plan, changed) => [changed, (f) => ["only here", "same place", "moved"][f]],
};

// {of: index into `colours` by buffer, colours, legend, inks}; the palette goes to the families with most bytes x steps.
const coloured = (plan, by, changed) => {
  const [family, word] = FAMILIES[by](plan, changed), weight = new Map();
  for (const k of plan.order) weight.set(family[k], (weight.get(family[k]) || 0) + plan.size[k] * (plan.stop[k] - plan.start[k]));
  let ranked = [...weight.keys()].sort((a, b) => weight.get(b) - weight.get(a));
  let colour;
  if (by === "layer") {
    ranked = ranked.sort((a, b) => a - b);
    const top = Math.max(1, ranked.at(-1));
    colour = (f) => (f < 0 ? GREY : mixed(LAYERS, f / top));
  } else if (by === "change") {
    colour = (f) => [PALETTE[3], "#d5d8db", PALETTE[1]][f];
  } else {
    colour = (f) => PALETTE[ranked.indexOf(f)] || GREY;
  }
  const place = new Map(ranked.map((f, index) => [f, index])), of = new Int32Array(plan.count);
  for (const k of plan.order) of[k] = place.get(family[k]);
  const colours = ranked.map(colour);
  const few = by === "layer" && ranked.length > 8 ? [ranked[0], ranked[1], ranked[ranked.length >> 1], ranked.at(-1)] : ranked.slice(0, 7);
  const legend = few.map((f) => [word(f), colour(f)]);
  if (ranked.length > few.length) legend.push([`${ranked.length - few.length} more`, by === "layer" ? "" : GREY]);
  return { of, colours, legend, inks: inksOf(colours) };
};

let room = new Float64Array(0);  // kept from frame to frame: to ask for it anew costs more than to empty it
const emptied = (entries) => {
  if (room.length < entries) room = new Float64Array(entries); else room.fill(0, 0, entries);
  return room;
};

// Write the cover of pixels by [low, high) as changes from one pixel to the next: two where it lies in one pixel, else four.
const edgesOf = (low, high, places, parts) => {
  const i = Math.floor(low), j = Math.floor(high);
  places[0] = i; places[1] = i + 1;
  if (i === j) { parts[0] = high - low; parts[1] = low - high; return 2; }
  parts[0] = i + 1 - low; parts[1] = low - i;
  places[2] = j; places[3] = j + 1;
  parts[2] = high - j - 1; parts[3] = j - high;
  return 4;
};

// Paint boxes into `image` (an ImageData of `frame.width` x `frame.height` pixels, whose left lower corner is the view's).
// `faint` says which are paled. A box is written as changes at its corners; sums from row to row, then along each, give what lies
// between. So the cost is boxes and pixels, however large the boxes are.
const rasterize = (image, frame, plan, look, faint) => {
  const { width, height } = frame, wide = width + 2, ends = emptied(4 * wide * (height + 2));  // cover, red, green, blue
  const sx = frame.perStep, sy = frame.perByte, { inks, of } = look, paled = look.colours.length;
  const { start, until, bottom, size } = plan, [across, along] = [0, 1].map(() => ({ places: new Int32Array(4), parts: new Float64Array(4) }));
  within(plan, [frame.x0, frame.x0 + width / sx, frame.y1 - height / sy, frame.y1], (k) => {
    let left = (start[k] - frame.x0) * sx, right = (until[k] - frame.x0) * sx;
    let up = (frame.y1 - bottom[k] - size[k]) * sy, down = (frame.y1 - bottom[k]) * sy;
    if (right <= 0 || left >= width || down <= 0 || up >= height) return;
    if (right - left > 4 && down - up > 4) { right -= 1; up += 1; }  // a light line between neighbours
    const columns = edgesOf(Math.max(left, 0), Math.min(right, width), across.places, across.parts);
    const rows = edgesOf(Math.max(up, 0), Math.min(down, height), along.places, along.parts);
    const ink = 3 * (of[k] + (faint && faint[k] ? paled : 0)), r = inks[ink], g = inks[ink + 1], b = inks[ink + 2];
    for (let y = 0; y < rows; y += 1) {
      for (let x = 0; x < columns; x += 1) {
        const p = 4 * (along.places[y] * wide + across.places[x]), part = along.parts[y] * across.parts[x];
        ends[p] += part; ends[p + 1] += part * r; ends[p + 2] += part * g; ends[p + 3] += part * b;
      }
    }
  });
  for (let p = 4 * wide; p < 4 * wide * height; p += 1) ends[p] += ends[p - 4 * wide];
  const pixels = image.data;
  for (let y = 0, q = 0; y < height; y += 1) {
    let cover = 0, red = 0, green = 0, blue = 0;
    for (let x = 0, p = 4 * y * wide; x < width; x += 1, p += 4, q += 4) {
      cover += ends[p]; red += ends[p + 1]; green += ends[p + 2]; blue += ends[p + 3];
      pixels[q] = pixels[q + 1] = pixels[q + 2] = pixels[q + 3] = 255;
      if (cover < 1e-6) continue;
      const part = Math.min(1, cover), white = 255 * (1 - part), scale = part / cover;
      pixels[q] = white + red * scale; pixels[q + 1] = white + green * scale; pixels[q + 2] = white + blue * scale;
    }
  }
};
