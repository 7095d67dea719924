// Connections by listener, closes by reason, logins, held addresses, brokers with their throughput, latencies, and processes.

import { card, h, table } from "../dom.js";
import { bytes, duration, number } from "../format.js";
import { listen, state } from "../stream.js";

const right = (text) => [text, "right"];
const share = (value) => (value === null ? "–" : `${number(Math.round(value * 1000) / 10)} %`);

function listeners({ listeners, accepted }) {
  const rows = listeners.map(([name, open, rate, wait, ipWait, blocked]) => [name, right(number(open)), right(`${number(rate)}/s`), right(number(accepted[name] ?? 0)), right(duration(wait)), right(duration(ipWait)), right(share(blocked))]);
  return table("Listeners", ["Listener", "#Open", "#Accepts", "#Accepted", "#Mean delay", "#Delay by address", "#Blocked"], rows);
}

function closes({ closes: counts }) {
  const rows = Object.entries(counts).sort(([, a], [, b]) => b - a).map(([reason, count]) => [reason, right(number(count))]);
  return rows.length ? table("Closes", ["Reason", "#Connections"], rows) : h("p", {}, "No connection has ended yet.");
}

function logins({ logins: counts, failing_ips: failing }) {
  const rows = counts.map(([mechanism, outcome, count]) => [mechanism, outcome === "failure" ? [outcome, "bad"] : outcome, right(number(count))]);
  return [rows.length ? table("Logins", ["Mechanism", "Outcome", "#Logins"], rows) : h("p", {}, "No client has logged in."), h("p", {}, `${failing} addresses failed within a minute`)];
}

function addresses({ ips, held }) {
  const rows = ips.map(([ip, broker, rate, bound, open]) => [ip, broker, right(`${number(rate)}/s`), right(bound >= 2147483647 ? "no limit" : `${number(bound)}/s`), right(number(open))]);
  return [h("p", {}, `${held} connections are held, because their address opens too many`), rows.length ? table("Addresses", ["Address", "At broker", "#Rate", "#Limit", "#Open"], rows) : null];
}

function brokers(head) {
  const upstream = Object.fromEntries(head.state.checks.filter(([name]) => !["listeners", "quota_source", "workers", "fleet"].includes(name)).map(([name, ok, detail]) => [name, [ok, detail]]));
  const rows = head.brokers.map((one) => [one.broker, reached(one), right(`${bytes(one.produce)}/s`), right(`${bytes(one.fetch)}/s`), ...one.latency_ms.map((ms) => right(ms === null ? "–" : duration(ms))), right(number(one.groups)), one.waiting ? [number(one.waiting), "right wait"] : right("0")]);
  const lines = Object.entries(upstream).map(([name, [ok, detail]]) => h("p", { class: ok ? "good" : "bad" }, `${name}: ${ok ? "reachable" : "not reachable"}, ${detail}`));
  return [lines, table("Brokers", ["Broker", "Reachable", "#Produced", "#Fetched", "#p50 below", "#p99 below", "#Groups", "#Waiting"], rows)];
}

function reached(one) {
  if (one.is_reached === null) return "–";
  return one.is_reached ? ["yes", "good"] : ["no", "bad"];
}

function latencies(head) {
  const rows = head.latencies.map(([api, count, median, slow]) => [api, right(number(count)), right(duration(median)), right(duration(slow))]);
  return rows.length ? table("Latencies by API", ["API", "#Responses", "#p50 below", "#p99 below"], rows) : h("p", {}, "No response yet.");
}

function processes(head) {
  const rows = head.workers.map((one) => [`worker ${one.number}`, one.is_stale ? ["no answer", "bad"] : "answers", right(number(one.connections)), right(bytes(one.resident_bytes)), right(duration(one.lag_max_ms))]);
  return rows.length ? card("Workers", table("Workers", ["Worker", "State", "#Connections", "#Memory", "#Longest lag"], rows)) : null;
}

function fleet(head) {
  if (!head.fleet) return null;
  const rows = head.fleet.members.map((one) => [one.member, one.is_heard ? ["heard", "good"] : [`silent for ${duration(one.silent_ms)}`, "bad"], one.has_equal_quotas ? "equal quotas" : ["other quotas", "bad"]]);
  return card("Fleet", h("p", {}, `bus ${head.fleet.bus}, lag ${duration(head.fleet.lag_ms)}`), table("Members", ["Member", "State", "Quotas"], rows));
}

/** Shows the view; returns a function that ends it. */
export function connectionsView(main) {
  const content = h("div", { class: "cards" });
  let shown = "";
  main.append(h("h2", {}, "Connections"), content);
  function update() {
    const { head } = state;
    if (!head.connections) return;
    const text = JSON.stringify([head.connections, head.brokers, head.latencies, head.workers, head.fleet, head.state.checks]);
    if (text === shown) return;
    shown = text;
    const { connections } = head;
    const open = `${connections.open} open; to brokers ${connections.upstream_connects} made, ${connections.upstream_connect_failures} failed`;
    const parts = [
      h("section", { class: "card wide" }, h("h2", {}, "Brokers"), brokers(head)),
      h("section", { class: "card wide" }, h("h2", {}, "Listeners"), h("p", {}, open), listeners(connections)),
      card("Closes by reason", closes(connections)),
      card("Logins", logins(connections)),
      card("Held addresses", addresses(connections)),
      card("Latency of brokers by API", latencies(head)),
      processes(head),
      fleet(head),
    ];
    content.replaceChildren(...parts.filter(Boolean));
  }
  const end = listen(update);
  update();
  return end;
}
