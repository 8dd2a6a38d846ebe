"use strict";

// Refreshes the page every 10 seconds while somebody looks at it, until the console has ended. It changes only what
// differs, so that the focus, open details and the places of all scroll bars stay.
const interval = 10_000;

// sync makes a node the same as another one of the same kind. The content of a field, and whether details are open, are
// the reader's.
function sync(node, next) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== next.data) node.data = next.data;
    return;
  }
  const isOpen = node.tagName === "DETAILS" ? "open" : "";
  for (const { name } of [...node.attributes]) {
    if (name !== isOpen && !next.hasAttribute(name)) node.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== isOpen && node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  let place = node.firstChild;
  for (const child of [...next.childNodes]) {
    let old = place;
    while (old && !isSame(old, child)) old = old.nextSibling;
    if (!old) {
      node.insertBefore(child, place);
      continue;
    }
    if (old === place) place = place.nextSibling;
    else if (node.moveBefore) node.moveBefore(old, place); // which keeps the focus
    else node.insertBefore(old, place);
    sync(old, child);
  }
  while (place) {
    const rest = place;
    place = place.nextSibling;
    rest.remove();
  }
}

// isSame reports whether two nodes stand for the same thing. Rows have keys, so that open details stay with theirs.
function isSame(a, b) {
  return a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;
}

// hasEnded is true after the first failure: whoever has the port from then on must not fill the page. Another program
// may have it before the page notices that, but does not know what is in all pages of this console.
let hasEnded = false;

async function refresh() {
  if (document.hidden || hasEnded) return;
  const status = document.getElementById("refreshing");
  try {
    const response = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(90_000) });
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    if (hasEnded) return;
    if (next.documentElement.dataset.run !== document.documentElement.dataset.run) throw new Error("another program");
    if (response.status >= 500) {
      status.textContent = "Not refreshed since then: the console cannot read the account.";
      return;
    }
    document.title = next.title;
    sync(document.getElementById("main"), next.getElementById("main"));
    sync(document.querySelector("footer"), next.querySelector("footer"));
  } catch {
    hasEnded = true;
    status.textContent = "The console has ended, or does not answer: this page is not refreshed any more.";
  }
}

async function run() {
  await refresh();
  if (!hasEnded) setTimeout(run, interval);
}

setTimeout(run, interval);
document.addEventListener("visibilitychange", refresh);
