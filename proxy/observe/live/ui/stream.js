// The state of the proxy as its events describe it: read with fetch, since an EventSource sends no Authorization header.

import { DeniedError, get, open } from "./api.js";

const WAIT_MS = [500, 1000, 2000, 5000];
const SILENT_MS = 10000;

/** Everything that views show; `groups` are arrays of [number, texts..., numbers...] by number. */
export const state = { head: {}, groups: new Map(), fields: {}, leftOut: 0, link: "connecting", problem: "", canWrite: false, version: 0 };

const listeners = new Set();
let running = null;

/** Calls a function after each change of the state; returns a function that ends this. */
export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

function changed() {
  for (const call of [...listeners]) call();
}

function link(name, problem = "") {
  state.link = name;
  state.problem = problem;
  changed();
}

function apply(name, data) {
  if (name === "everything") {
    state.head = {};
    state.groups = new Map();
    state.fields = Object.fromEntries(data.fields.map((field, at) => [field, at + 1]));
  }
  Object.assign(state.head, data.head);
  state.leftOut = data.groups_left_out;
  for (const row of data.groups ?? data.added) state.groups.set(row[0], row);
  const first = state.fields.bound;
  for (const [number, ...numbers] of data.changed ?? []) {
    const row = state.groups.get(number);
    for (let at = 0; at < numbers.length; at++) row[first + at] = numbers[at];
  }
  for (const number of data.removed ?? []) state.groups.delete(number);
  state.version += 1;
}

async function read(signal) {
  const response = await open("ui/events", { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = [];
  for (;;) {
    const timer = setTimeout(() => reader.cancel("silent"), SILENT_MS);
    const { done, value } = await reader.read();
    clearTimeout(timer);
    if (done) throw new Error("the proxy ended the connection");
    kept.push(value);
    if (!value.includes("\n\n") && !(value.startsWith("\n") && kept.length > 1)) continue;
    const events = kept.join("").split("\n\n");
    kept = [events.pop()];
    for (const event of events) {
      const [first, second] = event.split("\n");
      apply(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
    }
    if (events.length) link("live");
  }
}

/** Follows the proxy until `stop` or until it denies access; a lost connection is made again. */
export async function follow() {
  stop();
  const control = (running = new AbortController());
  for (let failures = 0; !control.signal.aborted; ) {
    const version = state.version;
    try {
      const session = await get("ui/session");
      state.canWrite = session.can_write;
      await read(control.signal);
    } catch (error) {
      if (control.signal.aborted) return;
      if (error instanceof DeniedError) return link("denied", error.message);
      failures = state.version > version ? 0 : failures + 1;
      link("lost", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS[Math.min(failures, WAIT_MS.length - 1)]));
  }
}

/** Stops following. */
export function stop() {
  running?.abort();
  running = null;
}
