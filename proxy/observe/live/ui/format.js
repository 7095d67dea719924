// Numbers with units as texts, and commands.

const KINDS = { Produce: "produce", Fetch: "fetch", Request: "request time", ControllerMutation: "mutations" };
const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

/** Returns a short name of a quota type. */
export const kind = (quotaType) => KINDS[quotaType] ?? quotaType;

/** Returns a number with up to three decimals and separators. */
export const number = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value : exact.format(value));

/** Returns bytes with a decimal prefix, as Kafka's quotas are written. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (Math.abs(value) >= size) return `${plain.format(value / size)} ${unit}`;
  return `${plain.format(value)} B`;
}

/** Returns a rate in the unit of its quota type. */
export function rate(value, quotaType) {
  if (value === null || value === undefined) return "–";
  if (quotaType === "Request") return `${plain.format(value)} %`;
  if (quotaType === "ControllerMutation") return `${plain.format(value)}/s`;
  return `${bytes(value)}/s`;
}

/** Returns a duration. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${plain.format(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 100) return `${plain.format(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

/** Returns the entity of a quota as people write it. */
export function entityName(entity) {
  return Object.entries(entity).map(([type, name]) => `${type}=${name === null ? "<default>" : name}`).join(",");
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const option = ([type, name]) => (name === null ? `--${type}-default` : `--${type} ${quoted(name)}`);
const port = () => `--admin ${window.location.origin}`;

/** Returns the command that sets quotas of an entity; a value of null deletes the quota. */
export function quotaCommand(entity, key, value) {
  const where = `${port()} ${Object.entries(entity).map(option).join(" ")}`;
  return value === null ? `sluice quotas delete ${where} ${key}` : `sluice quotas set ${where} ${key}=${value}`;
}

/** Returns the command that sets a switch; null removes it. */
export const pacingCommand = (target, pacing) => `sluice quotas pacing ${port()} ${quoted(target)} ${pacing ?? "default"}`;
export const switchCommand = (target, mode) => `sluice quotas switch ${port()} ${quoted(target)} ${mode ?? "default"}`;
