// Runs in pages before their own scripts: notes what runs, and looks for traces of texts that became markup.
(() => {
  "use strict";
  const tags = new Set(("html head meta title link script body a header div nav ul ol li span main h1 h2 h3 p dl dt dd section form " +
    "input button label textarea details summary pre code table thead tbody tr th td time progress strong em b i mark small select option br figure " +
    "figcaption svg line polyline circle text rect path g polygon").split(" "));
  window.ran = [];
  for (const name of ["alert", "confirm", "prompt", "print", "open"]) window[name] = (...words) => { window.ran.push(`${name} ${words}`); };

  // Attributes with an address, and how it may begin.
  const addresses = ["href", "src", "action", "formaction", "xlink:href", "srcdoc", "srcset", "data", "poster", "background", "ping", "manifest", "to", "values"];
  const plain = (value) => value.replace(/[\u0000-\u0020]/g, "").toLowerCase();

  // Returns what is wrong with a document, one sentence each. `live` elements of the page itself carry attributes of htmx.
  window.inspect = (of, live) => {
    const wrong = [];
    for (const id of live) if (of.querySelectorAll(`#${id}`).length > 1) wrong.push(`another element #${id}`);
    if (of.querySelectorAll("meta[name=htmx-config]").length > 1) wrong.push("another configuration");
    for (const element of of.querySelectorAll("*")) {
      const tag = element.tagName.toLowerCase();
      const name = `${tag}${element.id ? "#" + element.id : ""}`;
      if (!tags.has(tag)) wrong.push(`element ${name}`);
      if (element.shadowRoot) wrong.push(`shadow root of ${name}`);
      if (tag === "script" && !plain(element.getAttribute("src") ?? "").startsWith("/assets/")) wrong.push(`script ${element.outerHTML.slice(0, 80)}`);
      if (["meta", "link", "base"].includes(tag) && !of.head?.contains(element)) wrong.push(`${tag} outside of the head`);
      if (tag === "meta" && element.hasAttribute("http-equiv")) wrong.push("meta http-equiv");
      if (tag === "link" && !["stylesheet", "icon"].includes(element.rel)) wrong.push(`link ${element.rel}`);
      for (const { name: attribute, value } of element.attributes) {
        const lower = attribute.toLowerCase();
        if (lower.startsWith("on")) wrong.push(`${attribute} of ${name}`);
        if (lower === "style" && of.contentType === "text/html") wrong.push(`style of ${name}`);
        if (/^(data-)?(hx|sse|ws)-/.test(lower) && !live.includes(element.id)) wrong.push(`${attribute} of ${name}`);
        if (!/^[a-z][a-z0-9:._-]*$/i.test(attribute)) wrong.push(`attribute ${attribute} of ${name}`);
        const address = plain(value);
        if (addresses.includes(lower) && tag !== "option") {
          if (/^(javascript|data|vbscript|blob|file):/.test(address)) wrong.push(`${attribute}=${address.slice(0, 60)} of ${name}`);
          if (/^(https?:)?[\\/]{2}/.test(address) && !/^https?:\/\/127\.0\.0\.1[:/]/.test(address)) wrong.push(`${attribute}=${address.slice(0, 60)} of ${name}`);
        }
      }
    }
    return wrong;
  };

  // Waits until handlers of the page had time to run.
  window.settled = async () => {
    for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
    await new Promise((resolve) => setTimeout(resolve, 30));
  };

  // Writes each text as markup into a frame of its own; returns for each what was found, and whether it ran.
  window.tried = async (texts) => {
    const frames = texts.map((text) => {
      const frame = document.createElement("iframe");
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.ran = [];
      inner.alert = (word) => { inner.ran.push(word); };
      inner.document.open();
      inner.document.write(`<title>x</title><input id="given" value="${text.startsWith("\"") ? text : ""}"><main>${text}</main>`);
      inner.document.close();
      return inner;
    });
    await window.settled();
    await new Promise((resolve) => setTimeout(resolve, 500));
    return frames.map((inner) => {
      try {
        return { ran: inner.ran?.length ?? 0, wrong: window.inspect(inner.document, []).length };
      } catch {
        return { ran: 0, wrong: 1 };
      }
    });
  };
})();
