// What is known of the selected call: both sides' values, how they differ, pictures, lines of code.

const ROLES = [["input", "Inputs"], ["parameters", "Parameters"], ["output", "Outputs"], ["", "Values"]];
const SHOWN_APART = new Set(["NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad",
  "Bench Requires_grad", "NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm", "NPU MD5", "BENCH MD5",
  "Requires_grad Consistent", "Result", "Err_message", "Data_name"]);
const FOUR = [["Max", "max"], ["Min", "min"], ["Mean", "mean"], ["Norm", "l2norm"]];
const MAX_VALUES = 300;

const valuesOf = async (model, call) => {
  const block = Math.floor(call / model.tree.block);
  const data = await unpack(`values-${model.pair.number}-${block}`);
  const offset = model.firstRow[block * model.tree.block];
  const rows = [];
  for (let r = model.firstRow[call]; r < model.firstRow[call + 1]; r++) {
    const cells = {};
    model.tree.header.forEach((name, column) => { cells[name] = data.cells[column][r - offset]; });
    rows.push({ row: r, key: model.key(r), rank: model.rowRank[r], cells, picture: data.pictures[r - offset] });
  }
  return rows;
};

const roleOf = (key) => (/^(input|output|parameters)(\.|$)/.exec(key) || ["", ""])[1];

const sideRow = (word, own, other, cells, mode, scalar, grads) => {
  const name = cells[`${own} Name`];
  if (name === null) return make("tr", { class: "side" }, make("th", { scope: "row" }, word), make("td", { colspan: 7, class: "faint" }, "has no such value"));
  const alone = cells[`${other} Name`] === null;
  const cell = (column, kind) => {
    const mine = cells[`${own} ${column}`], theirs = alone ? mine : cells[`${other} ${column}`];
    const bare = (text) => (kind === "type" && typeof text === "string" ? text.replace(/^torch\.|^<class '(.*)'>$/, "$1") : text);
    return make("td", { class: kind }, parted(bare(mine), bare(theirs)));
  };
  const tail = mode === "md5"
    ? [make("td", { class: "number", colspan: 4 }, parted(cells[own === "NPU" ? "NPU MD5" : "BENCH MD5"], alone ? cells[own === "NPU" ? "NPU MD5" : "BENCH MD5"] : cells[own === "NPU" ? "BENCH MD5" : "NPU MD5"]))]
    : scalar
      ? [make("td", { class: "number scalar", colspan: 4 }, make("div", {}, parted(cells[`${own} max`], alone ? cells[`${own} max`] : cells[`${other} max`])))]
      : FOUR.map(([, column]) => cell(column, "number"));
  const grad = cells[`${own} Requires_grad`];
  return make("tr", { class: "side" }, make("th", { scope: "row" }, word), cell("Dtype", "type"), cell("Tensor Shape", "shape"), ...tail,
    grads ? make("td", { class: "grad" }, grad === "N/A" ? "–" : parted(grad, alone ? grad : cells[`${other} Requires_grad`])) : null);
};

const isScalar = (cells) => /^<class/.test(cells["NPU Dtype"] || "") || /^<class/.test(cells["Bench Dtype"] || "");

const valueBlock = (model, value, grads) => {
  const { cells, rank } = value;
  const result = RESULTS[rank];
  const metrics = Object.entries(cells).filter(([name, cell]) => !SHOWN_APART.has(name) && cell !== null && cell !== "N/A");
  const even = metrics.length && metrics.every(([, cell]) => cell === "0" || cell === 0 || cell === "0.0");
  const names = [cells["NPU Name"], cells["Bench Name"]];
  const body = make("tbody", { id: `value-${value.row}`, class: `value ${result.letter}`, "data-row": value.row },
    make("tr", { class: "head" }, make("th", { colspan: 8, scope: "rowgroup" }, badge(rank, true), make("span", { class: "key", title: cells.Data_name ? `tensor files of target and golden: ${cells.Data_name}` : undefined }, value.key || "value"),
      names[0] !== null && names[1] !== null && names[0] !== names[1] ? make("span", { class: "aside" }, `golden: ${names[1]}`) : null)),
    sideRow("target", "NPU", "Bench", cells, model.pair.mode, isScalar(cells), grads),
    sideRow("golden", "Bench", "NPU", cells, model.pair.mode, isScalar(cells), grads));
  if (metrics.length && !even && names[0] !== null && names[1] !== null) {
    body.append(make("tr", { class: "metrics" }, make("th", { scope: "row" }, "error"), make("td", { colspan: 7 },
      metrics.map(([name, cell]) => make("span", { class: "metric", title: `${name}: ${shown(cell)}` }, make("em", {}, name), ` ${brief(cell)}`)))));
  }
  const messages = cells.Err_message || [];
  if (messages.length) body.append(make("tr", { class: "messages" }, make("th", {}), make("td", { colspan: 7 }, messages.map((text) => make("p", {}, text)))));
  if (value.picture !== undefined) {
    const holder = make("td", { colspan: 8 });
    const box = make("details", { class: "distribution" }, make("summary", {}, "distribution of the errors"));
    box.addEventListener("toggle", async () => {
      if (!box.open || box.dataset.drawn) return;
      box.dataset.drawn = "1";
      box.append(drawPicture(await unpack(`picture-${model.pair.number}-${value.picture}`)));
    });
    holder.append(box);
    body.append(make("tr", { class: "drawn" }, holder));
  }
  return body;
};

const valueTable = (model, values) => {
  const head = model.pair.mode === "md5" ? [make("th", { colspan: 4 }, "checksum")] : FOUR.map(([word]) => make("th", { class: "number" }, word));
  // requires_grad takes a column where it is true of something, or differs.
  const grads = values.some(({ cells }) => cells["NPU Requires_grad"] === "True" || cells["Bench Requires_grad"] === "True");
  return make("div", { class: "scroll" }, make("table", { class: "values" },
    make("thead", {}, make("tr", {}, make("th", {}), make("th", {}, "dtype"), make("th", {}, "shape"), ...head, grads ? make("th", { title: "requires_grad" }, "grad") : null)),
    values.map((value) => valueBlock(model, value, grads))));
};

const breadcrumb = (model, call, onSelect) => {
  const path = [];
  for (let p = model.tree.parents[call]; p >= 0; p = model.tree.parents[p]) path.unshift(p);
  if (!path.length) return null;
  return make("nav", { class: "path", "aria-label": "modules around it" }, path.map((p, at) => {
    const label = labelOf(model.tree.names[p], at ? model.tree.names[path[at - 1]] : "");
    return [at ? make("span", { class: "sep" }, "›") : null, make("button", { class: "link", title: model.tree.names[p], onclick: () => onSelect(p) }, label.label)];
  }));
};

const heading = (model, call) => {
  const name = model.tree.names[call];
  const parts = partsOf(name);
  const side = model.tree.sides[call];
  const golden = model.tree.golden[call];
  return make("div", { class: "heading" },
    make("h2", {}, badge(model.own[call] === NOTHING ? model.worst[call] : model.own[call], true), " ", make("span", { class: "name" }, parts.path)),
    make("p", { class: "aside" },
      make("code", { class: "full" }, name),
      make("button", { class: "link copy", title: "copy the name", onclick: () => copyText(name) }, "copy")),
    golden !== undefined ? make("p", { class: "aside" }, "in the golden dump: ", make("code", { class: "full" }, golden)) : null,
    side === "t" || side === "g" ? make("p", { class: "note" }, `Only the ${side === "t" ? "target" : "golden dump"} has this call.`) : null);
};

const copyText = (text) => {
  if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text); return; }
  const field = make("textarea", { class: "unseen" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
};

// Fills the pane; resolves when all of it is there.
const showCall = async (pane, model, node, onSelect) => {
  const call = model.call(node);
  const token = pane.token = {};
  const [values, code] = await Promise.all([
    model.firstRow[call + 1] > model.firstRow[call] ? valuesOf(model, call) : [], unpack(`code-${model.pair.number}`)]);
  if (pane.token !== token) return;
  const children = [breadcrumb(model, call, onSelect), heading(model, call)];
  if (call === model.pair.first) {
    children.push(make("div", { class: "callout" }, make("b", {}, "The first difference. "), ticked(model.pair.sentence)));
  }
  if (!model.showsRows && values.length) {
    const messages = values[0].cells.Err_message;
    children.push(messages.length ? make("ul", { class: `told ${RESULTS[values[0].rank].letter}` }, messages.map((text) => make("li", {}, text)))
      : make("p", { class: "faint" }, "The same call in the same place; no values were recorded."));
  }
  const groups = !model.showsRows ? [] : ROLES.map(([role, title]) => [title, values.filter((value) => roleOf(value.key) === role)]).filter(([, group]) => group.length);
  for (const [title, group] of groups) {
    children.push(make("h3", {}, title, make("span", { class: "aside" }, ` ${group.length}`)), valueTable(model, group.slice(0, MAX_VALUES)));
    if (group.length > MAX_VALUES) children.push(make("p", { class: "faint" }, `${count(group.length - MAX_VALUES)} more are in the CSV.`));
  }
  if (!values.length) children.push(make("p", { class: "faint" }, call < model.tree.recorded ? "Nothing was recorded of this call." : "It gathers the calls inside it; nothing was recorded of itself."));
  const at = make("section", {}, make("h3", {}, "Code"), codeOf(code, call));
  const worst = values.length && Math.min(...values.map((value) => value.rank)) < RANK.p;
  children.splice(worst || !values.length ? 3 : children.length, 0, at);
  if (children.indexOf(at) < 0) children.push(at);
  pane.replaceChildren(...children.filter(Boolean));
  pane.scrollTop = 0;
  const drawn = values.filter((value) => value.picture !== undefined).sort((a, b) => a.picture - b.picture)[0];
  if (drawn) byId(`value-${drawn.row}`).querySelector("details").open = true;
  if (node >= model.calls) {
    const block = byId(`value-${node - model.calls}`);
    if (block) {
      block.classList.add("chosen");
      block.scrollIntoView({ block: "center" });
    }
  }
};
