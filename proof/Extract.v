(** The checker as OCaml.  Booleans, lists, pairs and options become those of OCaml; numbers stay
    as they are proved about. *)

From Coq Require Import Extraction ExtrOcamlBasic.
From Proof Require Import Checker.

Extraction Language OCaml.
Extraction "checker.ml" check.
