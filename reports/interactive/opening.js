// A page that holds what its explorer shows.
if (at("explorer")) explore(JSON.parse(at("head").textContent), at("block").textContent);
