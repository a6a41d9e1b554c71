// The light or dark theme, as set by the system, the address, or the button.

export function connectTheme(button, theme) {
  const root = document.documentElement;
  if (theme) root.dataset.theme = theme;
  button.onclick = () => {
    const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme ?? preferred) === "dark" ? "light" : "dark";
  };
}
