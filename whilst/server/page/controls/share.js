// Publishes the session under a name, and shows its address with a QR code.

const LOCAL = /^(localhost|127\..*|\[::1\])$/u;
const KEYS = "whilst-key-"; // prefix in sessionStorage: a speaker who reloads the page keeps the name

const random = (length) =>
  Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) => (byte % 36).toString(36)).join("");

function keyOf(name) {
  const key = sessionStorage.getItem(KEYS + name) ?? random(16);
  sessionStorage.setItem(KEYS + name, key);
  return key;
}

/** Returns a function to call when the name is taken. */
export function connectShare({ node, address, connection, note }) {
  const dialog = node("share-dialog");
  const publish = (name) => {
    const page = new URL(`watch/${name}`, address.base).href;
    node("share-link").textContent = node("share-link").href = page;
    node("share-code").src = `v1/qr.svg?url=${encodeURIComponent(page)}`;
    node("share-local").hidden = !LOCAL.test(location.hostname);
    node("share").setAttribute("aria-pressed", "true");
    node("share").textContent = "Shared";
    connection.publish(name, keyOf(name));
  };
  const stop = () => {
    dialog.close();
    node("share").setAttribute("aria-pressed", "false");
    node("share").textContent = "Share";
    connection.publish("", "");
  };
  node("share").onclick = () => {
    if (!connection.published) publish(random(10));
    dialog.showModal();
  };
  node("share-close").onclick = () => dialog.close();
  node("share-stop").onclick = stop;
  node("share-copy").onclick = async () => {
    try {
      await navigator.clipboard.writeText(node("share-link").href);
      node("share-copy").textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(node("share-link"));
    }
  };
  if (address.publish) publish(address.publish);
  return (message) => {
    stop();
    note(`${message[0].toUpperCase()}${message.slice(1)}.`);
  };
}
