"use strict";

// --- Keys: an element with `data-key` is clicked by each of its keys -------------------------------

document.addEventListener("keydown", (event) => {
  // A key that is held down answers once.
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input, select, textarea")) return;
  for (const element of document.querySelectorAll("[data-key]")) {
    if (!element.dataset.key.split(" ").includes(event.key)) continue;
    event.preventDefault();
    element.click();
    return;
  }
});

// A second answer before the next page has come would count for the same texts.
let sent = false;
document.addEventListener("submit", (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
addEventListener("pageshow", () => { sent = false; });

// --- What stays as it was left on the page before --------------------------------------------------

for (const button of document.querySelectorAll("[data-toggle]")) {
  const name = button.dataset.toggle;
  const set = (on) => {
    document.body.classList.toggle(name, on);
    button.setAttribute("aria-pressed", on);
  };
  set(sessionStorage.getItem(name) === "true");
  button.addEventListener("click", () => {
    set(!document.body.classList.contains(name));
    sessionStorage.setItem(name, document.body.classList.contains(name));
  });
}
for (const details of document.querySelectorAll("details[data-remember]")) {
  const name = details.dataset.remember;
  details.open = sessionStorage.getItem(name) !== "false";
  details.addEventListener("toggle", () => sessionStorage.setItem(name, details.open));
}
