// Live pages: keeps what a person opened or typed, follows output until one scrolls, shows the state in the tab.
(() => {
  "use strict";
  const nearEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
  let following = false, stopped = false, again;

  const shown = () => {
    const page = document.getElementById("page");
    if (!page) return;
    const icon = document.getElementById("icon");
    if (icon && page.dataset.icon && icon.getAttribute("href") !== page.dataset.icon) icon.href = page.dataset.icon;
    if (page.dataset.title) document.title = page.dataset.title;
    document.querySelectorAll("button[data-copy]").forEach((button) => { button.hidden = false; });
    const follow = document.getElementById("follow");
    if (follow) { follow.hidden = false; follow.setAttribute("aria-pressed", String(following)); }
    document.querySelectorAll("time[datetime]").forEach((time) => {
      const at = new Date(time.getAttribute("datetime"));
      if (!Number.isNaN(at.getTime())) time.title = at.toLocaleString();
    });
  };

  // An opened part stays open when the page is updated.
  window.htmx?.registerExtension("ralph", {
    htmx_before_morph_attr: (element, detail) => !(element.tagName === "DETAILS" && detail.attrName === "open"),
  });

  document.addEventListener("htmx:after:swap", () => {
    shown();
    if (following) scrollTo(0, document.documentElement.scrollHeight);
  });
  // Scrolling up stops to follow, scrolling back to the end goes on.
  addEventListener("scroll", () => {
    if (following && !nearEnd()) { following = false; stopped = true; shown(); }
    else if (stopped && nearEnd()) { following = true; stopped = false; shown(); }
  }, { passive: true });
  // What could not be read, because the connection was cut or the service did not run, is read again: the page, or its stream.
  for (const name of ["htmx:error", "htmx:response:error"]) {
    document.addEventListener(name, ({ target }) => {
      if (target.id === "page") {
        clearTimeout(again);
        again = setTimeout(() => window.htmx.trigger("#feed", "changed"), 2000);
      } else if (target.id === "feed" && !target._htmx?.sse) {
        setTimeout(() => window.htmx.ajax("GET", target.getAttribute("hx-sse:connect"), { source: target, timeout: 10000 }), 5000);
      }
    });
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.id === "follow") {
      following = !following;
      stopped = false;
      if (following) scrollTo(0, document.documentElement.scrollHeight);
      shown();
    } else if (button.dataset.copy) {
      fetch(button.dataset.copy).then((answer) => (answer.ok ? answer.text() : Promise.reject(answer.status)))
        .then((text) => navigator.clipboard.writeText(text))
        .then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; });
    }
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", shown); else shown();
})();
