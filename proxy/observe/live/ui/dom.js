// Builds elements. Texts become text nodes only, since names of groups come from clients.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Returns an HTML element; children are elements or texts. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Returns an SVG element. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Sets the text of an element if it differs, so that nothing is laid out again without a reason. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Returns a table with a caption for screen readers. Cells are texts, elements, or [content, class]. */
export function table(caption, columns, rows, { rowClass = () => null, tableClass = null } = {}) {
  const cell = (content) => (Array.isArray(content) ? h("td", { class: content[1] }, content[0]) : h("td", {}, content));
  return h(
    "table",
    { "aria-label": caption, class: tableClass },
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.startsWith("#") ? "right" : null }, column.replace(/^#/, ""))))),
    h("tbody", {}, rows.map((row) => h("tr", { class: rowClass(row) }, row.map((content) => cell(content))))),
  );
}

/** Returns a card with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), children);
}
