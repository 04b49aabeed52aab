(** Every op of every run is in the list, with its operands and results where the document has them.

    [described] says where a value of a run lies, apart and as planned; [every_op] says that the list
    has a node for each op of each run, what it does, and, for a read that comes late, both its nodes.

    What this file does not see: the order of the list ([forward], in [Terms]). *)

From Coq Require Import ZArith List Bool Lia FMapPositive.
From Proof Require Import Layout Model Nodes Terms Late.
Import ListNotations.
Open Scope Z_scope.

Definition described (d : document) (i : positive) (r : session_run) (p : program) (v : positive) (a : access) : Prop :=
  exists x bf ss s h,
    In (v, x) (number 1 (program_values p)) /\ In (lies_in x, bf) (number 1 (buffers p)) /\
    In (by_plan r, ss) (number 1 (plans d)) /\ In (lies_in x, s) (number 1 ss) /\ lives_as d i h /\
    let world := if shared d then 1%positive else i in
    let there := planned world (of_program r) (lies_in x) bf s in
    a = Access (own world h (lies_in x) bf) (fst there) (snd there) (start_of x) (dims_of x) (bits x).

Lemma all_out : forall A B (f : positive * A -> option B) l i ys j x, all f (number i l) = Some ys ->
  In (j, x) (number i l) -> exists y, f (j, x) = Some y /\ In (j, y) (number i ys).
Proof.
  induction l as [ | a l IH ]; intros i ys j x H I; [ contradiction | ]. cbn [number all] in *.
  destruct (f (i, a)) as [z | ] eqn:F; [ | discriminate]. destruct (all f _) as [zs | ] eqn:R; [ | discriminate].
  inversion H; subst. cbn [number]. destruct I as [I | I].
  - inversion I; subst. exists z. split; [ exact F | left; reflexivity ].
  - destruct (IH _ _ _ _ R I) as [y [Y1 Y2]]. exists y. split; [ exact Y1 | right; exact Y2 ].
Qed.

Lemma all_index : forall A B (f : A -> option B) l i ys j y, all f l = Some ys -> In (j, y) (number i ys) ->
  exists x, In (j, x) (number i l) /\ f x = Some y.
Proof.
  induction l as [ | a l IH ]; intros i ys j y H I; cbn [all] in H.
  - inversion H; subst. contradiction.
  - destruct (f a) as [z | ] eqn:F; [ | discriminate]. destruct (all f l) as [zs | ] eqn:R; [ | discriminate].
    inversion H; subst. cbn [number] in *. destruct I as [I | I].
    + inversion I; subst. exists a. split; [ left; reflexivity | exact F ].
    + destruct (IH _ _ _ _ eq_refl I) as [x [X Y]]. exists x. split; [ right; exact X | exact Y ].
Qed.

Lemma both_index : forall A B (xs : list A) (ys : list B) zs i j x y, both xs ys = Some zs ->
  In (j, (x, y)) (number i zs) -> In (j, x) (number i xs) /\ In (j, y) (number i ys).
Proof.
  induction xs as [ | a xs IH ]; destruct ys as [ | b ys ]; intros zs i j x y H I; cbn [both] in H; try discriminate.
  - inversion H; subst. contradiction.
  - destruct (both xs ys) as [r | ] eqn:R; [ | discriminate]. inversion H; subst. cbn [number] in *. destruct I as [I | I].
    + inversion I; subst. split; left; reflexivity.
    + destruct (IH _ _ _ _ _ _ R I). split; right; assumption.
Qed.

Lemma map_index : forall A B (f : A -> B) l i j y, In (j, y) (number i (map f l)) -> exists x, In (j, x) (number i l) /\ y = f x.
Proof.
  induction l as [ | a l IH ]; intros i j y I; [ contradiction | ]. cbn [map number] in *. destruct I as [I | I].
  - inversion I; subst. exists a. split; [ left; reflexivity | reflexivity ].
  - destruct (IH _ _ _ I) as [x [X Y]]. exists x. split; [ right; exact X | exact Y ].
Qed.

Lemma number_index : forall A (l : list A) i j k x, In (j, (k, x)) (number i (number i l)) -> j = k /\ In (j, x) (number i l).
Proof.
  induction l as [ | a l IH ]; intros i j k x I; [ contradiction | ]. cbn [number] in *. destruct I as [I | I].
  - inversion I; subst. split; [ reflexivity | left; reflexivity ].
  - apply IH in I as [E I]. split; [ exact E | right; exact I ].
Qed.

Lemma index_within : forall A (l : list A) i j, (i <= j)%positive -> (Pos.to_nat j < Pos.to_nat i + length l)%nat ->
  exists x, In (j, x) (number i l).
Proof.
  induction l as [ | a l IH ]; intros i j L U; cbn [length] in U; [ lia | ]. cbn [number].
  destruct (Pos.eq_dec i j) as [E | E]; [ subst; exists a; left; reflexivity | ].
  destruct (IH (Pos.succ i) j) as [x X]; try lia. exists x. right. exact X.
Qed.

Lemma all_length : forall A B (f : A -> option B) l ys, all f l = Some ys -> length ys = length l.
Proof.
  induction l as [ | a l IH ]; intros ys H; cbn [all] in H; [ inversion H; reflexivity | ].
  destruct (f a); [ | discriminate]. destruct (all f l); [ | discriminate]. inversion H; subst. cbn. f_equal. auto.
Qed.

Lemma number_length : forall A (l : list A) i, length (number i l) = length l.
Proof. induction l; intros; cbn; auto. Qed.

Theorem every_op : forall d, joined d <> None -> forall i r, In (i, r) (number 1 (session d)) ->
  exists p, In (of_program r, p) (number 1 (programs d)) /\
  forall k o, In (k, o) (number 1 (ops p)) ->
  exists n rs ws, In n (nodes d) /\
    at_run (label_of n) = i /\ at_step (label_of n) = k /\ on_stream (label_of n) = stream o /\ afters (label_of n) = op_after o /\
    Forall2 (described d i r p) (operands o) rs /\ Forall2 (described d i r p) (results o) ws /\
    match op_kind o, read_after r with
    | Looks, Some behind =>
        let ks := number 1 (if left_out r k o then [] else rs) in
        at_moment (label_of n) = Held /\ act n = Hold (map (fun y => (snd y, kept_in i k y)) ks) /\
        In (MakeNode (Label i k (stream o) (op_after o) (Late behind)) (Op (map (found_in i k) ks) [] [])) (nodes d)
    | _, _ => at_moment (label_of n) = Now /\ act_of r k o rs ws = Some (act n)
    end.
Proof.
  intros d J i r I. unfold nodes, joined in *. destruct (opened_all d) as [[t os] | ] eqn:E; [ clear J | congruence ].
  unfold opened_all in E. destruct (infos_of d) as [t' | ] eqn:Inf; [ | discriminate].
  destruct (all _ (number 1 (session d))) as [os' | ] eqn:A; [ | discriminate]. inversion E; subst t' os'. clear E.
  destruct (all_out _ _ _ _ _ _ _ _ A I) as [o [O Io]]. assert (O' := O). unfold open_run in O.
  destruct (PositiveMap.find (of_program r) (table (programs d))) as [p | ] eqn:P; [ | discriminate].
  destruct (PositiveMap.find (by_plan r) (table (plans d))) as [ss | ] eqn:S; [ | discriminate].
  destruct (PositiveMap.find i t) as [inf | ] eqn:Fi; [ | discriminate].
  destruct (both (buffers p) ss) as [bs | ] eqn:Bs; [ | discriminate].
  destruct (all (access_in _) (program_values p)) as [accs | ] eqn:Ac; [ | discriminate].
  destruct (all (nodes_of_op _ _ _ _) (number 1 (ops p))) as [ns | ] eqn:Ns; [ | discriminate].
  exists p. split; [ apply table_find; exact P | ]. intros k q K.
  destruct (all_out _ _ _ _ _ _ _ _ Ns K) as [[n m] [N In_]]. apply number_in in In_.
  assert (Own : In n (in_order os)).
  { unfold in_order. apply in_flat_map. exists (i, o). split; [ exact Io | ]. apply in_or_app. left. cbn [snd].
    inversion O; subst. cbn [own_nodes]. apply in_map_iff. exists (n, m). auto. }
  assert (Late_ : forall b l, m = Some (b, l) -> (b <= Pos.of_nat (length (session d)))%positive -> In l (in_order os)).
  { intros b l M B. unfold in_order. apply in_flat_map. subst m.
    destruct (index_within _ os 1%positive b) as [ob Ob]; [ lia | | ].
    - rewrite (all_length _ _ _ _ _ A), number_length. destruct (session d) as [ | s0 rest ]; [ contradiction | ]. cbn [length] in *. lia.
    - exists (b, ob). split; [ exact Ob | ]. apply in_or_app. right. cbn [fst]. apply behind_group. apply in_flat_map.
      exists o. split; [ eapply number_in; exact Io | ]. inversion O; subst. cbn [late_nodes]. apply in_flat_map.
      exists (n, Some (b, l)). split; [ exact In_ | left; reflexivity ]. }
  assert (D : forall v a, PositiveMap.find v (table accs) = Some a -> described d i r p v a).
  { intros v a F0. apply table_find in F0. destruct (all_index _ _ _ _ _ _ _ _ Ac F0) as [x [X Xa]].
    unfold access_in in Xa. destruct (PositiveMap.find (lies_in x) _) as [[id [sp b]] | ] eqn:Pl; [ | discriminate].
    apply table_find in Pl. destruct (map_index _ _ _ _ _ _ _ Pl) as [[j [bf s]] [Q1 Q2]]. apply number_index in Q1 as [Ej Q1].
    subst j. destruct (both_index _ _ _ _ _ _ _ _ _ Bs Q1) as [Q3 Q4]. unfold place_of in Q2.
    exists x, bf, ss, s, (home inf). repeat split; auto; [ apply table_find; exact S | | ].
    - apply infos_of_true in Inf as [Inf _]. apply Inf in Fi. apply Fi.
    - inversion Xa; subst. inversion Q2 as [[Q5 Q6]]. cbv zeta. rewrite <- Q6. reflexivity. }
  assert (D2 : forall vs xs, all (fun v => PositiveMap.find v (table accs)) vs = Some xs -> Forall2 (described d i r p) vs xs).
  { intros vs xs H. apply all_forall2 in H. induction H; constructor; auto. }
  unfold nodes_of_op in N. destruct (forallb _ (op_after q)); [ | discriminate].
  destruct (all (fun v => PositiveMap.find v (table accs)) (operands q)) as [rs | ] eqn:Rs; [ | discriminate].
  destruct (all (fun v => PositiveMap.find v (table accs)) (results q)) as [ws | ] eqn:Ws; [ | discriminate].
  exists n, rs, ws. split; [ exact Own | ].
  assert (Now_ : match act_of r k q rs ws with Some a => Some (MakeNode (Label i k (stream q) (op_after q) Now) a, None) | None => None end
      = Some (n, m) -> at_run (label_of n) = i /\ at_step (label_of n) = k /\ on_stream (label_of n) = stream q /\
        afters (label_of n) = op_after q /\ at_moment (label_of n) = Now /\ act_of r k q rs ws = Some (act n)).
  { intro Q. destruct (act_of r k q rs ws) as [a | ]; [ | discriminate]. inversion Q; subst. repeat split; reflexivity. }
  destruct (op_kind q); try (apply Now_ in N as [? [? [? [? [? ?]]]]]; repeat split; auto; fail).
  destruct (read_after r) as [b | ]; [ | apply Now_ in N as [? [? [? [? [? ?]]]]]; repeat split; auto; fail ].
  destruct (_ && _ && _) eqn:C; [ | discriminate ]. rewrite !andb_true_iff, Pos.ltb_lt, Pos.leb_le in C. destruct C as [[_ C] _].
  inversion N; subst. repeat split; auto. eapply Late_; [ reflexivity | exact C ].
Qed.
