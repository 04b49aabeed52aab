"""Small documents in words, from which small scenarios are made, and the code that runs them.

| module | what it has |
|---|---|
| `words` | the language: a program, a belief and a plan in a line of text each |
| `small_document` | `SmallDocument`: the fields of one document, and the function that builds it |
| `misdeeds` | faulty kernels, by name |
| `on_engine` | the detectors P, D and K: they run the document on the engine |
| `answers` | the kinds of records that each detector reports |

What this package does not see: scenarios, and the answers that they expect.
"""
