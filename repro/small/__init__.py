"""Small documents in words, and the engine that runs them: what small scenarios are made of.

| module | what it has |
|---|---|
| `words` | the language: a program, a belief and a plan in a line of text each |
| `small_document` | `SmallDocument`: all that one document is made of, and how it is built |
| `misdeeds` | kernels that do wrong, by name |
| `on_engine` | P, D and K: the document run on the engine |
| `answers` | what each detector said, as kinds |

What this package does not see: scenarios, and what anybody expects.
"""
