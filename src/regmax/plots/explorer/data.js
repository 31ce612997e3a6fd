// The data of the page, and small functions that build its elements.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);

// Text and attributes are set through the DOM, never parsed: any token is shown as it is.
function node(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The rows of a view's scores, decoded when they are first needed. Large matrices are base64 of binary numbers,
// small ones lists, with null for a deleted score.
function scoresOf(view) {
  view.rows ??= Array.isArray(view.scores)
    ? view.scores.map((row) => Float64Array.from(row, (score) => score ?? -Infinity))
    : unpacked(view.scores, view.target.length);
  return view.rows;
}

function unpacked({ type, base64 }, count) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const numbers = type === "float32" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  const d = numbers.length / count;
  return Array.from({ length: count }, (_, i) => numbers.subarray(i * d, (i + 1) * d));
}

// Run the steps of a generator for a few milliseconds at a time, so that the page answers in between. A new task
// replaces the one of the same name.
const SLICE = 5; // milliseconds
const tasks = new Map();
function inSlices(name, steps, done = () => {}, delay = 0) {
  stopTask(name);
  const slice = () => {
    const end = performance.now() + SLICE;
    do {
      if (!steps.next().done) continue;
      tasks.delete(name);
      done();
      return;
    } while (performance.now() < end);
    tasks.set(name, setTimeout(slice));
  };
  tasks.set(name, setTimeout(slice, delay));
}

// The same without a pause.
function atOnce(name, steps, done = () => {}) {
  stopTask(name);
  while (!steps.next().done);
  done();
}

function stopTask(name) {
  clearTimeout(tasks.get(name));
  tasks.delete(name);
}
