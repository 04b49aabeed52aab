(** What the theorems rest on besides Coq itself: printed, and compared with a golden file. *)

From Proof Require Import Layout Model Terms Late Every Reads Races Contracts Checker.

Print Assumptions runs_exact.
Print Assumptions bits_exact.
Print Assumptions one_memory.
Print Assumptions waits_exact.
Print Assumptions homes_exact.
Print Assumptions laid_once.
Print Assumptions forward.
Print Assumptions late_finds.
Print Assumptions every_op.
Print Assumptions values.
Print Assumptions schedules.
Print Assumptions reads_sound.
Print Assumptions claims_hold.
Print Assumptions races_sound.
Print Assumptions listed.
Print Assumptions check_promises_true.
Print Assumptions certified.
Print Assumptions certified_kernels.
