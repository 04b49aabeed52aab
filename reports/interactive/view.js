// One map on the page: boxes on a canvas that is moved rather than painted anew, marks on one above it, and what a pointer changes on a third.

const LEFT = 76, RIGHT = 8, TOP = 66, BOTTOM = 34, STRIP = 12, MOST = 240, GAP = 10, LEAST = 5;  // pixels; STRIP: a stream, MOST: all of them, LEAST: no party of a cause is smaller
const CELLS = 4096;  // more than a screen has of LEAST pixels

// The smallest of 1, 2, 5 times a power of 10 (of 2 for bytes) that leaves about `most` marks.
const ticksOf = (low, high, most, binary) => {
  const raw = Math.max((high - low) / Math.max(most, 1), 1);
  const power = binary ? 2 ** Math.ceil(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
  const every = binary ? power : power * [1, 2, 5, 10].find((m) => m * power >= raw);
  const found = [];
  for (let mark = Math.ceil(low / every) * every; mark <= high; mark += every) found.push(mark);
  return found;
};

// A name as it fits: its middle goes first, since ranks and streams differ at both ends.
const fitted = (pen, name, room) => {
  let kept = name.length, said = name;
  while (kept > 2 && pen.measureText(said).width > room) { kept -= 1; said = `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(name.length - Math.floor(kept / 2))}`; }
  return said;
};

const viewOf = (place) => {
  const [base, marks, over] = [0, 1, 2].map(() => document.createElement("canvas"));
  over.tabIndex = 0;
  over.setAttribute("role", "img");
  place.append(base, marks, over);
  const view = { place, base, over, plan: null, look: null, faint: null, painted: null, marked: null };
  const strip = () => Math.min(STRIP, MOST / view.plan.program.streams.length);
  const streams = () => (view.plan.program.streams.length > 1 ? view.plan.program.streams.length * strip() + GAP + 2 : 0);
  let known = null;  // asking for it is a layout of the page: once for a frame
  view.size = () => (known ??= { width: Math.max(1, Math.floor(place.clientWidth - LEFT - RIGHT)), height: Math.max(1, Math.floor(place.clientHeight - TOP - BOTTOM - streams())) });
  view.measure = () => { known = null; };
  view.all = () => ({ x0: 0, x1: Math.max(view.plan.steps, 1), y0: 0, y1: view.plan.top * 1.02 });
  view.toX = (w, step) => LEFT + (step - w.x0) / (w.x1 - w.x0) * view.size().width;
  view.toY = (w, y) => TOP + (w.y1 - y) / (w.y1 - w.y0) * view.size().height;
  view.stepAt = (w, x) => w.x0 + (x - LEFT) / view.size().width * (w.x1 - w.x0);
  view.byteAt = (w, y) => w.y1 - (y - TOP) / view.size().height * (w.y1 - w.y0);
  view.near = (w) => [(w.x1 - w.x0) / view.size().width, (w.y1 - w.y0) / view.size().height];
  view.stale = () => { view.painted = view.marked = null; };

  const part = (w, x, y, width, height) => {
    if (width <= 0 || height <= 0) return;
    const { width: wide, height: high } = view.size(), perStep = wide / (w.x1 - w.x0), perByte = high / (w.y1 - w.y0), pen = base.getContext("2d");
    const image = pen.createImageData(width, height);
    rasterize(image, { width, height, perStep, perByte, x0: w.x0 + x / perStep, y1: w.y1 - y / perByte }, view.plan, view.look, view.faint);
    pen.putImageData(image, x, y);
  };

  // Paint what is new: all of it, or the strips that a move by whole pixels uncovers.
  view.paint = (w) => {
    const { width, height } = view.size(), before = view.painted;
    if (base.width !== width || base.height !== height) { base.width = width; base.height = height; view.stale(); }
    const same = view.painted && Math.abs((w.x1 - w.x0) / (before.x1 - before.x0) - 1) < 1e-9 && Math.abs((w.y1 - w.y0) / (before.y1 - before.y0) - 1) < 1e-9;
    const dx = same ? Math.round((before.x0 - w.x0) / (w.x1 - w.x0) * width) : width, dy = same ? Math.round((w.y1 - before.y1) / (w.y1 - w.y0) * height) : height;
    if (Math.abs(dx) < width && Math.abs(dy) < height) {
      const pen = base.getContext("2d");
      if (dx || dy) {
        pen.globalCompositeOperation = "copy";
        pen.drawImage(base, dx, dy);
        pen.globalCompositeOperation = "source-over";
        part(w, dx > 0 ? 0 : width + dx, 0, Math.abs(dx), height);
        part(w, 0, dy > 0 ? 0 : height + dy, width, Math.abs(dy));
      }
    } else {
      part(w, 0, 0, width, height);
    }
    view.painted = { ...w };
  };

  const rectangle = (w, x0, x1, y0, y1, least) => {
    let [left, right, top, bottom] = [view.toX(w, x0), view.toX(w, x1), view.toY(w, y1), view.toY(w, y0)];
    if (right - left < least) { const middle = (left + right) / 2; left = middle - least / 2; right = middle + least / 2; }
    if (bottom - top < least) { const middle = (top + bottom) / 2; top = middle - least / 2; bottom = middle + least / 2; }
    return [left, top, right - left, bottom - top];
  };
  view.boxOf = (w, k, least = 1) => rectangle(w, view.plan.start[k], view.plan.until[k], view.plan.bottom[k], view.plan.bottom[k] + view.plan.size[k], least);

  const axes = (pen, w, width, height) => {
    pen.fillStyle = FAINT;
    pen.textAlign = "center";
    const below = TOP + height + streams();
    const clear = (x) => x > LEFT - 1 && x < LEFT + width + 1;
    for (const step of ticksOf(Math.max(w.x0, 0), w.x1, width / 90, false)) if (clear(view.toX(w, step))) pen.fillText(count(step), Math.min(view.toX(w, step), LEFT + width - 14), below + 14);
    pen.fillText("step", LEFT + width / 2, below + 29);
    pen.textAlign = "right";
    for (const lane of view.plan.lanes) {
      const low = Math.max(w.y0, lane.at + lane.low), high = Math.min(w.y1, lane.at + lane.high), room = (high - low) / (w.y1 - w.y0) * height;
      if (lane.outside || room < 8) continue;
      for (const mark of ticksOf(low - lane.at, high - lane.at, room / 44, true)) pen.fillText(bytes(mark), LEFT - 6, view.toY(w, mark + lane.at) + 4);
    }
  };

  // The most bytes alive in each column of pixels.
  const curve = (pen, w, width) => {
    const { edges, height, most } = view.plan, tall = TOP - 22, least = new Float64Array(width + 1).fill(-1), wide = width / (w.x1 - w.x0);
    for (let k = spanAt(edges, w.x0); k < height.length && edges[k] <= w.x1; k += 1) {
      const a = Math.max(0, Math.floor((edges[k] - w.x0) * wide)), b = Math.min(width, Math.ceil((edges[k + 1] - w.x0) * wide));
      for (let x = a; x <= b; x += 1) if (height[k] > least[x]) least[x] = height[k];
    }
    pen.fillStyle = "#cfd8e3";
    for (let x = 0; x < width; x += 1) if (least[x] > 0) pen.fillRect(LEFT + x, TOP - 6 - least[x] / most * tall, 1, least[x] / most * tall);
    pen.fillStyle = FAINT;
    pen.textAlign = "right";
    pen.fillText(bytes(most), LEFT - 6, TOP - 6 - tall + 8);
    pen.fillText("alive", LEFT - 6, TOP - 8);
  };

  const lanes = (pen, w, width) => {
    for (const lane of view.plan.lanes) {
      pen.strokeStyle = INK;
      pen.lineWidth = 1;
      const line = (y, dash) => { pen.setLineDash(dash); pen.beginPath(); pen.moveTo(LEFT, view.toY(w, y)); pen.lineTo(LEFT + width, view.toY(w, y)); pen.stroke(); pen.setLineDash([]); };
      line(lane.at + lane.high, []);
      if (lane.bound) line(lane.at + lane.bound, [6, 4]);
      if (view.plan.lanes.length > 1) {
        const y = Math.max(TOP + 12, view.toY(w, lane.at + lane.high) + 12);
        if (y > view.toY(w, lane.at + lane.low)) continue;
        const wide = pen.measureText(lane.name.slice(0, 40)).width;
        pen.fillStyle = "rgba(255, 255, 255, .85)";
        pen.fillRect(LEFT + 2, y - 11, wide + 6, 14);
        pen.fillStyle = INK;
        pen.textAlign = "left";
        pen.fillText(lane.name.slice(0, 40), LEFT + 5, y);
      }
    }
  };

  const strips = (pen, w, width, height) => {
    const { opStream, streams: names } = view.plan.program;
    if (names.length < 2) return;
    const from = Math.max(0, Math.floor(w.x0)), to = Math.min(opStream.length, Math.ceil(w.x1)), wide = Math.max(1, width / (w.x1 - w.x0) - 0.5);
    const last = new Float64Array(names.length).fill(-9), tall = strip(), every = Math.ceil(10 / tall);
    for (let op = from; op < to; op += 1) {
      const x = view.toX(w, op), row = opStream[op];
      if (x < last[row] + 1) continue;
      last[row] = x;
      pen.fillStyle = PALETTE[row % PALETTE.length];
      pen.fillRect(Math.max(x, LEFT), TOP + height + GAP + row * tall, wide, Math.max(tall - 2, tall / 2));
    }
    pen.fillStyle = FAINT;
    pen.textAlign = "right";
    pen.font = "10px system-ui, sans-serif";
    names.forEach((name, row) => row % every || pen.fillText(fitted(pen, name, LEFT - 8), LEFT - 6, TOP + height + GAP + Math.min(9, 5 + tall / 2) + row * tall));
    pen.font = "12px system-ui, sans-serif";
  };

  const labels = (pen, w, height) => {
    const [rows, lines] = view.near(w);
    within(view.plan, [w.x0, w.x1, w.y0, w.y1], (k) => {
      if ((view.plan.until[k] - view.plan.start[k]) / rows < 56 || view.plan.size[k] / lines < 14) return;
      const [x, y, wide, high] = view.boxOf(w, k);
      if (y > TOP + height || y + high < TOP) return;
      const from = Math.max(x, LEFT) + 4, room = Math.floor((Math.min(x + wide, LEFT + view.size().width) - from) / 7), name = view.plan.program.names.at(k).slice(0, 200);
      if (room < 4) return;
      const dark = !(view.faint && view.faint[k]) && channels(view.look.colours[view.look.of[k]]).reduce((sum, v, c) => sum + v * [0.3, 0.59, 0.11][c], 0) < 135;
      pen.fillStyle = dark ? "#fff" : INK;
      pen.textAlign = "left";
      pen.fillText(name.length > room ? `${name.slice(0, room - 1)}\u2026` : name, from, Math.min(Math.max(y, TOP) + 13, y + high / 2 + 4 < TOP ? TOP : y + high - 3));
    });
  };

  const number = (pen, word, x, y) => {
    pen.textAlign = "left";
    pen.font = "bold 14px system-ui, sans-serif";
    pen.strokeStyle = "#fff";
    pen.lineWidth = 4;
    pen.strokeText(word, x, y);
    pen.fillStyle = RED;
    pen.fillText(word, x, y);
    pen.font = "12px system-ui, sans-serif";
  };

  // Where conflicts lie, the chosen one above the others. Thousands at one place are one mark, until one comes closer.
  const conflicts = (pen, w, chosen) => {
    const { x0, x1, y0, y1, of } = view.plan.marks, seen = new Set(), right = LEFT + view.size().width, low = TOP + view.size().height;
    const mark = (k) => {
      if (x1[k] < w.x0 || x0[k] > w.x1 || y1[k] < w.y0 || y0[k] > w.y1) return null;
      const [x, y, wide, high] = rectangle(w, x0[k], x1[k], y0[k], y1[k], LEAST), left = Math.max(x, 0), top = Math.max(y, 0);
      return [left, top, Math.min(x + wide, right + LEAST) - left, Math.min(y + high, low + LEAST) - top];
    };
    pen.strokeStyle = RED;
    pen.fillStyle = "rgba(200, 16, 46, .18)";
    pen.lineWidth = 1;
    for (let k = 0; k < of.length; k += 1) {
      const box = of[k] === chosen ? null : mark(k), cell = box && box.reduce((sum, v) => sum * CELLS + Math.round(v / LEAST), 0);
      if (!box || seen.has(cell)) continue;
      seen.add(cell);
      pen.fillRect(...box);
      pen.strokeRect(...box);
    }
    for (let k = of.indexOf(chosen); k >= 0 && of[k] === chosen; k += 1) {
      const box = mark(k), { cause } = view.plan.conflicts[chosen];
      if (!box) continue;
      pen.strokeStyle = RED;
      pen.fillStyle = "rgba(200, 16, 46, .3)";
      pen.lineWidth = 2;
      pen.fillRect(...box);
      pen.strokeRect(...box);
      if (cause) number(pen, cause, Math.min(box[0] + box[2] + 4, right - 30), Math.max(box[1], TOP) + 13);
    }
  };

  // An empty canvas of the size of the map, and its pen.
  const cleared = (canvas) => {
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    const wide = Math.round(place.clientWidth * ratio), tall = Math.round(place.clientHeight * ratio);
    if (canvas.width !== wide || canvas.height !== tall) { canvas.width = wide; canvas.height = tall; }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, place.clientWidth, place.clientHeight);
    pen.font = "12px system-ui, sans-serif";
    return pen;
  };
  const clipped = (pen, width, height) => { pen.save(); pen.beginPath(); pen.rect(LEFT, TOP, width, height); pen.clip(); };

  // Axes, curve, conflicts and names: drawn anew only where the view or the chosen conflict is another.
  view.mark = (w, state) => {
    if (view.marked && view.marked.window === w && view.marked.conflict === state.conflict) return;
    const pen = cleared(marks), { width, height } = view.size();
    axes(pen, w, width, height);
    curve(pen, w, width);
    strips(pen, w, width, height);
    clipped(pen, width, height);
    lanes(pen, w, width);
    conflicts(pen, w, view.plan.conflicts.indexOf(state.conflict));
    labels(pen, w, height);
    pen.restore();
    view.marked = { window: w, conflict: state.conflict };
  };

  // The frames of the chosen buffers and the cursor.
  view.point = (w, state) => {
    const pen = cleared(over), { width, height } = view.size();
    clipped(pen, width, height);
    for (const [k, colour, dash] of state.framed(view)) {
      if (k < 0 || view.plan.stop[k] <= view.plan.start[k]) continue;
      pen.strokeStyle = colour;
      pen.lineWidth = 2;
      pen.setLineDash(dash);
      pen.strokeRect(...view.boxOf(w, k, LEAST));
      pen.setLineDash([]);
    }
    pen.restore();
    const x = view.toX(w, state.at + 0.5);
    if (x >= LEFT && x <= LEFT + width) { pen.fillStyle = INK; pen.fillRect(x - 0.5, 16, 1, TOP + height - 16); pen.textAlign = x > LEFT + width - 90 ? "right" : "left"; pen.fillText(`${count(state.at)}: ${bytes(heightAt(view.plan, state.at))}`, x + (x > LEFT + width - 90 ? -4 : 4), 13); }
  };
  return view;
};
