(** The checker, and what its yes means.

    [check] reads a document in its own terms and a certificate, and answers [None], or the first
    node that it refuses and which part refused it.  [certified] is the theorem: where it answers
    [None], every operand of every op finds, as planned and in every order that keeps
    happens-before, the very cells (tag and value) that it finds apart in the order of the list,
    whatever ops compute and whatever lay in memory before.

    Complexity: O((runs + claims) log (2^depth)), and O(chains) more for each clock.

    What this file does not see: how the terms were made from JSON. *)

From Coq Require Import ZArith List Bool Lia Permutation FMapPositive Relations.
From Proof Require Import Layout Tree Model Terms Reads Contracts Races.
Import ListNotations.
Open Scope Z_scope.

Record document := Document
  { depth : nat;  (** Addresses are below 2^depth. *)
    grain : Z;    (** Units that hardware writes together: 8 where units are bits, else 1. *)
    contents : list access;
    nodes : list node }.

Record certificate := Certificate
  { claims : list (list (list piece));  (** Of each node, each operand: who wrote it, piece by piece. *)
    clocks : list claim }.              (** Of each node: how far each chain is known. *)

Inductive part := Waits | Reads | Promises | Order.

(** A node waits for earlier ones only. *)
Fixpoint late_wait (ns : list (positive * node)) : option positive :=
  match ns with
  | [] => None
  | (i, n) :: rest => if forallb (fun p => (p <? i)%positive) (after n) then late_wait rest else Some i
  end.

Definition because (p : part) (x : option positive) (rest : option (part * positive)) : option (part * positive) :=
  match x with Some i => Some (p, i) | None => rest end.

Definition check (doc : document) (c : certificate) : option (part * positive) :=
  let size := 2 ^ Z.of_nat (depth doc) in
  because Waits (late_wait (number 1 (nodes doc)))
    (because Reads (check_reads (depth doc) size (contents doc) (nodes doc) (claims c))
      (because Promises (check_promises (number 1 (nodes doc)))
        (because Order (check_races (depth doc) size (grain doc) (nodes doc) (clocks c)) None))).

Lemma check_parts : forall doc c, check doc c = None ->
  late_wait (number 1 (nodes doc)) = None /\
  check_reads (depth doc) (2 ^ Z.of_nat (depth doc)) (contents doc) (nodes doc) (claims c) = None /\
  check_promises (number 1 (nodes doc)) = None /\
  check_races (depth doc) (2 ^ Z.of_nat (depth doc)) (grain doc) (nodes doc) (clocks c) = None.
Proof.
  intros doc c H. unfold check, because in H.
  destruct (late_wait _); [ discriminate | ]. destruct (check_reads _ _ _ _ _); [ discriminate | ].
  destruct (check_promises _); [ discriminate | ]. destruct (check_races _ _ _ _ _); [ discriminate | ]. auto.
Qed.

Theorem certified : forall doc c, check doc c = None ->
  forall (V : Type) (F : Z -> list V -> Z -> Z -> V) (garbage garbage' : loc -> V) (order : list (step V)),
  Permutation (steps V F Planned (number 1 (nodes doc))) order ->
  keeps V (before (nodes doc)) order ->
  Permutation
    (trace V order (laid V F Planned (contents doc) garbage'))
    (trace V (steps V F Apart (number 1 (nodes doc))) (laid V F Apart (contents doc) garbage)).
Proof.
  intros doc c H V F g g' order P K. apply check_parts in H as [_ [R [_ O]]].
  rewrite (reads_sound _ _ eq_refl _ _ _ R V F g g').
  apply schedules with (before := before (nodes doc)); auto using steps_lawful.
  eapply races_sound; eauto.
Qed.

(** The same of real kernels, which keep their contracts. *)
Theorem certified_kernels : forall doc c, check doc c = None ->
  forall (V : Type) (F : Z -> list V -> Z -> Z -> V) kernel, keeps_contract V F kernel ->
  forall (garbage garbage' : loc -> V) (order : list (positive * node)),
  Permutation (number 1 (nodes doc)) order ->
  keeps V (before (nodes doc)) (steps V F Planned order) ->
  Permutation
    (trace V (map (real_step V F kernel) order) (laid V F Planned (contents doc) garbage'))
    (trace V (steps V F Apart (number 1 (nodes doc))) (laid V F Apart (contents doc) garbage)).
Proof.
  intros doc c H V F kernel Kc g g' order P K. rewrite (real_trace V F kernel Kc).
  - eapply certified; eauto. apply Permutation_map. exact P.
  - intros i n I. apply check_parts in H as [_ [_ [Pr _]]].
    eapply check_promises_true; eauto. apply (Permutation_in _ (Permutation_sym P)). exact I.
Qed.

Lemma edge_later : forall ns i j, late_wait (number 1 ns) = None -> edge ns i j -> (i < j)%positive.
Proof.
  intros ns i j H [a [b [_ [B [[_ L] | W]]]]]; auto.
  revert H B. generalize (number 1 ns). induction l as [ | [k n] l IH ]; simpl; intros H B; [ contradiction | ].
  destruct (forallb _ (after n)) eqn:A; [ | discriminate ]. destruct B as [B | B]; auto.
  inversion B; subst. rewrite forallb_forall in A. apply A in W. apply Pos.ltb_lt in W. exact W.
Qed.

(** The order of the list is one of those that keep happens-before. *)
Theorem listed : forall doc c, check doc c = None ->
  forall V F, keeps V (before (nodes doc)) (steps V F Planned (number 1 (nodes doc))).
Proof.
  intros doc c H V F. apply check_parts in H as [W _].
  assert (B : forall i j, before (nodes doc) i j -> (i < j)%positive).
  { intros i j H. induction H; [ eapply edge_later; eauto | lia ]. }
  assert (N : forall i n, name V (step_of V F Planned i n) = i) by (intros; unfold step_of; destruct (act n); reflexivity).
  unfold keeps, steps.
  assert (G : forall l i, ForallOrdPairs (fun x y => ~ before (nodes doc) (name V y) (name V x))
      (map (fun p => step_of V F Planned (fst p) (snd p)) (number i l))).
  { induction l; intros; cbn [number map]; constructor; auto.
    apply Forall_forall. intros y Y Z. apply in_map_iff in Y as [[j m] [E Y]]. subst y. cbn [fst snd] in *.
    rewrite !N in Z. apply B in Z. apply number_from in Y. lia. }
  apply G.
Qed.
