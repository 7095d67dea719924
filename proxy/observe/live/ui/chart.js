// Charts as SVG: the small one of a list, and fifteen minutes of one group.

import { h, s } from "./dom.js";
import { duration, rate } from "./format.js";

const SPARK = { width: 110, height: 28, points: 60 };
const CHART = { width: 860, height: 250, left: 76, right: 12, top: 14, bottom: 34, points: 180 };

/** Returns the path of a small chart; the newest point is at the right. */
export function sparkPath(points) {
  const rates = points.slice(-SPARK.points).map(([value]) => value);
  const most = Math.max(...rates.map((value) => value ?? 0), 1e-9);
  const begin = SPARK.points - rates.length;
  return line(rates, (at) => ((begin + at) * SPARK.width) / (SPARK.points - 1), (value) => SPARK.height - 2 - (value / most) * (SPARK.height - 5));
}

/** Returns an empty small chart; `setAttribute("d", sparkPath(...))` of its path draws it. */
export function spark() {
  const path = s("path", { d: "" });
  return [s("svg", { class: "spark", width: SPARK.width, height: SPARK.height, "aria-hidden": "true" }, path), path];
}

function line(values, x, y) {
  let text = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    text += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return text;
}

/** Returns the chart of a group: its rate, its bound, its waits, and the window over which the rate is measured. */
export function groupChart(page) {
  const { width, height, left, right, top, bottom } = CHART;
  const span = CHART.points * page.point_ms;
  const points = page.points;
  const age = Math.max(0, page.now_ms - (page.last_point_ms ?? page.now_ms));
  const x = (ms) => width - right - (ms / span) * (width - left - right);
  const at = (index) => x(age + (points.length - 1 - index) * page.point_ms);
  const most = Math.max(page.bound ?? 0, page.observed ?? 0, ...points.map(([value]) => value ?? 0), ...points.map(([, bound]) => bound ?? 0), 1e-9) * 1.1;
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const rates = points.map(([value]) => value);
  const path = line(rates, at, y);
  const known = rates.map((value, index) => [value, index]).filter(([value]) => value !== null);
  const area = known.length > 1 ? `${line(known.map(([value]) => value), (index) => at(known[index][1]), y)}L${at(known.at(-1)[1]).toFixed(1)} ${y(0)}L${at(known[0][1]).toFixed(1)} ${y(0)}Z` : "";
  const minutes = [15, 10, 5, 0];
  const most_ms = Math.max(...points.map(([, , waited]) => waited ?? 0), page.point_ms);
  const label = `Rate of ${page.name} in the last 15 minutes: now ${rate(page.observed, page.quota_type)} of ${rate(page.bound, page.quota_type)}`;
  const window_x = x(Math.min(page.window_ms, span));
  return h(
    "figure",
    { class: "figure" },
    s(
      "svg",
      { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      [0, 0.5, 1].map((share) => [
        s("line", { class: "grid", x1: left, x2: width - right, y1: y((share * most) / 1.1), y2: y((share * most) / 1.1) }),
        s("text", { x: left - 8, y: y((share * most) / 1.1) + 4, "text-anchor": "end" }, rate((share * most) / 1.1, page.quota_type)),
      ]),
      minutes.map((minute) => s("text", { x: x(minute * 60000), y: height - 12, "text-anchor": minute === 0 ? "end" : "middle" }, minute === 0 ? "now" : `-${minute} min`)),
      s("rect", { class: "window", x: window_x, width: Math.max(2, width - right - window_x), y: top, height: height - top - bottom }),
      s("text", { class: "window-name", x: window_x - 5, y: top + 12, "text-anchor": "end" }, `window of ${duration(page.window_ms)}`),
      points.map(([, , waited], index) =>
        waited ? s("rect", { class: "waited", x: at(index) - 2, width: 3, y: height - bottom - (waited / most_ms) * 26, height: (waited / most_ms) * 26 }) : null,
      ),
      area && s("path", { class: "area", d: area }),
      s("path", { class: "rate", d: path }),
      page.bound !== null && s("path", { class: "bound", d: boundPath(points, page, at, x, y) }),
      page.bound !== null && s("text", { class: "bound-name", x: left + 6, y: y(page.bound) - 6 }, `quota ${rate(page.bound, page.quota_type)}`),
    ),
    h("figcaption", { class: "soft" }, "Line: rate. Dashed: quota. Bars at the bottom: throttle time of each 5 s. The coloured field is the window over which the rate is measured now."),
  );
}

function boundPath(points, page, at, x, y) {
  const bounds = points.map(([, bound]) => bound);
  return bounds.some((bound) => bound !== null) ? line([...bounds, page.bound], (index) => (index < points.length ? at(index) : x(0)), y) : `M${x(CHART.points * page.point_ms)} ${y(page.bound)}L${x(0)} ${y(page.bound)}`;
}
