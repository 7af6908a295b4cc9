"use strict";

// Asks for the body of the page again and again. The server escapes every value in it.
const main = document.querySelector("main");

function selects() {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && main.contains(selection.anchorNode);
}

function show(text) {
  if (selects()) return; // somebody copies a text
  const open = [...main.querySelectorAll("details[open]")].map((each) => each.id);
  const focused = document.activeElement && document.activeElement.id;
  main.innerHTML = text;
  for (const id of open) {
    const found = document.getElementById(id);
    if (found) found.open = true;
  }
  const again = focused && document.getElementById(focused);
  if (again) again.focus({ preventScroll: true });
}

async function look() {
  let isCurrent = false;
  try {
    const answer = await fetch("body", { cache: "no-store" });
    isCurrent = answer.ok;
    if (answer.ok) show(await answer.text());
  } finally {
    document.body.classList.toggle("stale", !isCurrent);
    setTimeout(() => look().catch(console.warn), document.hidden ? 20000 : 2000);
  }
}

function open() {
  const found = document.getElementById(location.hash.slice(1));
  if (found && found.tagName === "DETAILS") {
    found.open = true;
    found.scrollIntoView();
  }
}

addEventListener("hashchange", open);
main.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && link.hash === location.hash) open(); // the same again is no change
});
open();
setTimeout(() => look().catch(console.warn), 2000);
