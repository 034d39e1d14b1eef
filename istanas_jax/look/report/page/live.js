"use strict";
// The page of a run under way: asks whether there is a newer one, and then loads it.

(function () {
  const shown = document.currentScript.dataset.version;
  const every = 1000 * document.currentScript.dataset.seconds;
  async function look() {
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== shown) return location.reload();
    } catch {}  // the server is away: it may come back
    setTimeout(look, every);
  }
  setTimeout(look, every);
})();
