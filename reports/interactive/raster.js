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

// What to colour by: the family of each buffer and what a family is called.
const FAMILIES = {
  kind: (plan) => [plan.program.kind, (f) => (f < 0 ? "given" : plan.program.kinds[f])],
  role: (plan) => [plan.program.role, (f) => plan.program.roles[f]],
  stream: (plan) => [plan.program.stream, (f) => (f < 0 ? "given" : `stream ${plan.program.streams[f]}`)],
  layer: (plan) => [plan.program.layer, (f) => (f < 0 ? "no layer" : `layer ${f}`)],
  change: (plan, changed) => [changed, (f) => ["only here", "same place", "moved"][f]],
};

// {of: index into `colours` by buffer, colours, legend}; the palette goes to the families with most bytes x steps.
const coloured = (plan, by, changed) => {
  const [family, word] = FAMILIES[by](plan, changed), weight = new Map();
  for (const k of plan.order) weight.set(family[k], (weight.get(family[k]) || 0) + plan.size[k] * (plan.stop[k] - plan.start[k]));
  let ranked = [...weight.keys()].sort((a, b) => weight.get(b) - weight.get(a));
  let colour;
  if (by === "layer") {
    ranked = ranked.sort((a, b) => a - b);
    const top = Math.max(1, ...ranked);
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
  return { of, colours, legend };
};

// Paint boxes into `image` (an ImageData of `frame.width` x `frame.height` pixels, whose left lower corner is the view's).
// `faint` says which are paled. A row of a box is written as its two ends; sums along the row give what lies between. So the cost is
// the rows that boxes cover, however wide they are, and the pixels of the frame.
const rasterize = (image, frame, plan, look, faint) => {
  const { width, height } = frame, wide = width + 2, ends = new Float64Array(4 * wide * height);  // cover, red, green, blue
  const sx = frame.perStep, sy = frame.perByte, inks = look.colours.map(channels), pales = inks.map((c) => c.map((v) => v + (255 - v) * 0.72));
  const { start, until, bottom, size } = plan;
  const change = (place, part, r, g, b) => { const p = 4 * place; ends[p] += part; ends[p + 1] += part * r; ends[p + 2] += part * g; ends[p + 3] += part * b; };
  within(plan, [frame.x0, frame.x0 + width / sx, frame.y1 - height / sy, frame.y1], (k) => {
    let left = (start[k] - frame.x0) * sx, right = (until[k] - frame.x0) * sx;
    let up = (frame.y1 - bottom[k] - size[k]) * sy, down = (frame.y1 - bottom[k]) * sy;
    if (right <= 0 || left >= width || down <= 0 || up >= height) return;
    if (right - left > 4 && down - up > 4) { right -= 1; up += 1; }  // a light line between neighbours
    left = Math.max(left, 0); right = Math.min(right, width); up = Math.max(up, 0); down = Math.min(down, height);
    const i = Math.floor(left), j = Math.floor(right), near = i + 1 - left, far = right - j, [r, g, b] = (faint && faint[k] ? pales : inks)[look.of[k]];
    for (let y = Math.floor(up); y < down; y += 1) {
      const high = Math.min(y + 1, down) - Math.max(y, up), row = y * wide;
      if (i === j) { change(row + i, high * (right - left), r, g, b); change(row + i + 1, -high * (right - left), r, g, b); continue; }
      change(row + i, high * near, r, g, b);
      change(row + i + 1, high * (1 - near), r, g, b);
      change(row + j, -high * (1 - far), r, g, b);
      change(row + j + 1, -high * far, r, g, b);
    }
  });
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
