// Puts the parts together, and keeps what is chosen: the pair of dumps, the selected call, the filter.

class App {
  constructor() {
    this.models = new Map();
    this.state = { results: new Set(), direction: "", text: "" };
    this.pane = byId("details");
    this.view = new TreeView(byId("tree"), (node) => this.selected(node));
    this._tools();
    this._grip();
    document.addEventListener("keydown", (event) => this._key(event));
  }

  async choose(pair, options = {}) {
    document.documentElement.dataset.ready = "";
    this.pair = pair;
    drawHeader(pair, this);
    if (!this.models.has(pair.number)) this.models.set(pair.number, new Model(await unpack(`tree-${pair.number}`), pair));
    if (this.pair !== pair) return;
    this.model = this.models.get(pair.number);
    this.model.filter(this._filter());
    this.view.show(this.model);
    this._chips();
    const wanted = options.node;
    if (wanted !== undefined && wanted >= 0 && wanted < this.model.calls + this.model.rowCount) await this._go(wanted);
    else if (wanted === undefined && pair.first !== null && pair.first !== undefined && this.model.kept[pair.first]) await this.goToFirst();
    else {
      this._openFew();
      this.overview();
    }
    if (this._isFiltered()) this.refilter(); // what was looked for in one step is looked for in the next
    document.documentElement.dataset.ready = "1";
    if (options.loading) document.documentElement.dataset.ms = Math.round(performance.now());
  }

  // With few calls there is room for a level more.
  _openFew() {
    const top = this.model.childrenOf(-1);
    if (top.length === 1) this.model.expanded[top[0]] = 1;
    this.model.flatten();
    this.view.refresh();
  }

  async goToFirst() {
    if (this.pair.first === null || this.pair.first === undefined) {
      const start = INDEX.pairs[INDEX.start];
      return start && start !== this.pair && !INDEX.clean ? this.choose(start) : this.overview();
    }
    const first = this.pair.first;
    this.model.expanded[first] = 1;
    if (!this.model.kept[first]) this.clear();
    await this._go(first);
  }

  async _go(node) {
    this.model.reveal(node);
    this.model.flatten();
    this.view.select(node, { quiet: true, centre: true });
    await this.selected(node);
  }

  // The place in the address: a reload, or a link that was passed on, leads there again.
  _place(node) {
    try {
      history.replaceState(null, "", `#${this.pair.number}.${node}`);
    } catch { /* a page without an address of its own, as in a frame */ }
  }

  async selected(node) {
    document.documentElement.dataset.shown = "";
    await showCall(this.pane, this.model, node, (other) => this.view.select(other));
    document.documentElement.dataset.shown = String(node);
    this._place(node);
    this._status();
  }

  overview() {
    this.pane.token = {};
    this.pane.replaceChildren(...overviewOf(this.pair, this));
    this.pane.scrollTop = 0;
    document.documentElement.dataset.shown = "overview";
    this._place("overview");
  }

  _filter() {
    return { results: this.state.results.size ? this.state.results : null, direction: this.state.direction, text: this.state.text };
  }

  _isFiltered() { return this.model.active || Boolean(this.state.direction); }

  refilter() {
    const model = this.model;
    model.filter(this._filter());
    if (model.active && !model.before) model.before = model.expanded.slice(); // what is opened for the hits is closed again afterwards
    if (!model.active && model.before) {
      model.expanded = model.before;
      model.before = null;
      if (this.view.selected >= 0) model.reveal(this.view.selected);
      model.flatten();
    }
    if (model.active) {
      this.model.revealHits(2000);
      if (this.state.results.size) for (const i of this.model.hits.slice(0, 200)) this.model.expanded[i] = 1;
      this.model.flatten();
    }
    this.view.refresh();
    this._chips();
  }

  clear() {
    this.state.results.clear();
    this.state.text = this.search.value = "";
    this.state.direction = "";
    this.refilter();
  }

  only(rank) {
    this.state.results = new Set([rank]);
    this.refilter();
    byId("tree").focus();
  }

  _tools() {
    this.search = make("input", { type: "search", id: "search", placeholder: "search calls    /", "aria-label": "search calls", spellcheck: "false", autocomplete: "off" });
    let timer = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { this.state.text = this.search.value; this.refilter(); }, 60);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.model.hits.length) {
        this.view.select(this.model.hits[0]);
        byId("tree").focus();
        event.preventDefault();
      }
    });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": "show only" });
    this.ways = make("div", { class: "ways", role: "group", "aria-label": "direction" });
    byId("tools").append(this.search, make("div", { class: "bars" }, this.chips, this.ways));
  }

  _chips() {
    const counts = this.pair.counts;
    this.chips.replaceChildren(...RESULTS.map((result, rank) => make("button", {
      class: `chip ${result.letter}`, "aria-pressed": String(this.state.results.has(rank)), disabled: !counts[result.word] && !this.state.results.has(rank), title: `show only ${result.word}: ${result.meaning}`,
      "data-result": result.word,
      onclick: () => { if (!this.state.results.delete(rank)) this.state.results.add(rank); this.refilter(); },
    }, make("span", { class: "sign" }, result.sign), count(counts[result.word] || 0), make("span", { class: "unseen" }, result.word))));
    this.ways.replaceChildren(...[["", "all"], ["forward", "forward"], ["backward", "backward"]].map(([way, word]) => make("button", {
      class: "way", "aria-pressed": String(this.state.direction === way), "data-way": way || "all",
      onclick: () => { this.state.direction = way; this.refilter(); },
    }, word)));
    this._status();
  }

  _status() {
    const model = this.model;
    const text = this._isFiltered()
      ? `${count(model.hits.length)} of ${count(model.tree.recorded)} calls`
      : `${count(model.tree.recorded)} calls${model.showsRows ? `, ${count(model.rowCount)} values` : ""}`;
    byId("status").textContent = text;
  }

  _grip() {
    const grip = byId("grip"), side = byId("side");
    const set = (width) => { side.style.width = `${Math.max(220, Math.min(width, window.innerWidth - 320))}px`; };
    grip.addEventListener("pointerdown", (event) => {
      grip.setPointerCapture(event.pointerId);
      const move = (other) => set(other.clientX);
      grip.addEventListener("pointermove", move);
      grip.addEventListener("pointerup", () => grip.removeEventListener("pointermove", move), { once: true });
    });
    grip.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") set(side.clientWidth - 24);
      if (event.key === "ArrowRight") set(side.clientWidth + 24);
    });
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.model) return;
    if (event.key === "Escape") {
      this.clear();
      byId("tree").focus();
      return;
    }
    if (event.target.closest("input, select, textarea")) return;
    const pairs = INDEX.pairs, at = pairs.indexOf(this.pair);
    switch (event.key) {
      case "/": this.search.focus(); this.search.select(); break;
      case "n": case "N": {
        const next = this.model.nextDifference(this.view.selected, event.key === "n" ? 1 : -1, RANK.w);
        if (next >= 0) this.view.select(next);
        break;
      }
      case "f": this.goToFirst(); break;
      case "o": case "?": this.overview(); break;
      case "[": if (at > 0) this.choose(pairs[at - 1]); break;
      case "]": if (at + 1 < pairs.length) this.choose(pairs[at + 1]); break;
      default: return;
    }
    event.preventDefault();
  }
}

const start = async () => {
  if (typeof DecompressionStream === "undefined") {
    byId("details").append(make("p", { class: "note" }, "This browser is too old for the report: it needs Chrome or Edge 80, Firefox 113, Safari 16.4, or newer."));
    return;
  }
  const app = new App();
  if (!INDEX.pairs.length) {
    byId("details").append(make("p", { class: "note" }, "No pair of dumps could be compared."), make("ul", {}, INDEX.problems.map((text) => make("li", {}, text))));
    document.documentElement.dataset.ready = "1";
    return;
  }
  const [, number, node] = /^#(\d+)\.(\d+|overview)$/.exec(location.hash) || [];
  const there = INDEX.pairs.find((pair) => String(pair.number) === number);
  await app.choose(there || INDEX.pairs[INDEX.start], { loading: true, node: there ? (node === "overview" ? -1 : Number(node)) : undefined });
};

start().catch((error) => {
  document.documentElement.dataset.failed = String(error && error.stack || error);
  byId("details").replaceChildren(make("p", { class: "note" }, `The report cannot be shown: ${error}. Please report this.`));
});
