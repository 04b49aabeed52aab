"""A page that judges a document in the browser: the document is read there and goes nowhere.

| file | |
|---|---|
| `in_browser.py` | what the page asks of Python: a text in, findings, verdict and explorer out |
| `stand_ins/` | what of numpy and msgspec that asks for, in plain Python |
| `static_files.py` | the files of the page, and a server of them |
| `bundling.py` | which modules the browser's Python needs |
| `index.html`, `page.js`, `worker.js`, `page.css` | the page, and the thread in which Python runs |

`allocsim serve` is the command. The explorer is that of `reports.interactive`.
"""
