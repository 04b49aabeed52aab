(** Memory as a checker keeps it: a tree over the addresses [0, 2^d), halved at each level, whose
    leaves hold one thing for all addresses below them.

    [fill] and [modify] change a range, [test] asks whether all of a range holds.  Each takes
    O(d + leaves in the range).

    What this file does not see: what is kept. *)

From Coq Require Import ZArith Bool Lia.
Open Scope Z_scope.

Section Tree.
  Context {A : Type}.

  Inductive tree := Leaf (a : A) | Node (l r : tree).

  (** Both halves of a tree. *)
  Definition halves (t : tree) : tree * tree :=
    match t with Leaf _ => (t, t) | Node l r => (l, r) end.

  (** What is at address x of [0, s), where s = 2^d; a tree deeper than d has nothing there. *)
  Fixpoint get (d : nat) (s : Z) (t : tree) (x : Z) : option A :=
    match t with
    | Leaf a => Some a
    | Node l r =>
        match d with
        | O => None
        | S d' => let h := Z.div2 s in if x <? h then get d' h l x else get d' h r (x - h)
        end
    end.

  Definition outside (s a b : Z) : bool := (b <=? a) || (b <=? 0) || (s <=? a).
  Definition covers (s a b : Z) : bool := (a <=? 0) && (s <=? b).

  Fixpoint fill (d : nat) (s : Z) (t : tree) (a b : Z) (v : A) : tree :=
    if outside s a b then t else
    if covers s a b then Leaf v else
    match d with
    | O => t
    | S d' =>
        let h := Z.div2 s in
        let '(l, r) := halves t in
        Node (fill d' h l a b v) (fill d' h r (a - h) (b - h) v)
    end.

  Fixpoint modify (f : A -> A) (d : nat) (s : Z) (t : tree) (a b : Z) : tree :=
    if outside s a b then t else
    match d, t with
    | O, Leaf v => Leaf (f v)
    | O, Node _ _ => t
    | S d', Leaf v =>
        if covers s a b then Leaf (f v) else
        let h := Z.div2 s in Node (modify f d' h t a b) (modify f d' h t (a - h) (b - h))
    | S d', Node l r =>
        let h := Z.div2 s in Node (modify f d' h l a b) (modify f d' h r (a - h) (b - h))
    end.

  Fixpoint test (p : A -> bool) (d : nat) (s : Z) (t : tree) (a b : Z) : bool :=
    if outside s a b then true else
    match t with
    | Leaf v => p v
    | Node l r =>
        match d with
        | O => false
        | S d' => let h := Z.div2 s in test p d' h l a b && test p d' h r (a - h) (b - h)
        end
    end.

  Definition inside (a b x : Z) : bool := (a <=? x) && (x <? b).

  Lemma inside_true : forall a b x, inside a b x = true <-> a <= x < b.
  Proof. intros. unfold inside. rewrite andb_true_iff, Z.leb_le, Z.ltb_lt. reflexivity. Qed.

  Lemma inside_false : forall a b x, inside a b x = false <-> ~ a <= x < b.
  Proof. intros. rewrite <- inside_true. destruct (inside a b x); split; congruence. Qed.

  Lemma outside_true : forall s a b x, outside s a b = true -> 0 <= x < s -> inside a b x = false.
  Proof.
    unfold outside. intros s a b x H X. apply inside_false.
    rewrite !orb_true_iff, !Z.leb_le in H. lia.
  Qed.

  Lemma covers_true : forall s a b x, covers s a b = true -> 0 <= x < s -> inside a b x = true.
  Proof. unfold covers. intros s a b x H X. apply inside_true. rewrite andb_true_iff, !Z.leb_le in H. lia. Qed.

  Lemma half : forall d, Z.div2 (2 ^ Z.of_nat (S d)) = 2 ^ Z.of_nat d.
  Proof.
    intros. rewrite Nat2Z.inj_succ, Z.pow_succ_r by lia. rewrite Z.div2_div, Z.mul_comm. apply Z.div_mul. lia.
  Qed.

  Lemma double : forall d, 2 ^ Z.of_nat (S d) = 2 * 2 ^ Z.of_nat d.
  Proof. intros. rewrite Nat2Z.inj_succ, Z.pow_succ_r by lia. reflexivity. Qed.

  Lemma inside_minus : forall a b x h, inside (a - h) (b - h) (x - h) = inside a b x.
  Proof.
    intros. destruct (inside a b x) eqn:E.
    - apply inside_true in E. apply inside_true. lia.
    - apply inside_false in E. apply inside_false. lia.
  Qed.

  Theorem get_fill : forall d t a b v x, 0 <= x < 2 ^ Z.of_nat d ->
    get d (2 ^ Z.of_nat d) (fill d (2 ^ Z.of_nat d) t a b v) x =
    if inside a b x then Some v else get d (2 ^ Z.of_nat d) t x.
  Proof.
    induction d; intros t a b v x X; cbn [fill];
      destruct (outside _ a b) eqn:O; try (rewrite (outside_true _ _ _ _ O X); reflexivity);
      destruct (covers _ a b) eqn:C; try (rewrite (covers_true _ _ _ _ C X); destruct t; reflexivity).
    - exfalso. unfold outside in O. unfold covers in C. cbn in *.
      rewrite !orb_false_iff, !Z.leb_gt in O. rewrite andb_false_iff, !Z.leb_gt in C. lia.
    - rewrite half. rewrite double in X. set (h := 2 ^ Z.of_nat d) in *.
      assert (E : get (S d) (2 ^ Z.of_nat (S d)) t x =
                  let '(l, r) := halves t in if x <? h then get d h l x else get d h r (x - h)).
      { destruct t; cbn [halves get]; [ | rewrite half; reflexivity ].
        destruct (x <? h); destruct d; reflexivity. }
      rewrite E. destruct (halves t) as [l r]. cbn [get]. rewrite half. fold h.
      destruct (x <? h) eqn:L.
      + apply Z.ltb_lt in L. rewrite IHd by lia. reflexivity.
      + apply Z.ltb_ge in L. rewrite IHd by lia. rewrite inside_minus. reflexivity.
  Qed.

  Theorem get_modify : forall f d t a b x, 0 <= x < 2 ^ Z.of_nat d ->
    get d (2 ^ Z.of_nat d) (modify f d (2 ^ Z.of_nat d) t a b) x =
    if inside a b x then option_map f (get d (2 ^ Z.of_nat d) t x) else get d (2 ^ Z.of_nat d) t x.
  Proof.
    induction d; intros t a b x X; cbn [modify];
      destruct (outside _ a b) eqn:O; try (rewrite (outside_true _ _ _ _ O X); reflexivity).
    - assert (I : inside a b x = true).
      { apply inside_true. unfold outside in O. cbn in *. rewrite !orb_false_iff, !Z.leb_gt in O. lia. }
      rewrite I. destruct t; reflexivity.
    - rewrite double in X. destruct t as [v | l r].
      + destruct (covers _ a b) eqn:C; [ rewrite (covers_true _ _ _ x C) by (rewrite double; lia); reflexivity | ].
        rewrite half. set (h := 2 ^ Z.of_nat d) in *. cbn [get]. rewrite half. fold h.
        destruct (x <? h) eqn:L.
        * apply Z.ltb_lt in L. rewrite IHd by lia. destruct d; reflexivity.
        * apply Z.ltb_ge in L. rewrite IHd by lia. rewrite inside_minus. destruct d; reflexivity.
      + rewrite half. set (h := 2 ^ Z.of_nat d) in *. cbn [get]. rewrite half. fold h.
        destruct (x <? h) eqn:L.
        * apply Z.ltb_lt in L. rewrite IHd by lia. reflexivity.
        * apply Z.ltb_ge in L. rewrite IHd by lia. rewrite inside_minus. reflexivity.
  Qed.

  Theorem test_get : forall p d t a b x, test p d (2 ^ Z.of_nat d) t a b = true ->
    0 <= x < 2 ^ Z.of_nat d -> a <= x < b ->
    exists v, get d (2 ^ Z.of_nat d) t x = Some v /\ p v = true.
  Proof.
    induction d; intros t a b x T X I; cbn [test] in T;
      (destruct (outside _ a b) eqn:O; [ apply (outside_true _ _ _ _ O) in X; apply inside_true in I; congruence | ]);
      destruct t as [v | l r]; cbn [get]; try (exists v; auto; fail); try discriminate.
    rewrite half in *. rewrite double in X. set (h := 2 ^ Z.of_nat d) in *.
    apply andb_prop in T as [T1 T2]. destruct (x <? h) eqn:L.
    - apply Z.ltb_lt in L. apply (IHd l a b); auto; lia.
    - apply Z.ltb_ge in L. apply (IHd r (a - h) (b - h)); auto; lia.
  Qed.
End Tree.
Arguments tree : clear implicits.
