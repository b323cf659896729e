// Elements are made by hand and filled with textContent alone: no text of a dump is ever read as HTML.

// Characters that show nothing, or turn the text around them about, are spelled out: two names that differ must look different.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]/g;
const visible = (text) => text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

const make = (tag, options, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(typeof child === "string" ? visible(child) : child);
  }
  return element;
};

const makeSvg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children.flat()) element.append(child);
  return element;
};

const byId = (id) => document.getElementById(id);

// Results: letter in the data, word, sign. The sign tells them apart without colours.
const RESULTS = [
  { letter: "e", word: "error", sign: "✕", meaning: "differs where it should not" },
  { letter: "u", word: "unmatched", sign: "◇", meaning: "only one side has it" },
  { letter: "n", word: "not compared", sign: "?", meaning: "could not be measured" },
  { letter: "w", word: "warning", sign: "▲", meaning: "differs, but follows from what differed before, or slightly" },
  { letter: "p", word: "pass", sign: "✓", meaning: "equal up to rounding" },
];
const RANK = { e: 0, u: 1, n: 2, w: 3, p: 4 };
const NOTHING = 5; // the rank of a node without rows

const badge = (rank, withWord) => {
  const result = RESULTS[rank];
  if (!result) return make("span", { class: "badge none", title: "no values" }, "·");
  return make("span", { class: `badge ${result.letter}`, title: `${result.word}: ${result.meaning}` }, result.sign,
    withWord ? ` ${result.word}` : null, withWord ? null : make("span", { class: "unseen" }, result.word));
};

const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, " ");
