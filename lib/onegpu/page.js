// The page around the text, in place of the theme's component library: a menu that opens, and the contents that follow the reader.
(() => {
  "use strict";
  for (const button of document.querySelectorAll('[data-bs-toggle="dropdown"]')) {
    const box = button.parentElement, menu = box.querySelector(".dropdown-menu"), items = [...menu.querySelectorAll(".dropdown-item")];
    const open = yes => { [button, menu].forEach(e => e.classList.toggle("show", yes)); button.setAttribute("aria-expanded", yes); };
    button.addEventListener("click", () => open(!menu.classList.contains("show")));
    document.addEventListener("click", event => { if (!box.contains(event.target)) open(false); });
    box.addEventListener("focusout", event => { if (event.relatedTarget && !box.contains(event.relatedTarget)) open(false); });
    box.addEventListener("keydown", event => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { open(false); button.focus(); }
      if (!step) return;
      event.preventDefault();
      open(true);
      items[Math.min(items.length - 1, Math.max(0, items.indexOf(document.activeElement) + step))].focus();
    });
  }

  // Escape closes the meaning of a word, until the pointer or the focus moves on.
  for (const type of ["keydown", "mouseover", "focusin"]) addEventListener(type, event => document.documentElement.classList.toggle("onegpu-shut", event.key === "Escape"));

  // In the contents, the last section that has begun in the upper two fifths of the window, and those around it.
  const links = [...document.querySelectorAll(".bd-toc-nav a[href^='#']")].map(link => [link, document.getElementById(decodeURIComponent(link.hash.slice(1)))]).filter(([, section]) => section);
  let frame;
  function follow() {
    const now = links.findLast(([, section]) => section.getBoundingClientRect().top <= 0.4 * innerHeight)?.[0];
    for (const [link] of links) link.classList.toggle("active", link.parentElement.contains(now));
    for (const link of document.querySelectorAll("a[hreflang]")) link.hash = now?.hash ?? "";  // another language begins where the reader is
  }
  const later = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(follow); };
  addEventListener("scroll", later);
  addEventListener("resize", later);
  later();
})();
