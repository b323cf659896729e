// The sentence on top, what was compared, and the choice of step and rank; the overview of one pair of dumps.

const verdictOf = (counts) => RESULTS.findIndex((result) => counts[result.word]);

const pairTitle = (pair) => [pair.step === null ? "" : `step ${pair.step}`, pair.label.replace(/^(rank|proc)/, "$1 ")].filter(Boolean).join(", ");

const optionText = (word, pairs) => {
  const total = {};
  for (const pair of pairs) for (const [result, number] of Object.entries(pair.counts)) total[result] = (total[result] || 0) + number;
  const worst = verdictOf(total);
  const sign = worst >= 0 ? RESULTS[worst].sign : "·";
  return `${sign} ${word}${worst >= 0 && worst < RANK.p ? `  (${count(total[RESULTS[worst].word])} ${RESULTS[worst].word})` : ""}`;
};

const chooser = (current, onChoose) => {
  const pairs = INDEX.pairs;
  if (pairs.length < 2) return null;
  const box = make("div", { class: "chooser" });
  const pick = (name, values, chosen, change) => {
    if (values.length < 2) return;
    const list = make("select", { id: `choose-${name}`, onchange: () => change(list.selectedIndex) },
      values.map(([word, of]) => make("option", {}, optionText(word, of))));
    list.selectedIndex = chosen;
    box.append(make("label", {}, `${name} `, list));
  };
  const steps = [...new Set(pairs.map((pair) => pair.step))];
  pick("step", steps.map((step) => [step === null ? "–" : String(step), pairs.filter((pair) => pair.step === step)]), steps.indexOf(current.step), (at) => {
    const there = pairs.filter((pair) => pair.step === steps[at]);
    onChoose(there.find((pair) => pair.label === current.label) || there[0]);
  });
  const ranks = pairs.filter((pair) => pair.step === current.step);
  pick(current.label.startsWith("proc") ? "process" : "rank", ranks.map((pair) => [pair.label.replace(/^(rank|proc)/, "") || "–", [pair]]), ranks.indexOf(current), (at) => onChoose(ranks[at]));
  return box;
};

const drawHeader = (current, app) => {
  const found = INDEX.pairs.map((pair) => verdictOf(pair.counts)).filter((one) => one >= 0);
  const rank = INDEX.clean ? RANK.p : Math.min(RANK.n, ...found); // a warning alone is no finding
  const sentence = make("button", { class: `sentence ${RESULTS[rank].letter}`, id: "sentence", title: INDEX.clean ? "overview (o)" : "go to the first difference (f)",
    onclick: () => (INDEX.clean ? app.overview() : app.goToFirst()) }, badge(rank), make("span", {}, ticked(INDEX.sentence)));
  byId("top").replaceChildren(...[
    make("button", { class: "brand", onclick: () => app.overview(), title: "overview (o)" }, "msprobe ", make("span", {}, "compare")),
    sentence, chooser(current, (pair) => app.choose(pair)),
    make("button", { class: "help", title: "overview and keys (o)", "aria-label": "overview and keys", onclick: () => app.overview() }, "?"),
  ].filter(Boolean));
};

// `names` between backquotes as code.
const ticked = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));

const KEYS = [["↑ ↓", "previous, next line"], ["→ ←", "open; close, or go to the module around it"], ["*", "open everything below"], ["/", "search"],
  ["n N", "next, previous difference"], ["f", "first difference"], ["[ ]", "previous, next step or rank"], ["o", "this overview"], ["Esc", "clear search and filter"]];

const overviewOf = (pair, app) => {
  const total = Object.values(pair.counts).reduce((a, b) => a + b, 0);
  const bar = make("div", { class: "bar", "aria-hidden": "true" }, RESULTS.filter((result) => pair.counts[result.word]).map((result) => {
    const part = make("span", { class: result.letter });
    part.style.flexGrow = Math.max(pair.counts[result.word] / Math.max(total, 1), 0.006);
    return part;
  }));
  const told = pair.lines.filter(([text]) => !text.includes(" rows matched, ") && text);
  return [
    make("div", { class: "heading" }, make("h2", {}, pairTitle(pair) || "Overview"), make("p", { class: "aside" }, ticked(pair.sentence))),
    bar,
    make("div", { class: "tiles" }, RESULTS.map((result, rank) => make("button", { class: `tile ${result.letter}`, title: result.meaning, onclick: () => app.only(rank) },
      make("span", { class: "sign" }, result.sign), make("b", {}, count(pair.counts[result.word] || 0)), make("span", {}, result.word)))),
    told.length ? make("section", {}, make("h3", {}, "In full"), make("pre", { class: "lines" }, told.map(([text, style]) => make("div", { class: style }, text)))) : null,
    pair.notes.length || INDEX.apart.length || INDEX.problems.length ? make("section", {}, make("h3", {}, "Notes"), make("ul", { class: "notes" },
      INDEX.problems.map((text) => make("li", { class: "bad" }, text)), INDEX.apart.map((text) => make("li", { class: "bad" }, text)), pair.notes.map((text) => make("li", {}, text)))) : null,
    make("section", {}, make("h3", {}, "Compared"), make("dl", {},
      make("dt", {}, "target"), make("dd", {}, make("code", {}, pair.target)),
      make("dt", {}, "golden"), make("dd", {}, make("code", {}, pair.golden)),
      make("dt", {}, "by"), make("dd", {}, { statistics: "Max, Min, Mean and Norm", tensor: "tensors, element by element", md5: "checksum", structure: "calls, without values" }[pair.mode] || pair.mode),
      pair.mode === "tensor" ? [make("dt", {}, "pictures"), make("dd", {}, `${pair.pictures} of at most ${INDEX.limits.pictures}: those of the first difference, then the largest differences`)] : [],
      make("dt", {}, "made"), make("dd", {}, `${INDEX.made}, msprobe ${INDEX.msprobe}`))),
    make("section", {}, make("h3", {}, "Signs"), make("dl", {}, RESULTS.map((result, rank) => [make("dt", {}, badge(rank, true)), make("dd", {}, result.meaning)]))),
    make("section", {}, make("h3", {}, "Keys"), make("dl", { class: "keys" }, KEYS.map(([key, what]) => [make("dt", {}, key.split(" ").map((one) => make("kbd", {}, one))), make("dd", {}, what)]))),
  ].filter(Boolean);
};
