// Calls of the HTTP API. Paths are relative to /v1: get("sessions", {limit: 50}). Errors are ApiError.
import { signal } from "./vendor/preact.js";
import { load, save } from "./storage.js";

/** Whether this browser has a login that the server has not refused. */
export const loggedIn = signal(load("secret") !== "");
/** Why the login ended, for the login screen. */
export const loginProblem = signal("");

export class ApiError extends Error {
  /** @param {number} status 0: the server could not be reached. @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
  }
}

/** @typedef {Record<string, string | number | boolean | undefined | null>} Params */

/** @param {string} path @param {Params} [params] @returns {string} The address, relative to the page's folder. */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `v1/${path.replace(/^\/?(v1\/)?/, "")}${text ? `?${text}` : ""}`;
}

/** @param {Response} response @returns {Promise<ApiError>} */
async function problemOf(response) {
  /** @type {{detail?: string, title?: string, code?: string}} */
  let body = {};
  try {
    body = await response.json();
  } catch {
    // an answer of a proxy
  }
  const message = body.detail || body.title || `The server replied with status ${response.status}.`;
  return new ApiError(response.status, body.code || "", message);
}

/**
 * Send a request with this browser's half of the login. Rejects with ApiError unless the status is 2xx.
 * @param {string} url @param {RequestInit} [options] @returns {Promise<Response>}
 */
export async function send(url, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("X-Alipes-Page", load("secret"));
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached. Check that `alipes serve` is running.");
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (response.status === 401) endLogin(problem.message);
  throw problem;
}

/** @param {string} method @param {string} path @param {any} body @param {{key?: string}} [options] @returns {Promise<any>} */
async function call(method, path, body, { key } = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key) headers["idempotency-key"] = key;
  const response = await send(address(path), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (response.status === 204) return null;
  const type = response.headers.get("content-type") || "";
  return type.includes("json") ? response.json() : response.text();
}

/**
 * @param {string} path @param {Params} [params] @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>} The JSON, or the text of another type.
 */
export async function get(path, params, options) {
  const response = await send(address(path, params), options);
  if (response.status === 204) return null;
  return (response.headers.get("content-type") || "").includes("json") ? response.json() : response.text();
}

/** @param {string} path @param {Params} [params] @returns {Promise<string>} */
export const text = async (path, params) => (await send(address(path, params))).text();
/** @param {string} path @param {any} [body] @param {{key?: string}} [options] `key`: Idempotency-Key. */
export const post = (path, body, options) => call("POST", path, body, options);
/** @param {string} path @param {any} body */
export const patch = (path, body) => call("PATCH", path, body);
/** @param {string} path @param {any} body */
export const put = (path, body) => call("PUT", path, body);
/** @param {string} path */
export const del = (path) => call("DELETE", path, undefined);

/** @param {File} file @returns {Promise<{id: string, name: string, type: string, size: number}>} */
export async function upload(file) {
  const headers = { "content-type": file.type || "application/octet-stream" };
  return (await send(address("uploads", { name: file.name }), { method: "POST", headers, body: file })).json();
}

/** @param {string} path @param {Params} [params] @returns {Promise<Blob>} */
export async function fetchBlob(path, params) {
  return (await send(address(path, params))).blob();
}

/** Save the answer of a GET as a file. @param {string} path @param {string} name @param {Params} [params] */
export async function download(path, name, params) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await fetchBlob(path, params));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Exchange the code of a login link. Rejects with ApiError. @param {string} code */
export async function login(code) {
  const headers = { "content-type": "application/json" };
  const response = await fetch("page/login", { method: "POST", headers, body: JSON.stringify({ code }) }).catch(() => null);
  if (!response) throw new ApiError(0, "unreachable", "The server cannot be reached. Check that `alipes serve` is running.");
  if (!response.ok) throw await problemOf(response);
  const { secret } = await response.json();
  if (!save("secret", secret)) throw new ApiError(0, "storage", "This browser does not allow the page to store its login.");
  loginProblem.value = "";
  loggedIn.value = true;
}

/** @param {string} why */
function endLogin(why) {
  if (!loggedIn.value) return;
  loginProblem.value = why;
  loggedIn.value = false;
}

export async function logout() {
  await send("page/logout", { method: "POST" }).catch(() => null);
  save("secret", "");
  loginProblem.value = "";
  loggedIn.value = false;
}
