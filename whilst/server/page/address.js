// What the address says: ?latency=low&view=captions&size=64&background=none&theme=dark&pace=4#token=…

const number = (text, least, most) => {
  const value = Number(text);
  return text && Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : null;
};

/** Settings from the page's address. The token stands after #, which browsers do not send or log. */
export function readAddress(address) {
  const { pathname, searchParams, hash, origin } = new URL(address);
  const captions = searchParams.get("view") === "captions" || pathname.endsWith("/captions");
  const theme = searchParams.get("theme");
  return {
    latency: searchParams.get("latency") || "medium",
    view: captions ? "captions" : "talk",
    size: number(searchParams.get("size"), 12, 300), // pixels
    pace: number(searchParams.get("pace"), 0.5, 20),
    transparent: searchParams.get("background") === "none",
    theme: ["light", "dark"].includes(theme) ? theme : null,
    token: new URLSearchParams(hash.slice(1)).get("token") ?? "",
    // Beside the page, so that a prefix before both does no harm.
    stream: new URL(pathname.replace(/[^/]*$/u, "v1/stream"), origin.replace(/^http/u, "ws")).href,
  };
}

/** A language's code for browsers; "" for what is none, such as "src", which they would take for Sardinian. */
export const languageTag = (code) => (/^[a-z]{2}(?:[-_]|$)/iu.test(code) ? code.replaceAll("_", "-") : "");

/** English for a language's code, or the code. */
export function languageName(code) {
  const tag = languageTag(code);
  try {
    return tag ? new Intl.DisplayNames(["en"], { type: "language", fallback: "code" }).of(tag) : code;
  } catch {
    return code;
  }
}
