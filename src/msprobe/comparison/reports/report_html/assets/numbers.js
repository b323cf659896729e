// Numbers in full, as they were recorded, with the digits marked from which two of them part.

const NUMERIC = /^-?\d/;

const shown = (value) => (value === null || value === undefined ? "–" : String(value));

const parted = (value, other) => {
  const text = shown(value), against = shown(other);
  if (text === against || value === null || other === null || value === undefined || other === undefined) {
    return [visible(text)];
  }
  if (!NUMERIC.test(text) || !NUMERIC.test(against)) return [make("mark", {}, text)];
  let same = 0;
  while (same < text.length && text[same] === against[same]) same++;
  if (magnitudeOf(text) !== magnitudeOf(against)) same = 0; // 12.5 and 1.25 have no digit in common
  return [visible(text.slice(0, same)), make("mark", {}, text.slice(same) || " ")];
};

const magnitudeOf = (text) => `${/^-?\d*/.exec(text)[0].length} ${(/e(.*)$/i.exec(text) || ["", ""])[1]}`;

// A shorter form for metrics, where the first digits tell all; the full one is the element's title.
const brief = (value) => {
  if (typeof value === "string" && /^-?\d[\d.]*(e[-+]?\d+)?%?$/i.test(value)) {
    const percent = value.endsWith("%");
    const number = Number(percent ? value.slice(0, -1) : value);
    return roundedText(number) + (percent ? " %" : "");
  }
  return typeof value === "number" ? roundedText(value) : shown(value);
};

const roundedText = (number) => (Number.isInteger(number) && Math.abs(number) < 1e9 ? String(number) : String(Number(number.toPrecision(4))));
