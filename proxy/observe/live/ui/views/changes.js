// The history of changes, and, with a token that may write, changes of quotas and switches.

import { get, post } from "../api.js";
import { card, h, table } from "../dom.js";
import { duration, entityName, number, pacingCommand, quotaCommand, switchCommand } from "../format.js";
import { listen, state } from "../stream.js";

const LINES = 100;
const KEYS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const MODES = ["enforce", "observe", "off", "default"];
const UNSAFE = "A switch changes no quota, so a what-if cannot tell what it would have meant.";

function what(line) {
  if (line.event === "changed") return [`${entityName(line.entity)}: ${line.key}`, h("span", {}, h("del", { class: "bad" }, number(line.old)), " → ", h("ins", { class: "good" }, number(line.new))), h("code", {}, quotaCommand(line.entity, line.key, line.new))];
  if (line.event === "switched" || line.event === "paced") {
    const [word, command] = line.event === "paced" ? ["pacing", pacingCommand] : ["switch", switchCommand];
    return [`${word} ${line.target}`, h("span", {}, h("del", { class: "bad" }, line.old ?? "none"), " → ", h("ins", { class: "good" }, line.new ?? "none")), h("code", {}, command(line.target, line.new))];
  }
  if (line.event === "denied") return ["denied", line.what, ""];
  if (line.event === "failed") return ["failed", line.problem, ""];
  return null;
}

function history(lines) {
  const rows = [];
  for (const line of lines) {
    const cells = what(line);
    if (cells) rows.push([String(line.seq), line.time.slice(0, 19).replace("T", " "), line.principal ?? line.way ?? "outside", ...cells]);
  }
  return rows.length ? table("Changes, the newest first", ["Line", "Time (UTC)", "Who", "What", "Difference", "Command"], rows) : h("p", {}, "Nothing was changed since the audit log began.");
}

const labelled = (id, text, input) => h("label", { for: id }, text, input);
const choice = (id, values, chosen) => h("select", { id }, values.map((value) => h("option", { value, selected: value === chosen }, value)));

/** Returns the entity of a form: an empty name is left out, and <default> is the default entity. */
function entityOf(inputs) {
  const entries = Object.entries(inputs).map(([type, input]) => [type, input.value.trim()]).filter(([, name]) => name !== "");
  return Object.fromEntries(entries.map(([type, name]) => [type, name === "<default>" ? null : name]));
}

/** Returns the value of a quota; null deletes it. */
function valueOf(text) {
  const value = Number(text);
  if (text.trim() === "") return null;
  if (!Number.isFinite(value)) throw new Error(`“${text}” is not a number; write units per second, such as 2000000`);
  return value;
}

function effectLines(answer) {
  if (!answer.effect) return [h("p", { class: "note" }, `What it would have meant is not known: ${answer.reason}.`)];
  const { effect } = answer;
  const span = `${number(effect.decisions)} decisions of ${duration(effect.last_ts_ms - effect.first_ts_ms)}`;
  const rows = effect.groups.map((one) => [one.group, one.quota_type, `${number(one.throttled_today)} → ${number(one.throttled)}`, `${duration(one.wait_ms_today)} → ${duration(one.wait_ms)}`, one.note]);
  return [
    h("p", { id: "effect" }, `On ${span}: ${number(effect.throttled_today)} → ${number(effect.throttled)} throttled requests, waits ${duration(effect.wait_ms_today)} → ${duration(effect.wait_ms)}; ${effect.changed_count} of ${effect.group_count} groups change.`),
    h("p", { class: "soft" }, effect.means),
    rows.length ? table("What it would have meant", ["Group", "Quota", "Throttled", "Waits", "Note"], rows) : null,
  ];
}

function refusals(page) {
  const refused = page.results.filter((result) => result.error_code !== 0);
  if (refused.length) throw new Error(refused.map((result) => `${entityName(result.entity)}: ${result.error}`).join("; "));
}

/** Returns a form that first shows what a change means, and then makes it. */
function changeForm(label, fields, { prepare, apply }) {
  const preview = h("div", { role: "status", class: "preview" });
  const show = h("button", { class: "main" }, "Show what it means");
  const form = h("form", { "aria-label": label }, h("div", { class: "row" }, fields, show), preview);
  const fail = (error) => preview.replaceChildren(h("p", { class: "problem" }, error.message));
  form.addEventListener("input", () => preview.replaceChildren());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    show.disabled = true;
    preview.replaceChildren(h("p", {}, "Computing; this takes up to a minute"));
    try {
      const { parts, change } = await prepare();
      const button = h("button", { type: "button", class: "main apply" }, "Apply");
      button.addEventListener("click", async () => {
        button.disabled = true;
        try {
          await apply(change);
          preview.replaceChildren(h("p", { class: "good" }, "Done: it is in force from the next request on."));
        } catch (error) {
          fail(error);
        }
      });
      preview.replaceChildren(...[...parts, button].flat().filter(Boolean));
    } catch (error) {
      fail(error);
    } finally {
      show.disabled = false;
    }
  });
  return form;
}

function quotaForm(known, reload) {
  const inputs = Object.fromEntries(["user", "client-id", "ip"].map((type) => [type, h("input", { id: `entity-${type}`, value: shownName(known.entity, type), autocomplete: "off", spellcheck: "false" })]));
  const key = choice("quota-key", KEYS, known.key);
  const value = h("input", { id: "quota-value", inputmode: "decimal", autocomplete: "off" });
  const fields = [labelled("entity-user", "User", inputs.user), labelled("entity-client-id", "Client id", inputs["client-id"]), labelled("entity-ip", "IP address", inputs.ip), labelled("quota-key", "Quota", key), labelled("quota-value", "Units per second (empty: delete)", value)];
  return changeForm("Change a quota", fields, {
    prepare: async () => {
      const entity = entityOf(inputs);
      const after = valueOf(value.value);
      const entries = [{ entity, ops: { [key.value]: after } }];
      refusals(await post("admin/quotas", { entries, validate_only: true }));
      const answer = await post("ui/what-if", { entries });
      const stored = (await get("admin/quotas")).quotas.find((one) => entityName(sortedEntity(one.entity)) === entityName(sortedEntity(entity)));
      const before = stored?.values[key.value] ?? null;
      const difference = h("p", {}, `${entityName(entity)}: ${key.value} `, h("del", { class: "bad" }, number(before)), " → ", h("ins", { class: "good" }, number(after)));
      return { parts: [difference, h("pre", {}, quotaCommand(entity, key.value, after)), effectLines(answer)], change: entries };
    },
    apply: async (entries) => {
      refusals(await post("admin/quotas", { entries }));
      await reload();
    },
  });
}

const sortedEntity = (entity) => Object.fromEntries(Object.entries(entity).sort());

function shownName(entity, type) {
  if (!entity || !(type in entity)) return "";
  return entity[type] === null ? "<default>" : entity[type];
}

function switchForm(reload) {
  const target = h("input", { id: "switch-target", value: "all", autocomplete: "off", spellcheck: "false" });
  const mode = choice("switch-mode", MODES, "observe");
  return changeForm("Change a switch", [labelled("switch-target", "all, listener:NAME or entity:user=NAME", target), labelled("switch-mode", "Mode", mode)], {
    prepare: async () => {
      const change = { target: target.value.trim(), mode: mode.value === "default" ? null : mode.value };
      const before = state.head.switches[change.target] ?? "none";
      const difference = h("p", {}, `${change.target}: `, h("del", { class: "bad" }, before), " → ", h("ins", { class: "good" }, change.mode ?? "none"));
      return { parts: [difference, h("pre", {}, switchCommand(change.target, change.mode)), h("p", { class: "note" }, UNSAFE)], change };
    },
    apply: async (change) => {
      await post("admin/switches", change);
      await reload();
    },
  });
}

function read(argument) {
  try {
    return argument ? JSON.parse(argument) : {};
  } catch {
    return {};
  }
}

/** Shows the view; returns a function that ends it. */
export function changesView(main, argument) {
  const lines = h("div", {});
  const forms = h("div", { class: "cards" });
  let offered = null;
  main.append(h("h2", {}, "Changes"), forms, h("section", { class: "card" }, h("h2", {}, "History"), lines));

  async function reload() {
    try {
      lines.replaceChildren(history((await get("admin/history", { limit: LINES })).lines));
    } catch (error) {
      lines.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }

  function offer() {
    if (offered === state.canWrite) return;
    offered = state.canWrite;
    forms.replaceChildren(
      ...(offered
        ? [card("Change a quota", quotaForm(read(argument), reload)), card("Change a switch", switchForm(reload))]
        : [card("Read only", h("p", {}, 'Changes need a token with role = "write" ([[admin.tokens]]).'))]),
    );
  }

  const end = listen(offer);
  offer();
  reload();
  return end;
}
