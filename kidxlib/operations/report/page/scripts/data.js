// The data of the page: parts that are packed in it, each unpacked once somebody asks for it.

const unpacked = new Map();

function part(name) {
  if (!unpacked.has(name)) unpacked.set(name, unpack(name));
  return unpacked.get(name);
}

async function unpack(name) {
  const packed = document.getElementById(`part-${name}`).textContent;
  const bytes = Uint8Array.fromBase64?.(packed) ?? decoded(atob(packed));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// As browsers before 2025 need it.
function decoded(text) {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}
