// Numbers, sizes and times as people read them.

const DAY_MS = 86400000;

function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  let number = value, unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return unit === 0 ? `${count(Math.round(number))} bytes` : `${number.toFixed(1)} ${units[unit]}`;
}

function binaryBytes(value) {
  if (value < 0) return "no limit";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let number = value, unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${count(Number(number.toFixed(1)))} ${units[unit]}`;
}

// A count with its noun: 1 segment, 2 segments.
function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

// Points in time in UTC, as the command line shows them. Java's longs reach further than the years that a date has.
function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const date = new Date(ms);
  return Number.isNaN(date.valueOf()) ? `${ms} ms` : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function day(number) {
  return new Date(number * DAY_MS).toISOString().slice(0, 10);
}

function duration(ms) {
  if (ms < 0) return "no limit";
  const hours = ms / 3600000;
  return hours < 24 ? `${hours} h` : `${hours / 24} d`;
}

function seconds(value) {
  return value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 2 : 0)} s`;
}

function offsetName(offset) {
  return String(offset).padStart(20, "0");
}
