// The data of the report: an index as JSON, everything else as gzip-compressed JSON in base64, unpacked when it is needed.

const INDEX = JSON.parse(byId("index").textContent);

const unpacked = new Map();

const bytesOf = (base64) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

const unpack = (id) => {
  if (!unpacked.has(id)) {
    const stream = new Blob([bytesOf(byId(id).textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(id, new Response(stream).json());
    if (unpacked.size > 64) { // the oldest block of values; the trees are held by the models
      const oldest = [...unpacked.keys()].find((key) => key.startsWith("values-") || key.startsWith("picture-"));
      if (oldest && oldest !== id) unpacked.delete(oldest);
    }
  }
  return unpacked.get(id);
};
