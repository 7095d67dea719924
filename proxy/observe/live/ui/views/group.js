// One group: its chart, the levels of precedence with the winner, its last verdicts, who shares it, and who set its quota.

import { get } from "../api.js";
import { groupChart } from "../chart.js";
import { card, h, table } from "../dom.js";
import { duration, entityName, kind, number, quotaCommand, rate } from "../format.js";
import { listen, state } from "../stream.js";

const AGAIN_MS = 2000;

/** Returns the number of the group that an address names, or null. */
function numberOf(argument) {
  const [broker, type, ...rest] = argument.split("/");
  const tags = rest.join("/");
  const { broker: at, quota_type: of, tags: by } = state.fields;
  for (const row of state.groups.values()) if (row[at] === broker && row[of] === type && JSON.stringify(row[by]) === tags) return row[0];
  return null;
}

/** Returns the arithmetic of a verdict with its numbers. */
export function arithmetic(verdict, quotaType) {
  const { observed: o, bound: t, window_ms: w, throttle_ms: wait } = verdict;
  if (quotaType === "ControllerMutation") return `-O / T = ${number(-o)} / ${number(t)} per s = ${number(wait)} ms`;
  const exact = typeof o === "number" && typeof t === "number" ? ((o - t) / t) * w : null;
  const capped = exact !== null && Math.abs(exact - wait) > 1 ? ` = ${number(Math.round(exact))} ms, limited to ${number(wait)} ms` : ` = ${number(wait)} ms`;
  return `(O - T) / T x W = (${number(o)} - ${number(t)}) / ${number(t)} x ${number(w)} ms${capped}`;
}

const since = (page, timeMs) => (timeMs > page.now_ms ? "now" : `${duration(page.now_ms - timeMs)} ago`);

function schedule({ lead_ms: lead, burst_ms: burst, waiting }) {
  const requests = waiting === 1 ? "1 request waits" : `${number(waiting)} requests wait`;
  const next = lead > burst ? `the next request passes in ${duration(lead - burst)}` : "the next request passes at once";
  return [
    h("p", {}, `The schedule is ${duration(lead)} ahead of the clock: ${next}; ${requests}.`),
    h("p", { class: "soft" }, `A request passes while the schedule is at most the burst of ${duration(burst)} ahead. It moves the schedule on by its amount / quota.`),
  ];
}

function verdicts(page) {
  const newest = [...page.verdicts].reverse();
  if (!newest.length) return h("p", {}, "This group has never waited.");
  const rows = newest.map((verdict) => [since(page, verdict.time_ms), h("code", {}, arithmetic(verdict, page.quota_type)), [duration(verdict.throttle_ms), "right"]]);
  return table("Last verdicts", ["When", "Arithmetic", "#Throttle time"], rows);
}

function levels(page) {
  if (!page.levels.length) return h("p", {}, `The rule is ${page.rule}: no levels of precedence decide.`);
  const winner = page.levels.find((level) => level.wins);
  const rows = page.levels.map((level) => [entityName(level.entity), [level.value === null ? "–" : rate(level.value, page.quota_type), "right"], level.wins ? "applies" : ""]);
  return [
    table(`Levels of precedence of ${page.key}`, ["Level", `#${page.key}`, ""], rows, { rowClass: (row) => (row[2] ? "wins" : null), tableClass: "levels" }),
    winner ? h("pre", {}, quotaCommand(winner.entity, page.key, winner.value)) : h("p", {}, "No level has a value: the group is not limited by a stored quota."),
  ];
}

function setBy(page) {
  const line = page.set_by;
  if (!line) return h("p", { class: "soft" }, "The history has no line about this quota: it came with the store.");
  const text = `${line.time.slice(0, 19).replace("T", " ")} UTC, ${line.principal ?? line.way ?? "outside"}: ${number(line.old)} → ${number(line.new)} (line ${line.seq})`;
  return h("p", {}, text);
}

function members(page) {
  const { connections, clients, named } = page.members;
  const rows = named.map((one) => [one.principal, one.client_id, [String(one.connections), "right"]]);
  const more = clients > named.length ? h("p", { class: "soft" }, `and ${clients - named.length} more`) : null;
  return [h("p", {}, `${connections} connections of ${clients} clients`), rows.length ? table("Clients", ["User", "Client id", "#Connections"], rows) : null, more];
}

function status(page) {
  const left = page.throttled_until_ms - page.now_ms;
  const use = `${rate(page.observed, page.quota_type)} of ${page.bound === null ? "no quota" : rate(page.bound, page.quota_type)}`;
  const wait = left > 0 ? h("strong", { class: "wait" }, `waits ${duration(left)} more`) : "does not wait";
  return h("p", { class: "big" }, `${kind(page.quota_type)} at ${page.broker}: ${use}; `, wait, `; throttled ${page.throttle_count} times for ${duration(page.throttle_ms_total)} in all`);
}

/** Shows the view; returns a function that ends it. */
export function groupView(main, argument) {
  let asked = 0;
  let busy = false;
  let shown = "";
  const title = h("h2", {}, "Group");
  const content = h("div", { class: "cards" });
  const note = h("p", { class: "note", role: "status" }, "Loading");
  main.append(h("p", {}, h("a", { href: "#/waiting" }, "← all groups")), title, note, content);

  async function update() {
    if (busy || Date.now() - asked < AGAIN_MS || state.link !== "live") return;
    const id = numberOf(argument);
    if (id === null) {
      note.textContent = "The proxy has no such group now. It forgets a group that nobody uses.";
      return;
    }
    busy = true;
    asked = Date.now();
    try {
      const page = await get("ui/group", { id });
      draw(page);
    } catch (error) {
      note.textContent = error.message;
    } finally {
      busy = false;
    }
  }

  function draw(page) {
    title.textContent = page.name;
    note.replaceChildren(status(page));
    const chart = h("section", { class: "card wide" }, h("h2", {}, "15 minutes"), groupChart(page));
    const rest = JSON.stringify([page.verdicts, page.paced, page.levels, page.members, page.set_by]);
    if (rest === shown) {
      content.firstElementChild.replaceWith(chart);
      return;
    }
    shown = rest;
    const parent = page.parent ? h("p", {}, `A part of ${entityName(page.parent)}`) : null;
    const judged = page.paced
      ? [h("h2", {}, "Schedule"), ...schedule(page.paced)]
      : [h("h2", {}, "Last verdicts"), h("p", { class: "soft" }, "O: rate that was measured. T: quota. W: window."), verdicts(page)];
    content.replaceChildren(
      chart,
      h("section", { class: "card wide" }, ...judged),
      card("Which quota applies", parent, levels(page)),
      card("Who shares it", members(page)),
      card("Who set it", setBy(page), changeLink(page)),
    );
  }

  const end = listen(update);
  update();
  return end;
}

function changeLink(page) {
  const winner = page.levels.find((level) => level.wins);
  if (!state.canWrite || !winner) return null;
  return h("p", {}, h("a", { href: `#/changes/${encodeURIComponent(JSON.stringify({ entity: winner.entity, key: page.key }))}` }, "Change this quota"));
}
