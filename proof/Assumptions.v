(** What the theorems rest on besides Coq itself: printed, and compared with a golden file. *)

From Proof Require Import Layout Model Reads Races Checker.

Print Assumptions runs_exact.
Print Assumptions values.
Print Assumptions schedules.
Print Assumptions reads_sound.
Print Assumptions races_sound.
Print Assumptions listed.
Print Assumptions certified.
