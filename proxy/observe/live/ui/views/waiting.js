// Who is waiting now: worst first. Only the rows that are on the screen exist.

import { get } from "../api.js";
import { spark, sparkPath } from "../chart.js";
import { h, setText } from "../dom.js";
import { duration, kind, rate } from "../format.js";
import { listen, state } from "../stream.js";

const ROW_PX = 40;
const SPARE_ROWS = 4;
const ROWS_MAX = 100;
const POINTS_MS = 5000;
const kept = { tenant: "", user: "", client: "", broker: "", waiting: false };

/** Returns the address of the view of a group. */
export function groupLink(row) {
  const { broker, quota_type: type, tags } = state.fields;
  return `#/group/${[row[broker], row[type], JSON.stringify(row[tags])].map(encodeURIComponent).join("/")}`;
}

/** Returns a function that says whether a row passes the filters. */
function filter() {
  const { broker, tags, throttled_until_ms: until } = state.fields;
  const now = state.head.now_ms;
  const has = (text, part) => text.toLowerCase().includes(part);
  const [tenant, user, client] = [kept.tenant, kept.user, kept.client].map((text) => text.trim().toLowerCase());
  return (row) => {
    if (kept.waiting && row[until] <= now) return false;
    if (kept.broker && row[broker] !== kept.broker) return false;
    if (user && !has(decoded(row[tags].user ?? ""), user)) return false;
    if (client && !has(row[tags]["client-id"] ?? "", client)) return false;
    return !tenant || Object.entries(row[tags]).some(([tag, value]) => tag !== "user" && tag !== "client-id" && has(value, tenant));
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/** Returns the rows that pass, worst first: by time left, then by throttle time, then by use of the quota. */
function sorted() {
  const { bound, observed, throttled_until_ms: until, waited_ms_a_minute: waited } = state.fields;
  const now = state.head.now_ms;
  const found = [];
  const passes = filter();
  for (const row of state.groups.values()) {
    if (passes(row)) found.push([Math.max(0, row[until] - now), row[waited], row[bound] ? row[observed] / row[bound] : 0, row[0], row]);
  }
  return found.sort((a, b) => b[0] - a[0] || b[1] - a[1] || b[2] - a[2] || a[3] - b[3]).map((entry) => entry[4]);
}

class Row {
  constructor() {
    this.link = h("a", { class: "name", href: "#/waiting" });
    this.broker = h("span", { class: "broker" });
    this.fill = h("i");
    this.use = h("span", { class: "number" });
    this.bar = h("div", { class: "bar" }, this.fill, this.use);
    [this.spark, this.path] = spark();
    this.cells = ["kind", "left right number", "minute right number", "members right number"].map((name) => h("div", { role: "cell", class: name }));
    const [type, left, minute, members] = this.cells;
    this.element = h(
      "div",
      { class: "list-row", role: "row" },
      h("div", { role: "cell", class: "name" }, this.link, this.broker),
      type,
      h("div", { role: "cell" }, this.bar),
      h("div", { role: "cell", class: "sparkline" }, this.spark),
      left,
      minute,
      members,
    );
    this.element.addEventListener("click", () => (window.location.hash = this.link.hash));
    this.at = -1;
    this.group = null;
  }

  draw(row, at, points) {
    const { broker, quota_type: type, name, bound, observed, throttled_until_ms: until, waited_ms_a_minute: waited, connections } = state.fields;
    const left = Math.max(0, row[until] - state.head.now_ms);
    if (this.at !== at) {
      this.at = at;
      this.element.style.top = `${at * ROW_PX}px`;
      this.element.setAttribute("aria-rowindex", at + 2);
    }
    this.element.classList.toggle("waiting", left > 0);
    setText(this.link, row[name]);
    const href = groupLink(row);
    if (this.link.getAttribute("href") !== href) {
      this.link.setAttribute("href", href);
      this.link.title = row[name];
    }
    setText(this.broker, ` at ${row[broker]}`);
    const share = row[bound] ? row[observed] / row[bound] : 0;
    this.fill.style.width = `${Math.min(100, share * 100)}%`;
    this.bar.classList.toggle("over", share > 1);
    setText(this.use, row[bound] === null ? `${rate(row[observed], row[type])}, no quota` : `${rate(row[observed], row[type])} of ${rate(row[bound], row[type])}`);
    [kind(row[type]), left ? duration(left) : "–", duration(row[waited]), String(row[connections])].forEach((text, cell) => setText(this.cells[cell], text));
    const path = points ? sparkPath(points) : "";
    if (this.path.getAttribute("d") !== path) this.path.setAttribute("d", path);
  }
}

/** Shows the view; returns a function that ends it. */
export function waitingView(main) {
  const rows = [];
  const points = new Map();
  let order = [];
  let asked = 0;
  let timer = null;
  const space = h("div", { class: "list-space", role: "presentation" });
  const body = h("div", { class: "list-body", tabindex: 0, role: "rowgroup" }, space);
  const columns = ["Group", "Quota", "Rate of quota", "Last 5 min", "Time left", "Waits/min", "Members"];
  const listed = h(
    "div",
    { class: "list", role: "table", "aria-label": "Groups, worst first" },
    h("div", { role: "rowgroup" }, h("div", { class: "list-head", role: "row" }, columns.map((name, at) => h("div", { role: "columnheader", class: at > 3 ? "right" : null }, name)))),
    body,
  );
  const summary = h("p", { class: "soft", role: "status" });
  const { form, brokers } = filters(update);
  main.append(h("h2", {}, "Who is waiting now"), form, listed, summary);

  function update() {
    if (!state.head.mode) return;
    brokers();
    order = sorted();
    draw();
    const { throttled_until_ms: until } = state.fields;
    const waiting = order.reduce((count, row) => count + (row[until] > state.head.now_ms), 0);
    setText(summary, `${waiting} of ${order.length} groups wait${state.leftOut ? `; ${state.leftOut} groups that waited before all others are not shown` : ""}`);
    listed.setAttribute("aria-rowcount", order.length + 1);
  }

  function draw() {
    space.style.height = `${order.length * ROW_PX}px`;
    const first = Math.max(0, Math.floor(body.scrollTop / ROW_PX) - SPARE_ROWS);
    const count = Math.min(order.length - first, Math.ceil(body.clientHeight / ROW_PX) + 2 * SPARE_ROWS, ROWS_MAX);
    while (rows.length < count) {
      rows.push(new Row());
      space.append(rows.at(-1).element);
    }
    // A row stays that of its group when the order changes: otherwise a click on one group could open another.
    const shown = order.slice(first, first + Math.max(count, 0));
    const wanted = new Set(shown.map((data) => data[0]));
    const own = new Map(rows.filter((row) => wanted.has(row.group)).map((row) => [row.group, row]));
    const spare = rows.filter((row) => !wanted.has(row.group));
    while (rows.length > shown.length) {
      const row = spare.pop();
      rows.splice(rows.indexOf(row), 1);
      row.element.remove();
    }
    shown.forEach((data, at) => {
      const row = own.get(data[0]) ?? spare.pop();
      row.group = data[0];
      row.draw(data, first + at, points.get(data[0]));
    });
    if (Date.now() - asked >= POINTS_MS) askPoints(first, count);
  }

  async function askPoints(first, count) {
    asked = Date.now();
    const numbers = order.slice(first, first + count).map((row) => row[0]);
    if (!numbers.length) return;
    try {
      const page = await get("ui/points", { ids: numbers.join(",") });
      points.clear();
      for (const [number, found] of Object.entries(page.points)) points.set(Number(number), found);
    } catch {
      return; // the stream reports a lost connection
    }
  }

  body.addEventListener("scroll", () => {
    draw();
    clearTimeout(timer);
    timer = setTimeout(() => (asked = 0), 200);
  });
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = rows.findIndex((row) => row.link === document.activeElement);
    const next = at < 0 ? rows.find((row) => row.at * ROW_PX >= body.scrollTop) : rows.find((row) => row.at === rows[at].at + step);
    next?.link.focus();
  });
  const end = listen(update);
  window.addEventListener("resize", draw);
  update();
  return () => {
    end();
    window.removeEventListener("resize", draw);
    clearTimeout(timer);
  };
}

function filters(update) {
  const field = (name, label) => {
    const input = h("input", { type: "search", value: kept[name], id: `filter-${name}`, autocomplete: "off" });
    input.addEventListener("input", () => {
      kept[name] = input.value;
      update();
    });
    return h("label", { for: `filter-${name}` }, label, input);
  };
  const broker = h("select", { id: "filter-broker" }, h("option", { value: "" }, "all"));
  broker.addEventListener("change", () => {
    kept.broker = broker.value;
    update();
  });
  const waiting = h("input", { type: "checkbox", id: "filter-waiting" });
  waiting.checked = kept.waiting;
  waiting.addEventListener("change", () => {
    kept.waiting = waiting.checked;
    update();
  });
  const form = h(
    "form",
    { class: "row", role: "search", "aria-label": "Filter", on: { submit: (event) => event.preventDefault() } },
    field("tenant", "Tenant"),
    field("user", "User"),
    field("client", "Client id"),
    h("label", { for: "filter-broker" }, "Broker", broker),
    h("label", { for: "filter-waiting" }, "Waiting only", waiting),
  );
  let known = "";
  const brokers = () => {
    const names = (state.head.brokers ?? []).map((one) => one.broker);
    if (names.join("\n") === known) return;
    known = names.join("\n");
    broker.replaceChildren(h("option", { value: "" }, "all"), ...names.map((name) => h("option", { value: name }, name)));
    broker.value = names.includes(kept.broker) ? kept.broker : (kept.broker = "");
  };
  return { form, brokers };
}
