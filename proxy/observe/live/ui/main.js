// Starts the page: views by the part of the address after #, the header, and the question for a token.

import { token } from "./api.js";
import { h } from "./dom.js";
import { drawHead } from "./head.js";
import { follow, listen, state } from "./stream.js";
import { changesView } from "./views/changes.js";
import { connectionsView } from "./views/connections.js";
import { groupView } from "./views/group.js";
import { waitingView } from "./views/waiting.js";
import { whyView } from "./views/why.js";

const VIEWS = { waiting: waitingView, group: groupView, why: whyView, connections: connectionsView, changes: changesView };
const main = document.getElementById("main");
let leave = () => {};
let shown = null;

function route() {
  const [, name = "waiting", ...rest] = window.location.hash.split("/");
  return { name: name in VIEWS ? name : "waiting", argument: rest.map(decodeURIComponent).join("/") };
}

function draw() {
  if (state.link === "denied") return ask();
  const { name, argument } = route();
  leave();
  shown = name;
  main.replaceChildren();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave = VIEWS[name](main, argument) ?? (() => {});
}

function ask() {
  if (shown === "token") return;
  leave();
  leave = () => {};
  shown = "token";
  const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = h(
    "form",
    { class: "card overlay", "aria-label": "Token" },
    h("h2", {}, "A token is needed"),
    h("p", { class: "problem", role: "alert" }, state.problem),
    h("p", {}, "The page asks once, and keeps the token until this tab is closed."),
    h("label", { for: "token" }, "Token of [[admin.tokens]]"),
    h("div", { class: "row" }, input, h("button", { class: "main" }, "Show")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    shown = null;
    state.link = "connecting";
    draw();
    follow();
  });
  main.replaceChildren(form);
  input.focus();
}

listen(() => {
  drawHead();
  if (state.link === "denied") ask();
});
window.addEventListener("hashchange", () => {
  draw();
  main.focus({ preventScroll: true });
});
draw();
drawHead();
follow();
