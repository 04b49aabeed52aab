// What a reader does on a page of the explorer, timed: the body of a function of how many moves of each kind (`drawings.py`).
const moves = arguments[0], c = document.querySelector('#map canvas:last-child'), box = c.getBoundingClientRect(), found = {};
const send = (kind, x, y) => c.dispatchEvent(
  new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true }));
const wheel = (by) => c.dispatchEvent(
  new WheelEvent('wheel', { deltaY: by, clientX: box.left + 400, clientY: box.top + 250, bubbles: true, cancelable: true }));
const key = (name) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
const next = window.requestAnimationFrame.bind(window), middle = (a) => a.sort((x, y) => x - y)[a.length >> 1];
const frame = () => new Promise((done) => next(() => {
  const after = new MessageChannel(); after.port1.onmessage = () => done(); after.port2.postMessage(0); }));
c.setPointerCapture = () => {};
const acts = {
  hover: (k) => send('pointermove', 100 + 600 / moves * k, 100 + 400 / moves * k),
  pan: (k) => { if (!k) send('pointerdown', 300, 300); send('pointermove', 300 + 3 * k, 300 + 2 * k); },
  zoom: (k) => { if (!k) send('pointerup', 300, 300); wheel(k < moves / 2 ? -100 : 100); },
  step: () => key('ArrowRight'), cause: () => key('n'),
};
return (async () => { for (const [name, act] of Object.entries(acts)) {
  const whole = [], work = [];
  for (let k = 0; k < moves; k += 1) {
    let spent = 0;
    window.requestAnimationFrame = (draw) => next((now) => { const t = performance.now(); draw(now); spent += performance.now() - t; });
    const t = performance.now(); act(k); spent += performance.now() - t;
    await frame(); whole.push(performance.now() - t); work.push(spent);
  }
  found[`${name}_ms`] = middle(whole); found[`${name}_work_ms`] = middle(work);
} return found; })();
