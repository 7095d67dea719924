// The header: state, mode, quotas, certificates, and the process.

import { h, setText } from "./dom.js";
import { bytes, duration, number } from "./format.js";
import { state } from "./stream.js";

const MODES = { delay: "delays responses", mute: "mutes clients", observe: "OBSERVES ONLY: no client waits" };
const LINKS = { live: "live", lost: "connection lost, trying again", connecting: "connecting", denied: "no access" };
const DAY_S = 86400;
const EXPIRY_SOON_DAYS = 14;

const shown = new Map();

function figure(name, text, style = "") {
  let parts = shown.get(name);
  if (!parts) {
    const value = h("dd");
    parts = { element: h("div", {}, h("dt", {}, name), value), value };
    shown.set(name, parts);
    document.getElementById("figures").append(parts.element);
  }
  setText(parts.value, text);
  if (parts.value.className !== style) parts.value.className = style;
}

function hide(name) {
  shown.get(name)?.element.remove();
  shown.delete(name);
}

/** Draws the header again. */
export function drawHead() {
  const { head, link } = state;
  const badge = document.getElementById("link");
  setText(badge, LINKS[link]);
  badge.className = `badge ${link === "live" ? "good" : link === "connecting" ? "" : "bad"}`;
  badge.title = state.problem;
  if (!head.mode) return;
  const mode = document.getElementById("mode");
  setText(mode, `${MODES[head.mode] ?? head.mode}, quotas for each ${head.scope}`);
  mode.className = head.mode === "observe" ? "mode observing" : "mode";
  drawFigures(head);
}

function drawFigures(head) {
  const failed = head.state.checks.filter(([, ok]) => !ok);
  const style = head.state.name === "ready" ? "good" : head.state.name === "degraded" ? "wait" : "bad";
  figure("Ready checks", failed.length ? `${head.state.name}: ${failed.map(([name, , detail]) => `${name} ${detail}`).join("; ")}` : `${head.state.name} (${head.state.checks.length} hold)`, style);
  const { source } = head;
  const age = source.age_ms === null ? "never read" : `read ${duration(source.age_ms)} ago`;
  const place = source.source.split("/").at(-1);
  figure("Quotas", source.error ? `${place}: ${source.error}; ${age}` : `${source.entries} from ${place}, ${age}`, source.error ? "bad" : "");
  const switches = Object.entries(head.switches);
  if (switches.length) figure("Switches", switches.map(([target, at]) => `${target}: ${at}`).join(", "), "wait");
  else hide("Switches");
  figure("Processor", head.rates.cpu === null ? "–" : `${number(Math.round(head.rates.cpu * 1000) / 10)} % of a core`);
  const { memory } = head;
  figure("Memory", `${bytes(memory.resident_bytes)}; buffers ${bytes(memory.buffered_bytes)} of ${bytes(memory.buffer_bytes_max)}`);
  figure("Loop lag", `${duration(head.lag_ms.last)}, longest ${duration(head.lag_ms.max)}`, head.lag_ms.max > 200 ? "wait" : "");
  figure("Requests", head.rates.requests === null ? "–" : `${number(head.rates.requests)}/s`);
  drawCertificates(head);
  drawProcesses(head);
}

function drawCertificates(head) {
  const expiries = Object.entries(head.certificates).map(([place, at]) => [place, (at - head.time_s) / DAY_S]);
  if (!expiries.length) return hide("Certificates");
  const [place, days] = expiries.reduce((first, other) => (other[1] < first[1] ? other : first));
  figure("Certificates", days < 0 ? `${place} has expired` : `${place} expires in ${Math.floor(days)} days`, days < EXPIRY_SOON_DAYS ? "bad" : "");
}

function drawProcesses(head) {
  if (head.workers.length) {
    const silent = head.workers.filter((worker) => worker.is_stale).length;
    figure("Workers", silent ? `${silent} of ${head.workers.length} do not answer` : `${head.workers.length} answer`, silent ? "bad" : "");
  } else hide("Workers");
  const { fleet } = head;
  if (!fleet) return hide("Fleet");
  const heard = fleet.members.filter((member) => member.is_heard).length;
  const text = fleet.is_cut_off ? `cut off: ${fleet.problem ?? fleet.bus}` : `${heard} of ${fleet.members.length} members, lag ${duration(fleet.lag_ms)}`;
  figure("Fleet", text, fleet.is_cut_off || heard < fleet.members.length ? "bad" : "");
}
