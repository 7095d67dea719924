// Requests to the admin port. The token is kept for this tab only, and sent in a header: it is never in an address or a cookie.

const KEY = "sluice-token";

/** A request without the right to it; the message is the proxy's own. */
export class DeniedError extends Error {}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

function headers(more = {}) {
  const known = token.get();
  return known ? { ...more, Authorization: `Bearer ${known}` } : more;
}

/** Sends a request; throws DeniedError, or an Error with the proxy's sentence. */
export async function open(path, options = {}) {
  const response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options, headers: headers(options.headers) });
  if (response.ok) return response;
  const text = (await response.text()).trim();
  if (response.status === 403) throw new DeniedError(text);
  throw new Error(sentence(text) || `the admin port answers ${response.status}`);
}

function sentence(text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text;
  }
}

/** Returns the content of a page. */
export const get = async (path, query = {}) => {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== "")).toString();
  return (await open(asked ? `${path}?${asked}` : path)).json();
};

/** Sends a change. */
export const post = async (path, body) =>
  (await open(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();
