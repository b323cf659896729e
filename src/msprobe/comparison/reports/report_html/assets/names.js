// Names of calls, taken apart for showing.

const MODULE = /^(?:Module|Cell|Primitive)\.(.*)\.([^.]+)\.(forward|backward|parameters_grad)(?:\.(\d+))?(\..*)?$/s;
const API = /^([A-Za-z_]+)\.(.+)\.(\d+)\.(forward|backward)(\..*)?$/s;

const partsOf = (name) => {
  let found = MODULE.exec(name);
  if (found) return { kind: "module", path: found[1], type: found[2], direction: found[3], number: found[4] || "0", suffix: found[5] || "" };
  found = API.exec(name);
  if (found) return { kind: "api", path: found[2], type: found[1], direction: found[4], number: found[3], suffix: found[5] || "" };
  return { kind: "other", path: name, type: "", direction: "", number: "", suffix: "" };
};

const isBackward = (name) => /\.(backward(\.|$)|parameters_grad)/.test(name);

// What a node is called inside the node around it: the part of the module's path that is new.
const labelOf = (name, around) => {
  const parts = partsOf(name);
  let label = parts.path;
  if (parts.kind === "module" && around) {
    const outer = partsOf(around);
    if (outer.kind === "module" && label.startsWith(outer.path + ".")) label = label.slice(outer.path.length + 1);
  }
  if (parts.kind === "module" && parts.direction === "parameters_grad") return { ...parts, label, aside: "gradients of parameters" };
  const number = parts.number !== "" && (parts.kind === "api" || parts.number !== "0") ? `#${parts.number}` : "";
  return { ...parts, label, aside: [parts.type, number + parts.suffix].filter(Boolean).join(" ") };
};
