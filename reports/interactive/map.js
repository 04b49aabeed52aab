// The memory map: steps across, addresses up. Wheel or + and - zoom, dragging moves, a click keeps a buffer, typing finds names.
"use strict";
(() => {
  const maps = JSON.parse(document.getElementById("maps").textContent);
  const at = (name) => document.getElementById(name);
  if (!maps.length) return;
  const canvas = at("canvas"), tip = at("tip"), said = at("said"), find = at("find"), choose = at("choose");
  const LEFT = 72, BOTTOM = 34, TOP = 10, RIGHT = 10;
  let map, view, kept = -1, over = -1, sought = "";

  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(n) >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
    return `${unit ? +n.toPrecision(4) : n} ${units[unit]}`;
  };
  const count = (n) => Math.round(n).toLocaleString("en");
  const all = () => ({ x0: 0, x1: Math.max(map.steps, 1), y0: map.low.reduce((a, b) => Math.min(a, b), 0), y1: map.top * 1.04 || 1 });
  const size = () => ({ width: canvas.clientWidth - LEFT - RIGHT, height: canvas.clientHeight - BOTTOM - TOP });
  const toX = (step) => LEFT + (step - view.x0) / (view.x1 - view.x0) * size().width;
  const toY = (byte) => TOP + (view.y1 - byte) / (view.y1 - view.y0) * size().height;
  const toStep = (x) => view.x0 + (x - LEFT) / size().width * (view.x1 - view.x0);
  const toByte = (y) => view.y1 - (y - TOP) / size().height * (view.y1 - view.y0);
  const dark = (hex) => [1, 3, 5].reduce((sum, place, k) => sum + parseInt(hex.slice(place, place + 2), 16) * [0.3, 0.59, 0.11][k], 0) < 128;
  const matches = (k) => sought && map.name[k].toLowerCase().includes(sought);

  // the smallest of 1, 2, 5 times a power (of 10, or of 2 for bytes) that leaves about `most` marks
  const marks = (low, high, most, binary) => {
    const raw = Math.max((high - low) / most, 1);
    const power = binary ? 2 ** Math.ceil(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
    const every = binary ? power : power * [1, 2, 5, 10].find((m) => m * power >= raw);
    const found = [];
    for (let mark = Math.ceil(low / every) * every; mark <= high; mark += every) found.push(mark);
    return found;
  };

  const box = (pen, x0, x1, y0, y1) => {
    const left = toX(x0), top = toY(y1);
    return [left, top, Math.max(toX(x1) - left, 1), Math.max(toY(y0) - top, 1)];
  };

  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d"), { width, height } = size();
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = "#5f6368";
    pen.strokeStyle = "#e8eaed";
    pen.textAlign = "center";
    for (const step of marks(view.x0, view.x1, width / 90, false)) {
      pen.strokeRect(toX(step), TOP, 0, height);
      pen.fillText(count(step), toX(step), TOP + height + 16);
    }
    pen.fillText("step", LEFT + width / 2, TOP + height + 30);
    pen.textAlign = "right";
    for (const byte of marks(view.y0, view.y1, height / 50, true)) {
      pen.strokeRect(LEFT, toY(byte), width, 0);
      pen.fillText(bytes(byte), LEFT - 6, toY(byte) + 4);
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, width, height);
    pen.clip();
    const faded = sought || map.conflicts.length;
    for (let k = 0; k < map.name.length; k += 1) {
      if (map.stop[k] < view.x0 || map.start[k] > view.x1 || map.high[k] < view.y0 || map.low[k] > view.y1) continue;
      const [x, y, w, h] = box(pen, map.start[k], map.stop[k], map.low[k], map.high[k]);
      pen.globalAlpha = faded && !matches(k) && k !== kept ? 0.35 : 1;
      pen.fillStyle = map.colour[k];
      pen.fillRect(x, y, w, h);
      pen.globalAlpha = 1;
      if (w > 4 && h > 4) { pen.strokeStyle = "#fff"; pen.lineWidth = 1; pen.strokeRect(x, y, w, h); }
      if (w > 60 && h > 14) {
        pen.fillStyle = dark(map.colour[k]) && !(faded && !matches(k) && k !== kept) ? "#fff" : "#1a1a1a";
        pen.textAlign = "left";
        const from = Math.max(x, LEFT) + 4, room = Math.floor((x + w - from) / 7);
        if (room > 4) pen.fillText(map.name[k].length > room ? map.name[k].slice(0, room - 1) + "…" : map.name[k], from, Math.min(y + h, TOP + height) - Math.min(h, 22) / 2 + 4);
      }
    }
    for (const conflict of map.conflicts) {
      const [first, last] = conflict.boxes[0];
      pen.fillStyle = "rgba(196, 18, 47, .6)";  // seen from afar, where its box is a pixel
      pen.fillRect(toX((first + last) / 2) - 0.5, TOP, 1, height);
      for (const [x0, x1, y0, y1] of conflict.boxes) {
        const [x, y, w, h] = box(pen, x0, x1, y0, y1);
        pen.fillStyle = "rgba(196, 18, 47, .45)";
        pen.fillRect(x, y, w, h);
        pen.strokeStyle = "#c4122f";
        pen.lineWidth = 1.5;
        pen.strokeRect(x - 1, y - 1, w + 2, h + 2);
      }
    }
    for (const [k, colour] of [[over, "#5f6368"], [kept, "#000"]]) {
      if (k < 0) continue;
      pen.strokeStyle = colour;
      pen.lineWidth = 2;
      pen.strokeRect(...box(pen, map.start[k], map.stop[k], map.low[k], map.high[k]));
    }
    pen.strokeStyle = "#1a1a1a";
    pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(LEFT, toY(map.top)); pen.lineTo(LEFT + width, toY(map.top)); pen.stroke();
    pen.setLineDash([6, 4]);
    pen.beginPath(); pen.moveTo(LEFT, toY(map.bound)); pen.lineTo(LEFT + width, toY(map.bound)); pen.stroke();
    pen.restore();
  };

  const under = (event) => {
    const frame = canvas.getBoundingClientRect();
    const step = toStep(event.clientX - frame.left), byte = toByte(event.clientY - frame.top);
    const near = (view.x1 - view.x0) / size().width, far = (view.y1 - view.y0) / size().height;
    for (let k = map.name.length - 1; k >= 0; k -= 1) {  // a later one lies over an earlier
      const wide = Math.max(map.stop[k], map.start[k] + near), high = Math.max(map.high[k], map.low[k] + far);
      if (step >= map.start[k] && step < wide && byte >= map.low[k] && byte < high) return k;
    }
    return -1;
  };

  const about = (k) => [
    map.name[k] || "(no name)",
    `${bytes(map.high[k] - map.low[k])} at [${count(map.low[k])}, ${count(map.high[k])}), steps [${count(map.start[k])}, ${count(map.stop[k])})`,
    map.maker[k] && `made by op ${map.maker[k]}`,
    map.reader[k] && `last read by op ${map.reader[k]}`,
  ].filter(Boolean);

  const lines = (target, words) => {
    target.replaceChildren(...words.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  };

  const keep = (k) => {
    kept = k;
    if (k < 0) { lines(said, []); draw(); return; }
    const same = [];
    for (let other = 0; other < map.name.length; other += 1) {
      if (other !== k && map.low[other] < map.high[k] && map.high[other] > map.low[k]) same.push(other);
    }
    const before = same.filter((o) => map.stop[o] <= map.start[k]).sort((a, b) => map.stop[b] - map.stop[a])[0];
    const after = same.filter((o) => map.start[o] >= map.stop[k]).sort((a, b) => map.start[a] - map.start[b])[0];
    const meets = same.filter((o) => map.start[o] < map.stop[k] && map.stop[o] > map.start[k]);
    lines(said, [
      ...about(k),
      `its bytes: ${count(same.length)} other buffers over time` +
        (before === undefined ? "" : `; before it ${map.name[before]} until step ${count(map.stop[before])}`) +
        (after === undefined ? "" : `; after it ${map.name[after]} from step ${count(map.start[after])}`),
      ...(meets.length ? [`at the same time: ${meets.slice(0, 5).map((o) => map.name[o]).join(", ")}${meets.length > 5 ? `, and ${meets.length - 5} more` : ""}`] : []),
    ]);
    draw();
  };

  const zoom = (factor, x, y) => {
    const step = toStep(x), byte = toByte(y), whole = all();
    const wide = Math.min((view.x1 - view.x0) * factor, (whole.x1 - whole.x0) * 2);
    const high = Math.min((view.y1 - view.y0) * factor, (whole.y1 - whole.y0) * 2);
    const px = (step - view.x0) / (view.x1 - view.x0), py = (byte - view.y0) / (view.y1 - view.y0);
    if (wide < 1e-3 || high < 1e-3) return;
    view = { x0: step - px * wide, x1: step + (1 - px) * wide, y0: byte - py * high, y1: byte + (1 - py) * high };
    draw();
  };
  const middle = (factor) => zoom(factor, LEFT + size().width / 2, TOP + size().height / 2);
  const show = (x0, x1, y0, y1) => {
    const wide = Math.max((x1 - x0) * 3, map.steps / 50, 4), high = Math.max((y1 - y0) * 3, map.top / 50, 16);
    view = { x0: (x0 + x1 - wide) / 2, x1: (x0 + x1 + wide) / 2, y0: (y0 + y1 - high) / 2, y1: (y0 + y1 + high) / 2 };
    draw();
  };

  let from = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    zoom(Math.exp(event.deltaY / 400), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    from = { x: event.clientX, y: event.clientY, view: { ...view }, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from) {
      const dx = event.clientX - from.x, dy = event.clientY - from.y;
      from.moved = from.moved || Math.hypot(dx, dy) > 4;
      if (!from.moved) return;
      const sx = dx / size().width * (view.x1 - view.x0), sy = dy / size().height * (view.y1 - view.y0);
      view = { x0: from.view.x0 - sx, x1: from.view.x1 - sx, y0: from.view.y0 + sy, y1: from.view.y1 + sy };
      tip.hidden = true;
      draw();
      return;
    }
    const k = under(event), frame = canvas.getBoundingClientRect();
    tip.hidden = k < 0;
    if (k >= 0) {
      lines(tip, about(k));
      const x = event.clientX - frame.left, y = event.clientY - frame.top;
      tip.style.left = `${Math.max(0, Math.min(x + 14, frame.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${y + 18 + tip.offsetHeight > frame.height ? Math.max(0, y - tip.offsetHeight - 10) : y + 18}px`;
    }
    if (k !== over) { over = k; draw(); }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (from && !from.moved) keep(under(event));
    from = null;
  });
  canvas.addEventListener("pointercancel", () => { from = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; over = -1; draw(); });
  at("in").addEventListener("click", () => middle(0.6));
  at("out").addEventListener("click", () => middle(1 / 0.6));
  at("reset").addEventListener("click", () => { view = all(); draw(); });
  find.addEventListener("input", () => {
    sought = find.value.trim().toLowerCase();
    const hits = map.name.filter((_, k) => matches(k)).length;
    at("hits").textContent = sought ? `${count(hits)} found` : "";
    draw();
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hits = map.name.map((_, k) => k).filter(matches);
    if (!hits.length) return;
    const next = hits[(hits.indexOf(kept) + 1) % hits.length];
    show(map.start[next], map.stop[next], map.low[next], map.high[next]);
    keep(next);
  });

  const open = (number) => {
    map = maps[number];
    view = all();
    over = kept = -1;
    lines(said, []);
    at("note").textContent = `${count(map.name.length)} buffers` + (map.left_out ? `, ${count(map.left_out)} smaller ones left out` : "") +
      `; the line is the end of the plan (${bytes(map.top)}), the dashed one the most bytes alive at once (${bytes(map.bound)})`;
    at("conflicts").replaceChildren(...map.conflicts.slice(0, 50).map((conflict) => {
      const item = Object.assign(document.createElement("li"), { textContent: conflict.words });
      if (conflict.number) item.value = conflict.number;  // of its cause, as every report numbers it
      item.addEventListener("click", () => show(...conflict.boxes[0]));
      return item;
    }));
    find.dispatchEvent(new Event("input"));
  };
  maps.forEach((one, number) => choose.append(new Option(one.title, number)));
  choose.hidden = maps.length < 2;
  choose.addEventListener("change", () => open(Number(choose.value)));
  window.addEventListener("resize", draw);
  open(0);
})();
