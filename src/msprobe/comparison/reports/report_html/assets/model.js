// One pair of dumps: calls 0 … n-1 (recorded ones first), and their rows. A node of the tree is a call, or n + row.

class Model {
  constructor(tree, pair) {
    Object.assign(this, { tree, pair });
    const n = this.calls = tree.names.length;
    this.firstRow = new Int32Array(n + 1);
    for (let i = 0; i < n; i++) this.firstRow[i + 1] = this.firstRow[i] + (tree.rows[i] || 0);
    this.rowCount = this.firstRow[n];
    this.owner = new Int32Array(this.rowCount);
    this.rowRank = new Uint8Array(this.rowCount);
    this.own = new Uint8Array(n).fill(NOTHING);
    for (let i = 0; i < n; i++) {
      for (let r = this.firstRow[i]; r < this.firstRow[i + 1]; r++) {
        this.owner[r] = i;
        const rank = this.rowRank[r] = RANK[tree.results[r]];
        if (rank < this.own[i]) this.own[i] = rank;
      }
    }
    this.showsRows = pair.mode !== "structure"; // there the one row of a call is the call itself
    this.backward = new Uint8Array(n);
    for (let i = 0; i < n; i++) this.backward[i] = isBackward(tree.names[i]) ? 1 : 0;
    this._order();
    this._sum();
    this.expanded = new Uint8Array(n);
    this.lower = null;
    this.filter({});
  }

  // Children in the order in which they ran; a node that was not recorded itself stands where its first child does.
  _order() {
    const n = this.calls, parents = this.tree.parents;
    const place = new Int32Array(n);
    for (let i = 0; i < n; i++) place[i] = i < this.tree.recorded ? i : n;
    for (let i = 0; i < n; i++) {
      for (let p = parents[i]; p >= this.tree.recorded && place[p] > i; p = parents[p]) place[p] = i;
    }
    const sorted = Array.from({ length: n }, (_, i) => i);
    if (n > this.tree.recorded) sorted.sort((a, b) => place[a] - place[b] || b - a);
    this.start = new Int32Array(n + 2);
    for (let i = 0; i < n; i++) this.start[parents[i] + 2]++;
    for (let i = 1; i < n + 2; i++) this.start[i] += this.start[i - 1];
    const next = this.start.slice();
    this.children = new Int32Array(n);
    for (const i of sorted) this.children[next[parents[i] + 1]++] = i;
    this.preorder = new Int32Array(n);
    let count = 0;
    const stack = [...this.childrenOf(-1)].reverse();
    while (stack.length) {
      const i = stack.pop();
      this.preorder[count++] = i;
      for (let k = this.start[i + 2] - 1; k >= this.start[i + 1]; k--) stack.push(this.children[k]);
    }
  }

  childrenOf(i) { return this.children.subarray(this.start[i + 1], this.start[i + 2]); }

  // For each call the worst result in it and below it, and how many rows of each.
  _sum() {
    const n = this.calls;
    this.worst = this.own.slice();
    this.below = RESULTS.map(() => new Int32Array(n));
    for (let r = 0; r < this.rowCount; r++) this.below[this.rowRank[r]][this.owner[r]]++;
    for (let k = n - 1; k >= 0; k--) {
      const i = this.preorder[k], p = this.tree.parents[i];
      if (p < 0) continue;
      if (this.worst[i] < this.worst[p]) this.worst[p] = this.worst[i];
      for (const counts of this.below) counts[p] += counts[i];
    }
  }

  rank(node) { return node < this.calls ? this.worst[node] : this.rowRank[node - this.calls]; }
  call(node) { return node < this.calls ? node : this.owner[node - this.calls]; }
  parent(node) { return node < this.calls ? this.tree.parents[node] : this.owner[node - this.calls]; }
  key(row) { return this.tree.keys[this.tree.key[row]]; }
  hasInside(node) { return node < this.calls && ((this.showsRows && this.tree.rows[node] > 0) || this.start[node + 2] > this.start[node + 1]); }

  // Which nodes are shown: `results`, a set of ranks or null; `direction`, "forward", "backward" or ""; `text`, words that all occur.
  filter({ results = null, direction = "", text = "" }) {
    const n = this.calls;
    this.results = results;
    this.active = Boolean(results || text);
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && !this.lower) this.lower = this.tree.names.map((name) => name.toLowerCase());
    this.kept = new Uint8Array(n);
    this.hits = [];
    for (let k = n - 1; k >= 0; k--) {
      const i = this.preorder[k];
      let own = !direction || (this.backward[i] === 1) === (direction === "backward");
      if (own && words.length) own = words.every((word) => this._has(i, word));
      if (own && results) own = this._anyRow(i, results);
      if (own && (this.active || direction) && (i < this.tree.recorded || words.length)) this.hits.push(i);
      if (own || this.kept[i]) {
        this.kept[i] = 1;
        if (this.tree.parents[i] >= 0) this.kept[this.tree.parents[i]] = 1;
      }
    }
    this.hits.reverse();
    this.hit = new Uint8Array(n);
    for (const i of this.hits) this.hit[i] = 1;
    this.flatten();
  }

  _has(i, word) {
    const golden = this.tree.golden[i];
    return this.lower[i].includes(word) || (golden !== undefined && golden.toLowerCase().includes(word));
  }

  _anyRow(i, results) {
    for (let r = this.firstRow[i]; r < this.firstRow[i + 1]; r++) if (results.has(this.rowRank[r])) return true;
    return false;
  }

  // The nodes that stand below each other on the screen, with their depth.
  flatten() {
    const nodes = [], depths = [];
    const stack = [...this.childrenOf(-1)].filter((i) => this.kept[i]).reverse().map((i) => [i, 0]);
    while (stack.length) {
      const [i, depth] = stack.pop();
      nodes.push(i);
      depths.push(depth);
      if (!this.expanded[i]) continue;
      for (let r = this.firstRow[i]; this.showsRows && r < this.firstRow[i + 1]; r++) {
        if (this.results && !this.results.has(this.rowRank[r])) continue;
        nodes.push(this.calls + r);
        depths.push(depth + 1);
      }
      for (let k = this.start[i + 2] - 1; k >= this.start[i + 1]; k--) {
        if (this.kept[this.children[k]]) stack.push([this.children[k], depth + 1]);
      }
    }
    this.nodes = nodes;
    this.depths = depths;
    this.positions = null;
  }

  positionOf(node) {
    if (!this.positions) this.positions = new Map(this.nodes.map((other, at) => [other, at]));
    return this.positions.has(node) ? this.positions.get(node) : -1;
  }

  reveal(node) {
    for (let p = this.parent(node); p >= 0; p = this.tree.parents[p]) this.expanded[p] = 1;
  }

  // The whole tree below a node, or everything around the hits.
  expandBelow(node) {
    const stack = node < 0 ? [...this.childrenOf(-1)] : [node];
    while (stack.length) {
      const i = stack.pop();
      this.expanded[i] = 1;
      stack.push(...this.childrenOf(i));
    }
  }

  revealHits(limit) {
    for (const i of this.hits.slice(0, limit)) this.reveal(i);
  }

  // The next call after `node`, in the order of the tree, whose own rows have a result as bad as `worst` or worse.
  nextDifference(node, step, worst) {
    if (!this.place) {
      this.place = new Int32Array(this.calls);
      this.preorder.forEach((i, at) => { this.place[i] = at; });
    }
    for (let at = (node < 0 ? (step > 0 ? -1 : this.calls) : this.place[this.call(node)]) + step; at >= 0 && at < this.calls; at += step) {
      const i = this.preorder[at];
      if (this.own[i] <= worst && this.kept[i]) return i;
    }
    return -1;
  }
}
