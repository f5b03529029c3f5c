// Looks for changes every two seconds and takes them in without closing what the reader has opened.
let last = null;
setInterval(async () => {
  const answer = await fetch(location.href).catch(() => null);
  if (!answer || !answer.ok) return;
  const text = await answer.text();
  if (text === last) return;
  last = text;
  const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  const main = document.querySelector("main");
  const open = [...main.querySelectorAll("details")].map((details) => details.open);
  fresh.querySelectorAll("details").forEach((details, index) => { details.open = open[index] || details.open; });
  main.replaceWith(fresh);
}, 2000);
