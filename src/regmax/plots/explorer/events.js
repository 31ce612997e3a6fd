// The reactions to the pointer, the keys, the window and the printer.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
}

const otherExample = (by) =>
  update({ example: clamp(state.example + by, [0, examples.length - 1]), row: 0, column: null });

function listen() {
  // Following it as a link would replace the state in the address.
  $("skip").onclick = (event) => (event.preventDefault(), $("stage").focus());
  $("theme").onclick = () => (
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    update({})
  );
  $("name").onclick = () => $("name").classList.toggle("whole");
  $("to-results").onclick = () => $("results").scrollIntoView();
  $("search").oninput = (event) => update({ search: event.target.value });
  $("compare").onchange = (event) => update({ compare: event.target.checked });
  $("scaling").onchange = (event) => update({ scaling: event.target.value });
  for (const show of SHOWS) $(`show-${show}`).onclick = () => update({ show });
  $("fit").onclick = () => update({ zoom: 0 });
  $("smaller").onclick = () => zoom(1 / 1.4);
  $("larger").onclick = () => zoom(1.4);
  $("previous").onclick = () => otherExample(-1);
  $("next").onclick = () => otherExample(1);
  $("up").onclick = () => step(-1, 0);
  $("down").onclick = () => step(1, 0);
  addEventListener("hashchange", () => ((state = parseState(location.hash, data.start)), update({})));
  addEventListener("resize", () => update({}));
  addEventListener("keydown", pressed);
  panels.forEach(listenPanel);
  listenPrinter();
}

function zoom(factor) {
  const now = state.zoom || panels[0].shown.at.cell;
  update({ zoom: clamp(Math.round(factor > 1 ? Math.max(now * factor, now + 1) : now * factor), [2, 64]) });
}

function pressed(event) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey)
    return;
  const actions = { "/": () => $("search").focus(), n: () => otherExample(1), p: () => otherExample(-1) };
  if (!(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
}

function listenPanel(panel, index) {
  const place = (event) => (panel.show === "heads" ? null : panel.shown.place(event));
  panel.figure.onpointermove = (event) => {
    const found = event.pointerType === "touch" ? null : place(event);
    if (found === null) return leave();
    if (hover?.row !== found.row || hover?.column !== found.column) {
      hover = found;
      mark();
    }
    const row = Math.min(hover.row, panel.content.target.length - 1);
    showTip($("tip"), event, panel.content, state.panels[index].mapping, row, hover.column);
  };
  const leave = () => {
    $("tip").hidden = true;
    if (hover !== null) ((hover = null), mark());
  };
  panel.figure.onpointerleave = leave;
  // A finger has no pointer to hover with: a touch chooses the cell and shows its numbers.
  panel.figure.onclick = (event) => {
    const found = place(event);
    if (found === null) return;
    update(found);
    if (event.pointerType === "touch")
      showTip($("tip"), event, panel.content, state.panels[index].mapping, found.row, found.column);
  };
  panel.figure.onkeydown = (event) => {
    const forward = panels[0].content.rtl ? -1 : 1;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -forward], ArrowRight: [0, forward] };
    if (!(event.key in moves) || state.show === "heads") return;
    event.preventDefault();
    step(...moves[event.key]);
  };
}

// On paper nothing scrolls: every map is drawn whole, in the light palette.
function listenPrinter() {
  let theme = "light";
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    setTheme("light");
    printing = true;
    draw();
  });
  addEventListener("afterprint", () => {
    setTheme(theme);
    printing = false;
    draw();
  });
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
listen();
draw();
