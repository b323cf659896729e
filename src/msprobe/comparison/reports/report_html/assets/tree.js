// The tree on the screen: only the nodes in view have elements, so that a hundred thousand cost as little as a hundred.

const LINE = 26;
const MAX_PIXELS = 8e6; // browsers cut off what is taller; beyond that the scroll bar moves several lines a pixel

class TreeView {
  constructor(element, onSelect) {
    this.element = element;
    this.onSelect = onSelect;
    this.canvas = make("div", { class: "canvas", role: "presentation" });
    element.append(this.canvas);
    this.selected = -1;
    element.addEventListener("scroll", () => this._later());
    new ResizeObserver(() => this._later()).observe(element);
    this.canvas.addEventListener("click", (event) => this._click(event));
    this.canvas.addEventListener("dblclick", (event) => {
      const node = this._nodeOf(event);
      if (node !== null && !event.target.closest(".twisty")) this.toggle(node);
    });
    element.addEventListener("keydown", (event) => this._key(event));
  }

  show(model) {
    this.model = model;
    this.selected = -1;
    this.element.scrollTop = 0;
    this.refresh();
  }

  refresh() {
    const height = this.model.nodes.length * LINE;
    this.scale = Math.max(1, height / MAX_PIXELS);
    this.canvas.style.height = `${Math.max(height / this.scale, 1)}px`;
    this.draw();
  }

  _later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; if (this.model) this.draw(); });
  }

  draw() {
    const { nodes, depths } = this.model;
    const top = this.element.scrollTop * this.scale;
    const from = Math.max(0, Math.floor(top / LINE) - 6);
    const to = Math.min(nodes.length, Math.ceil((top + this.element.clientHeight) / LINE) + 6);
    const lines = [];
    for (let at = from; at < to; at++) lines.push(this._line(nodes[at], depths[at], at, this.element.scrollTop + at * LINE - top));
    if (!nodes.length) lines.push(make("p", { class: "empty" }, this.model.active ? "Nothing matches the search and the filter." : "Nothing was recorded here."));
    this.canvas.replaceChildren(...lines);
    const active = this.model.positionOf(this.selected);
    if (active >= from && active < to) this.element.setAttribute("aria-activedescendant", `node-${this.selected}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  _line(node, depth, at, y) {
    const model = this.model;
    const isRow = node >= model.calls;
    const open = !isRow && model.expanded[node] === 1;
    const inside = model.hasInside(node);
    const rank = model.rank(node);
    const letter = RESULTS[rank] ? RESULTS[rank].letter : "none";
    const line = make("div", {
      id: `node-${node}`, class: `line ${letter}${isRow ? " row" : ""}${node === this.selected ? " selected" : ""}${model.active && !isRow && !model.hit[node] ? " around" : ""}`,
      role: "treeitem", "aria-level": depth + 1, "aria-selected": String(node === this.selected),
      "aria-expanded": inside ? String(open) : null, "aria-posinset": at + 1, "aria-setsize": model.nodes.length, "data-node": node,
    });
    line.style.transform = `translateY(${y}px)`;
    line.style.setProperty("--depth", Math.min(depth, 24));
    line.append(make("span", { class: `twisty${inside ? "" : " leaf"}${open ? " open" : ""}`, "aria-hidden": "true" }, inside ? "▸" : ""));
    line.append(badge(rank));
    if (isRow) {
      line.append(make("span", { class: "label" }, model.key(node - model.calls) || "value"));
      return line;
    }
    const name = model.tree.names[node];
    const parent = model.tree.parents[node];
    const label = labelOf(name, parent >= 0 ? model.tree.names[parent] : "");
    const mark = model.pair.marks[node];
    line.title = name;
    line.append(...[
      make("span", { class: `label ${label.kind}` }, label.label),
      label.direction && label.direction !== "forward" ? make("span", { class: "way" }, "←", make("span", { class: "unseen" }, label.direction)) : null,
      label.aside ? make("span", { class: "aside" }, label.aside) : null,
      mark ? make("span", { class: "mark" }, mark) : null,
      this._counts(node),
    ].filter(Boolean));
    return line;
  }

  _counts(node) {
    const model = this.model;
    const counts = make("span", { class: "counts" });
    if (model.start[node + 2] === model.start[node + 1]) return counts;
    for (const rank of [RANK.e, RANK.u, RANK.n, RANK.w]) {
      const number = model.below[rank][node];
      if (number) counts.append(make("span", { class: `of ${RESULTS[rank].letter}`, title: `${number} ${RESULTS[rank].word}` }, `${RESULTS[rank].sign}${count(number)}`));
    }
    return counts;
  }

  _nodeOf(event) {
    const line = event.target.closest(".line");
    return line ? Number(line.dataset.node) : null;
  }

  _click(event) {
    const node = this._nodeOf(event);
    if (node === null) return;
    if (event.target.closest(".twisty:not(.leaf)")) this.toggle(node);
    else this.select(node);
  }

  toggle(node, open) {
    if (!this.model.hasInside(node)) return;
    const was = this.model.expanded[node] === 1;
    this.model.expanded[node] = (open === undefined ? !was : open) ? 1 : 0;
    this.model.flatten();
    this.refresh();
  }

  // Selects a node, opening what is around it, and brings it into view.
  select(node, options = {}) {
    this.selected = node;
    if (node >= 0) {
      if (this.model.positionOf(node) < 0) {
        this.model.reveal(node);
        this.model.flatten();
      }
      this.refresh();
      this._intoView(this.model.positionOf(node), options.centre);
    }
    this.draw();
    if (!options.quiet) this.onSelect(node);
  }

  _intoView(at, centre) {
    if (at < 0) return;
    const height = this.element.clientHeight, y = at * LINE, top = this.element.scrollTop * this.scale;
    if (centre || y < top - height || y > top + 2 * height) this.element.scrollTop = (y - height / 3) / this.scale;
    else if (y < top) this.element.scrollTop = y / this.scale;
    else if (y + LINE > top + height) this.element.scrollTop = (y + LINE - height) / this.scale;
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { nodes } = this.model;
    const at = this.model.positionOf(this.selected);
    const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 1);
    const go = (to) => { if (nodes.length) this.select(nodes[Math.max(0, Math.min(nodes.length - 1, to))]); };
    const node = this.selected;
    switch (event.key) {
      case "ArrowDown": go(at + 1); break;
      case "ArrowUp": go(at < 0 ? 0 : at - 1); break;
      case "PageDown": go(at + page); break;
      case "PageUp": go(at - page); break;
      case "Home": go(0); break;
      case "End": go(nodes.length - 1); break;
      case "ArrowRight":
        if (at < 0) break;
        if (this.model.hasInside(node) && !this.model.expanded[node]) this.toggle(node, true);
        else if (this.model.hasInside(node)) go(at + 1);
        break;
      case "ArrowLeft":
        if (at < 0) break;
        if (node < this.model.calls && this.model.expanded[node]) this.toggle(node, false);
        else if (this.model.parent(node) >= 0) this.select(this.model.parent(node));
        break;
      case "Enter": case " ": if (at >= 0) this.toggle(node); break;
      case "*": if (at >= 0 && node < this.model.calls) { this.model.expandBelow(node); this.model.flatten(); this.refresh(); } break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
