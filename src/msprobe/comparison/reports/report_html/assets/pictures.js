// The errors of two tensors: how large they are, and how large beside the values. Bins are powers of two.

const PLOT = { width: 420, height: 230, left: 46, right: 12, top: 12, bottom: 36 };
const DECADE = Math.log2(10);

const frame = (title, width) => makeSvg("svg", { viewBox: `0 0 ${width} ${PLOT.height}`, class: "plot", role: "img", "aria-label": title });

// Decades inside a range of exponents, at most eight of them.
const decades = (low, high) => {
  const first = Math.ceil(low / DECADE), last = Math.floor(high / DECADE);
  const step = Math.max(1, Math.ceil((last - first + 1) / 8));
  const found = [];
  for (let d = Math.ceil(first / step) * step; d <= last; d += step) found.push(d);
  return found;
};

const power = (d) => makeSvg("tspan", {}, "10", makeSvg("tspan", { dy: "-4", "font-size": "8" }, String(d)));

const histogram = (picture) => {
  const svg = frame("histogram of the size of the errors", PLOT.width);
  const sizes = picture.sizes;
  const low = sizes[0][0] - 2, high = Math.max(sizes[sizes.length - 1][0] + 1, low + 8);
  const most = Math.max(...sizes.map((bin) => bin[1]));
  const x = (e) => PLOT.left + (e - low) / (high - low) * (PLOT.width - PLOT.left - PLOT.right);
  const base = PLOT.height - PLOT.bottom;
  const y = (n) => base - (n > 0 ? (Math.log10(n) + 0.3) / (Math.log10(most) + 0.3) : 0) * (base - PLOT.top);
  for (let n = 1; n <= most; n *= 10) {
    svg.append(makeSvg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(n), y2: y(n), class: "grid" }),
      makeSvg("text", { x: PLOT.left - 6, y: y(n) + 3, class: "tick end" }, n >= 1e4 ? power(Math.round(Math.log10(n))) : String(n)));
  }
  for (const [e, n] of sizes) {
    const bar = makeSvg("rect", { x: x(e - 1) + 0.5, y: y(n), width: Math.max(x(e) - x(e - 1) - 1, 1), height: Math.max(base - y(n), 1), class: "column" });
    bar.append(makeSvg("title", {}, `${count(n)} errors from ${(2 ** (e - 1)).toPrecision(3)} to ${(2 ** e).toPrecision(3)}`));
    svg.append(bar);
  }
  for (const d of decades(low, high)) {
    svg.append(makeSvg("text", { x: x(d * DECADE), y: base + 15, class: "tick middle" }, power(d)));
    svg.append(makeSvg("line", { x1: x(d * DECADE), x2: x(d * DECADE), y1: base, y2: base + 4, class: "axis" }));
  }
  svg.append(makeSvg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: base, y2: base, class: "axis" }),
    makeSvg("text", { x: (PLOT.left + PLOT.width - PLOT.right) / 2, y: PLOT.height - 4, class: "name middle" }, "size of the error, |target − golden|"),
    makeSvg("text", { x: 11, y: (PLOT.top + base) / 2, class: "name middle", transform: `rotate(-90 11 ${(PLOT.top + base) / 2})` }, "elements"));
  return svg;
};

const scatter = (picture) => {
  const svg = frame("errors against the magnitude of the golden values", PLOT.width);
  const cells = picture.grid.map((cell) => cell.slice());
  const zeros = picture.zeros;
  const columns = cells.map((cell) => cell[0]), rows = cells.map((cell) => cell[1]).concat(zeros.map((bin) => bin[0]));
  let left = (columns.length ? Math.min(...columns) : 0) - 1, right = (columns.length ? Math.max(...columns) : 0) + 1;
  const low = Math.min(...rows) - 2, high = Math.max(...rows) + 2;
  if (right - left < 8) right = left + 8;
  const zeroAt = left - 2;
  if (zeros.length) left -= 3;
  const base = PLOT.height - PLOT.bottom;
  const x = (e) => PLOT.left + (e - left) / (right - left) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (e) => base - (e - low) / (high - low) * (base - PLOT.top);
  const most = Math.max(1, ...cells.map((cell) => cell[2]), ...zeros.map((bin) => bin[1]));
  const shade = (n) => (0.18 + 0.82 * Math.log(n + 1) / Math.log(most + 1)).toFixed(2);
  for (const d of decades(low, high)) {
    svg.append(makeSvg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(d * DECADE), y2: y(d * DECADE), class: "grid" }),
      makeSvg("text", { x: PLOT.left - 6, y: y(d * DECADE) + 3, class: "tick end" }, power(d)));
  }
  for (const d of decades(zeros.length ? zeroAt + 1 : left, right)) {
    svg.append(makeSvg("text", { x: x(d * DECADE), y: base + 15, class: "tick middle" }, power(d)));
    svg.append(makeSvg("line", { x1: x(d * DECADE), x2: x(d * DECADE), y1: base, y2: base + 4, class: "axis" }));
  }
  const cell = (column, row, n, words) => {
    const rect = makeSvg("rect", { x: x(column - 1), y: y(row), width: x(column) - x(column - 1), height: y(row - 1) - y(row), class: "cell", "fill-opacity": shade(n) });
    rect.append(makeSvg("title", {}, `${count(n)} elements: ${words}, error from ${(2 ** (row - 1)).toPrecision(3)} to ${(2 ** row).toPrecision(3)}`));
    return rect;
  };
  for (const [column, row, n] of cells) svg.append(cell(column, row, n, `golden from ${(2 ** (column - 1)).toPrecision(3)} to ${(2 ** column).toPrecision(3)}`));
  for (const [row, n] of zeros) svg.append(cell(zeroAt, row, n, "golden is 0"));
  if (zeros.length) svg.append(makeSvg("text", { x: x(zeroAt - 0.5), y: base + 15, class: "tick middle" }, "0"));
  // Lines of equal relative error.
  const line = (relative, label, kind) => {
    const shift = Math.log2(relative);
    const from = Math.max(zeros.length ? zeroAt + 1 : left, low - shift), to = Math.min(right, high - shift);
    if (to - from < 1) return;
    svg.append(makeSvg("line", { x1: x(from), y1: y(from + shift), x2: x(to), y2: y(to + shift), class: `guide ${kind}` }),
      makeSvg("text", { x: x(to) - 3, y: Math.max(y(to + shift) + 11, PLOT.top + 9), class: `tick end ${kind}` }, label));
  };
  line(1, "as large as the value", "");
  if (picture.rounding) line(picture.rounding, "rounding", "rounding");
  svg.append(makeSvg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: base, y2: base, class: "axis" }),
    makeSvg("line", { x1: PLOT.left, x2: PLOT.left, y1: PLOT.top, y2: base, class: "axis" }),
    makeSvg("text", { x: (PLOT.left + PLOT.width - PLOT.right) / 2, y: PLOT.height - 4, class: "name middle" }, "magnitude of the golden value"),
    makeSvg("text", { x: 11, y: (PLOT.top + base) / 2, class: "name middle", transform: `rotate(-90 11 ${(PLOT.top + base) / 2})` }, "size of the error"));
  return svg;
};

const drawPicture = (picture) => {
  const rest = picture.numel - picture.equal - picture.nonfinite;
  const share = (n) => `${count(n)} (${(100 * n / Math.max(picture.numel, 1)).toPrecision(3)} %)`;
  const box = make("div", { class: "picture" });
  box.append(make("p", { class: "told" }, `${count(picture.numel)} elements: ${share(rest)} differ, ${share(picture.equal)} are equal`,
    picture.nonfinite ? `, ${share(picture.nonfinite)} are NaN or infinite on one side` : "", "."));
  if (picture.sizes.length) {
    box.append(make("figure", {}, histogram(picture), make("figcaption", {}, "Sizes of the errors")),
      make("figure", {}, scatter(picture), make("figcaption", {}, "Errors against magnitude (colour: how many)")));
  }
  if (picture.worst.length) {
    box.append(make("table", { class: "worst" }, make("caption", {}, "Largest errors"),
      make("tr", {}, ["index", "target", "golden"].map((word) => make("th", {}, word))),
      picture.worst.map(([index, ours, theirs]) => make("tr", {}, make("td", {}, `[${index.join(", ")}]`), make("td", {}, parted(ours, theirs)), make("td", {}, parted(theirs, ours))))));
  }
  return box;
};
