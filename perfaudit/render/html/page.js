// Adds a button beside each command and patch that copies it. Where a browser has no clipboard for a file from disk, the text is
// selected and copied the old way.
(() => {
  const said = document.getElementById("said");
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* the old way */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  for (const place of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${place.dataset.copy}: ${place.textContent.trim().split("\n")[0].slice(0, 60)}`);
    button.addEventListener("click", async () => {
      const done = await copy(place.textContent);
      button.textContent = done ? "Copied" : "Select it and press Ctrl+C";
      said.textContent = done ? `Copied ${place.dataset.copy}` : "It could not be copied";
      button.focus();
      setTimeout(() => { button.textContent = "Copy"; }, 2500);
    });
    place.tagName === "PRE" ? place.before(button) : place.after(button);
  }
})();
