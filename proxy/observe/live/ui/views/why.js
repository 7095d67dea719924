// "Why is my client slow?": one sentence with numbers, from what /explain says.

import { get } from "../api.js";
import { card, h, table } from "../dom.js";
import { duration, entityName, number, rate } from "../format.js";
import { arithmetic } from "./group.js";

const TYPES = {
  producer_byte_rate: "Produce",
  consumer_byte_rate: "Fetch",
  request_percentage: "Request",
  controller_mutation_rate: "ControllerMutation",
};
const kept = { user: "", "client-id": "", address: "" };

function who(asked) {
  const parts = [asked.user && `user ${asked.user}`, asked["client-id"] && `client id ${asked["client-id"]}`, asked.address && `address ${asked.address}`];
  return parts.filter(Boolean).join(", ");
}

/** Returns [quota, group] of the group that delays most: by the time left, then by the use of its quota. */
function worst(page) {
  const all = page.quotas.flatMap((quota) => (quota.groups ?? []).map((group) => [quota, group]));
  const share = (group) => (group.bound ? group.observed / group.bound : 0);
  return all.sort(([, a], [, b]) => b.throttled_for_ms - a.throttled_for_ms || share(b) - share(a))[0];
}

const tagsName = (tags) => Object.entries(tags).filter(([, value]) => value).map(([tag, value]) => `${tag}=${value}`).join(",") || "everyone";

/** Returns the sentence. */
export function sentence(page, asked) {
  if (page.exempt) return `No quota delays ${who(asked)}: the user is exempt.`;
  if (page.switch === "off") return `No quota delays ${who(asked)}: a switch turns quotas off for it.`;
  const found = worst(page);
  if (!found) return `No quota delays ${who(asked)}: no group of it is in use, since it sent nothing lately or has no quota.`;
  const [quota, group] = found;
  const type = TYPES[quota.key];
  const use = `its group ${tagsName(group.tags)} at broker ${group.broker} uses ${rate(group.observed, type)} of ${group.bound === null ? "no quota" : rate(group.bound, type)}`;
  const verdict = group.last_verdict;
  const then = verdict ? `its group ${tagsName(group.tags)} at broker ${group.broker} had used ${rate(verdict.observed, type)} of ${rate(verdict.bound, type)} with its last request` : use;
  const shared = `shared by ${group.shared_by.connections} connections of ${group.shared_by.clients} clients`;
  const observes = page.mode === "observe" || page.switch === "observe";
  if (group.throttled_for_ms > 0 && observes) return `Sluice only observes: ${who(asked)} would wait ${duration(group.throttled_for_ms)} more, since ${type === "ControllerMutation" ? use : then} (${quota.key}), ${shared}.`;
  if (group.throttled_for_ms > 0) return `${who(asked)} waits ${duration(group.throttled_for_ms)} more, since ${type === "ControllerMutation" ? use : then} (${quota.key}), ${shared}.`;
  const before = group.throttle_count ? `it was throttled ${number(group.throttle_count)} times before` : "it was never throttled";
  return `No quota delays ${who(asked)} now: ${use}, and ${before}. If it is slow, look at the latencies of brokers in “Connections”.`;
}

function addressSentence(page, address) {
  const [quota] = page.quotas;
  const rates = quota.rates ?? [];
  const fastest = [...rates].sort((a, b) => b.rate - a.rate)[0];
  if (!fastest) return `Address ${address} has opened no connection lately.`;
  const over = fastest.rate > fastest.bound ? "so further connections are held" : "so none is held";
  return `Address ${address} opens ${number(Math.round(fastest.rate * 100) / 100)} connections a second of ${number(fastest.bound)}, ${over}; ${fastest.connections} are open.`;
}

function details(page) {
  return page.quotas.map((quota) => {
    const rows = quota.precedence.map((level) => [entityName(level.entity), [level.value === null ? "–" : number(level.value), "right"], level.wins ? "applies" : ""]);
    const lines = (quota.groups ?? []).map((group) => h("p", {}, `${tagsName(group.tags)} at ${group.broker}: ${rate(group.observed, TYPES[quota.key])} of ${rate(group.bound, TYPES[quota.key])}`, group.last_verdict && h("pre", {}, arithmetic(group.last_verdict, TYPES[quota.key]))));
    return card(quota.key, table(`Levels of precedence of ${quota.key}`, ["Level", "#Value", ""], rows, { rowClass: (row) => (row[2] ? "wins" : null), tableClass: "levels" }), lines);
  });
}

/** Shows the view. */
export function whyView(main) {
  const answer = h("p", { class: "big", role: "status", id: "answer" });
  const more = h("div", { class: "cards" });
  const field = (name, label) => {
    const input = h("input", { id: `why-${name}`, value: kept[name], autocomplete: "off", spellcheck: "false" });
    input.addEventListener("input", () => (kept[name] = input.value.trim()));
    return h("label", { for: `why-${name}` }, label, input);
  };
  const form = h("form", { class: "row", "aria-label": "Client" }, field("user", "User"), field("client-id", "Client id"), field("address", "IP address"), h("button", { class: "main" }, "Explain"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    more.replaceChildren();
    const asked = { ...kept };
    try {
      const onlyAddress = asked.address && !asked.user && !asked["client-id"];
      const page = await get("explain", onlyAddress ? { ip: asked.address } : asked);
      const texts = [onlyAddress ? addressSentence(page, asked.address) : sentence(page, asked)];
      if (asked.address && !onlyAddress) texts.push(addressSentence(await get("explain", { ip: asked.address }), asked.address));
      answer.textContent = texts.join(" ");
      more.replaceChildren(...details(page));
    } catch (error) {
      answer.textContent = error.message;
    }
  });
  main.append(h("h2", {}, "Why is my client slow?"), h("p", { class: "soft" }, "A client without a login has the user ANONYMOUS. Leave a field empty that you do not know."), form, answer, more);
}
