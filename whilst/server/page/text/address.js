// Settings in the address: ?latency=low&view=captions&size=64&theme=dark&pace=4#token=… (docs/page.md)

const number = (text, least, most) => {
  const value = Number(text);
  return text && Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : null;
};

/** Settings from the page's address. The token is in the fragment, which browsers do not send. */
export function readAddress(address) {
  const { pathname, searchParams, hash, origin } = new URL(address);
  const base = new URL(pathname.replace(/(?:watch\/)?[^/]*$/u, ""), origin).href; // the page may have a path prefix
  const captions = searchParams.get("view") === "captions" || pathname.endsWith("/captions");
  const theme = searchParams.get("theme");
  return {
    base,
    name: decodeURIComponent(pathname.replace(/.*\//u, "")), // of the talk, on the watchers' page
    model: searchParams.get("model") ?? "",
    style: searchParams.get("style") ?? "",
    lines: number(searchParams.get("lines"), 1, 10),
    publish: searchParams.get("publish") ?? "",
    latency: searchParams.get("latency") || "medium",
    view: captions ? "captions" : "transcript",
    size: number(searchParams.get("size"), 12, 300), // pixels
    pace: number(searchParams.get("pace"), 0.5, 20),
    transparent: searchParams.get("background") === "none",
    theme: ["light", "dark"].includes(theme) ? theme : null,
    token: new URLSearchParams(hash.slice(1)).get("token") ?? "",
    stream: `${base.replace(/^http/u, "ws")}v1/stream`,
  };
}

/** BCP 47 tag of a language code; "" for other names, such as "src", which is a code of Sardinian. */
export const languageTag = (code) => (/^[a-z]{2}(?:[-_]|$)/iu.test(code) ? code.replaceAll("_", "-") : "");

/** English name of a language code, or the code. */
export function languageName(code) {
  const tag = languageTag(code);
  try {
    return tag ? new Intl.DisplayNames(["en"], { type: "language", fallback: "code" }).of(tag) : code;
  } catch {
    return code;
  }
}
