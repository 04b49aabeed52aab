(** The checker, and what its yes means.

    [check] reads a document in its own terms and a certificate, and answers [None], or the first
    node that it refuses and which part refused it.  [certified] is the theorem: where it answers
    [None], every operand of every op finds, as planned and in every order that keeps
    happens-before, the very cells (tag and value) that it finds apart in the order of the list,
    whatever ops compute and whatever lay in memory before.

    Complexity: O((runs + claims) log (2^depth)), and O(chains) more for each clock.

    What this file does not see: how the terms were made from JSON. *)

From Coq Require Import ZArith List Bool Lia Permutation FMapPositive Relations.
From Proof Require Import Layout Tree Model Nodes Terms Reads Contracts Races.
Import ListNotations.
Open Scope Z_scope.

Record certificate := Certificate
  { depth : nat;                          (** All addresses are below 2^depth. *)
    claims : list (list (list piece));    (** Of each node, each operand: who wrote it, piece by piece. *)
    clocks : list claim }.                (** Of each node; none where all nodes are one chain. *)

Inductive part := Reference | Reads | Promises | Order.

Definition because (p : part) (x : option positive) (rest : option (part * positive)) : option (part * positive) :=
  match x with Some i => Some (p, i) | None => rest end.

(** Hardware writes bytes. *)
Definition byte : Z := 8.

Definition check (doc : document) (c : certificate) : option (part * positive) :=
  match joined doc with
  | None => Some (Reference, 1%positive)
  | Some (t, cs, ns) =>
      let size := 2 ^ Z.of_nat (depth c) in
      because Reads (check_reads (depth c) size cs ns (claims c))
        (because Promises (check_promises (number 1 ns))
          (because Order (check_races (depth c) size byte (waits_in t) ns (clocks c)) None))
  end.

Lemma check_parts : forall doc c, check doc c = None -> exists t,
  joined doc = Some (t, contents doc, nodes doc) /\
  check_reads (depth c) (2 ^ Z.of_nat (depth c)) (contents doc) (nodes doc) (claims c) = None /\
  check_promises (number 1 (nodes doc)) = None /\
  check_races (depth c) (2 ^ Z.of_nat (depth c)) byte (waits_in t) (nodes doc) (clocks c) = None.
Proof.
  intros doc c H. unfold check, because in H. unfold contents, nodes.
  destruct (joined doc) as [[[t cs] ns] | ]; [ | discriminate ]. exists t. split; auto.
  destruct (check_reads _ _ _ _ _); [ discriminate | ].
  destruct (check_promises _); [ discriminate | ]. destruct (check_races _ _ _ _ _ _); [ discriminate | ]. auto.
Qed.

Theorem certified : forall doc c, check doc c = None ->
  forall (V : Type) (F : Z -> list V -> Z -> Z -> V) (garbage garbage' : loc -> V) (order : list (step V)),
  Permutation (steps V F Planned (number 1 (nodes doc))) order ->
  keeps V (before (Waits doc) (nodes doc)) order ->
  Permutation
    (trace V order (laid V F Planned (contents doc) garbage'))
    (trace V (steps V F Apart (number 1 (nodes doc))) (laid V F Apart (contents doc) garbage)).
Proof.
  intros doc c H V F g g' order P K. apply check_parts in H as [t [J [R [_ O]]]].
  rewrite (reads_sound _ _ eq_refl _ _ _ R V F g g').
  apply schedules with (before := before (Waits doc) (nodes doc)); auto using steps_lawful.
  eapply races_sound; eauto. intros q r W. apply (waits_exact _ _ _ _ J) in W as [_ [_ W]]. exact W.
Qed.

(** The same of real kernels, which keep their contracts. *)
Theorem certified_kernels : forall doc c, check doc c = None ->
  forall (V : Type) (F : Z -> list V -> Z -> Z -> V) kernel, keeps_contract V F kernel ->
  forall (garbage garbage' : loc -> V) (order : list (positive * node)),
  Permutation (number 1 (nodes doc)) order ->
  keeps V (before (Waits doc) (nodes doc)) (steps V F Planned order) ->
  Permutation
    (trace V (map (real_step V F kernel) order) (laid V F Planned (contents doc) garbage'))
    (trace V (steps V F Apart (number 1 (nodes doc))) (laid V F Apart (contents doc) garbage)).
Proof.
  intros doc c H V F kernel Kc g g' order P K. rewrite (real_trace V F kernel Kc).
  - eapply certified; eauto. apply Permutation_map. exact P.
  - intros i n I. apply check_parts in H as [_ [_ [_ [Pr _]]]].
    eapply check_promises_true; eauto. apply (Permutation_in _ (Permutation_sym P)). exact I.
Qed.

(** The order of the list is one of those that keep happens-before. *)
Theorem listed : forall doc c, check doc c = None ->
  forall V F, keeps V (before (Waits doc) (nodes doc)) (steps V F Planned (number 1 (nodes doc))).
Proof.
  intros doc c H V F. apply check_parts in H as [t [J _]].
  assert (N : forall i n, name V (step_of V F Planned i n) = i) by (intros; unfold step_of; destruct (act n); reflexivity).
  pose proof (before_sooner doc ltac:(congruence)) as B. destruct (forward doc) as [D _].
  unfold keeps, steps.
  assert (G : forall l i, incl (number i l) (number 1 (nodes doc)) ->
      ForallOrdPairs forth l ->
      ForallOrdPairs (fun x y => ~ before (Waits doc) (nodes doc) (name V y) (name V x))
        (map (fun p => step_of V F Planned (fst p) (snd p)) (number i l))).
  { induction l as [ | n l IH ]; intros i Inc P; cbn [number map]; constructor; inversion P as [ | ? ? Q R ]; subst.
    - apply Forall_forall. intros y Y Z. apply in_map_iff in Y as [[j m] [E Y]]. subst y. cbn [fst snd] in *.
      rewrite !N in Z. apply B in Z as [b [a [Ib [Ia S]]]].
      assert (Ea : a = n) by (eapply number_unique; [ exact Ia | apply Inc; left; reflexivity ]).
      assert (Eb : b = m) by (eapply number_unique; [ exact Ib | apply Inc; right; exact Y ]).
      subst. rewrite Forall_forall in Q. destruct (Q m) as [Q' _]; [ eapply number_in; exact Y | exact (Q' S) ].
    - apply IH; auto. intros p Hp. apply Inc. right. exact Hp. }
  apply G; auto using incl_refl.
Qed.
