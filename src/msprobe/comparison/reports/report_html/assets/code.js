// The lines of code of a call: the user's line with what is around it, and the whole stack.

const kindWord = { user: "", library: "installed package", framework: "framework" };

const frameHead = (frame) => {
  const [path, line, name] = frame;
  const cut = path.lastIndexOf("/") + 1;
  return make("span", { class: "place", title: path }, make("span", { class: "folder" }, path.slice(0, cut)),
    make("b", {}, line ? `${path.slice(cut)}:${line}` : path.slice(cut)), name ? ` in ${name}` : "");
};

const frameBody = (code, frame) => {
  const [, line, , source, , number] = frame;
  if (number < 0) {
    const bare = make("pre", { class: "source bare" }, make("div", { class: "at" }, make("i", {}, String(line || "")), make("code", {}, source || "no source recorded")));
    return number === -2 ? make("div", {}, bare, make("p", { class: "faint changed" }, "The file has changed since: the lines around this one are not shown.")) : bare;
  }
  const [start, lines] = code.contexts[number];
  return make("pre", { class: "source" }, lines.map((text, i) =>
    make("div", { class: start + i === line ? "at" : "" }, make("i", {}, String(start + i)), make("code", {}, text || " "))));
};

const ownFrame = (code, stack) => {
  const frames = code.stacks[stack].map((i) => code.frames[i]);
  return frames.find((f) => f[4] === "user") || frames.find((f) => f[4] === "library") || null;
};

const codeOf = (code, call) => {
  const stack = code.target[call] === undefined ? -1 : code.target[call];
  const golden = code.golden[call];
  const parts = [];
  for (const [side, number] of [["", stack], ["golden run", golden === undefined ? -1 : golden]]) {
    if (number < 0) continue;
    const own = ownFrame(code, number);
    if (side && stack >= 0 && own && ownFrame(code, stack) && own[3] === ownFrame(code, stack)[3]) continue;
    const frames = code.stacks[number].map((i) => code.frames[i]);
    const holder = side ? make("details", { class: "code stack" }, make("summary", {}, `in the ${side} it is made by another line: `, frameHead(own || frames[0]))) : make("div", { class: "code" });
    parts.push(make("div", {}, holder));
    holder.append(...[
      own ? make("div", { class: "own" }, side ? null : frameHead(own), frameBody(code, own)) : null,
      make("details", { class: "stack" }, make("summary", {}, `call stack, ${frames.length} ${frames.length === 1 ? "frame" : "frames"}, innermost first`),
        make("ol", {}, frames.map((frame) => make("li", { class: frame[4] }, frameHead(frame),
          kindWord[frame[4]] ? make("em", {}, kindWord[frame[4]]) : null, make("code", { class: "one" }, frame[3] || ""))))),
    ].filter(Boolean));
  }
  return parts.length ? parts : [make("p", { class: "faint" }, "No line of code was recorded for this call.")];
};
