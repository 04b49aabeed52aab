(** Reads that come late.

    The host may look at the outputs of a run only after a later one.  Apart, each such read finds what
    its operands hold at its own place in the list ([late_finds]): a node of kind [Hold] at that place
    keeps a copy, in memory that no other node writes.

    What this file does not see: what such a read finds as planned; that is what lies there. *)

From Coq Require Import ZArith List Bool Lia FMapPositive.
From Proof Require Import Layout Model Nodes Terms.
Import ListNotations.
Open Scope Z_scope.

(** What each node writes apart: a hold, memory of its own; any other, that of buffers. *)
Definition of_buffers (a : access) : Prop := exists x l, ident a = key (x :: l) /\ x <> 5%positive.

Definition tidy (n : node) : Prop :=
  match act n with
  | Op _ ws _ => Forall of_buffers ws
  | Same ms _ => Forall of_buffers (map snd ms)
  | Hold ms => at_moment (label_of n) = Held /\
      forall p, In p ms -> exists j, ident (snd p) = key [5; at_run (label_of n); at_step (label_of n); j]%positive
  end.

Lemma own_of_buffers : forall w h b bf, exists x l, own w h b bf = key (x :: l) /\ x <> 5%positive.
Proof. intros. unfold own. destruct (known_as bf); eexists; eexists; (split; [ reflexivity | discriminate ]). Qed.

Lemma all_in : forall A B (f : A -> option B) l ys y, all f l = Some ys -> In y ys -> exists x, In x l /\ f x = Some y.
Proof.
  induction l as [ | a l IH ]; intros ys y H I; simpl in H; [ inversion H; subst; contradiction | ].
  destruct (f a) eqn:E; [ | discriminate]. destruct (all f l) eqn:R; [ | discriminate]. inversion H; subst.
  destruct I as [I | I]; [ subst; exists a; simpl; auto | ]. destruct (IH _ _ eq_refl I) as [x [X Y]]. exists x. simpl. auto.
Qed.

Section Op.
  Variables (count i : positive) (r : session_run) (accs : PositiveMap.t access).
  Hypothesis plain : forall v a, PositiveMap.find v accs = Some a -> of_buffers a.

  (** The two nodes of a read that comes late: what is kept, and the read of it. *)
  Lemma op_nodes : forall k o n m, nodes_of_op count i r accs (k, o) = Some (n, m) ->
    tidy n /\
    (forall h l, m = Some (h, l) -> exists ks,
       label_of n = Label i k (stream o) (op_after o) Held /\ act n = Hold (map (fun y => (snd y, kept_in i k y)) (number 1 ks)) /\
       at_moment (label_of l) = Late h /\ at_run (label_of l) = i /\ at_step (label_of l) = k /\ (i < h)%positive /\
       act l = Op (map (found_in i k) (number 1 ks)) [] [] /\
       (left_out r k o = false -> all (fun v => PositiveMap.find v accs) (operands o) = Some ks)).
  Proof.
    intros k o n m H. unfold nodes_of_op in H. destruct (forallb _ (op_after o)); [ | discriminate].
    destruct (all (fun v => PositiveMap.find v accs) (operands o)) as [rs | ] eqn:Rs; [ | discriminate].
    destruct (all (fun v => PositiveMap.find v accs) (results o)) as [ws | ] eqn:Ws; [ | discriminate].
    assert (Fw : Forall of_buffers ws).
    { apply Forall_forall. intros a A. destruct (all_in _ _ _ _ _ _ Ws A) as [v [_ E]]. eauto. }
    assert (Now_ : match act_of r k o rs ws with Some a => Some (MakeNode (Label i k (stream o) (op_after o) Now) a, None) | None => None end
        = Some (n, m) -> tidy n /\ m = None).
    { intro Q. destruct (act_of r k o rs ws) as [a | ] eqn:E; [ | discriminate]. inversion Q; subst. split; auto.
      unfold act_of in E. destruct (left_out r k o); [ inversion E; subst; constructor | ].
      assert (G : forall e : bool, (if e then Some (Same (combine rs ws) (promises o)) else None) = Some a ->
        tidy (MakeNode (Label i k (stream o) (op_after o) Now) a)).
      { intros e S. destruct e; [ | discriminate]. inversion S; subst. cbn. apply Forall_forall. intros x X.
        apply in_map_iff in X as [[y z] [Y Z0]]. cbn in Y. subst. apply in_combine_r in Z0. rewrite Forall_forall in Fw. auto. }
      destruct (op_kind o); try (inversion E; subst; exact Fw). eapply G. exact E. }
    destruct (op_kind o);
      try (apply Now_ in H as [A B]; split; [ exact A | intros; subst; discriminate ]).
    destruct (read_after r) as [b | ]; [ | apply Now_ in H as [A B]; split; [ exact A | intros; subst; discriminate ] ].
    destruct (_ && _ && _) eqn:C; [ | discriminate ]. rewrite !andb_true_iff, Pos.ltb_lt in C. destruct C as [[C _] _].
    inversion H; subst. split.
    - split; [ reflexivity | ]. intros p P. apply in_map_iff in P as [y [Y _]]. subst. exists (fst y). reflexivity.
    - intros h l Q. inversion Q; subst. exists (if left_out r k o then [] else rs).
      repeat split; auto. intro L. rewrite L. reflexivity.
  Qed.
End Op.

Section Late.
  Variable V : Type.
  Variable F : Z -> list V -> Z -> Z -> V.

  (** Memory behind a list of nodes. *)
  Definition behind_all (gs : list (step V)) (m : memory V) : memory V := fold_left (fun m g => does V g m) gs m.

  Lemma untouched : forall i n s k j u m, tidy n ->
    (at_moment (label_of n) = Held -> at_run (label_of n) = s -> at_step (label_of n) <> k) ->
    does V (step_of V F Apart i n) m (key [5; s; k; j]%positive, u) = m (key [5; s; k; j]%positive, u).
  Proof.
    intros i n s k j u m T N. unfold tidy in T. unfold step_of.
    assert (B : forall ws, Forall of_buffers ws -> ~ In (key [5; s; k; j]%positive, u) (flat_map (locs Apart) ws)).
    { intros ws W I. apply in_flat_map in I as [a [A I]]. rewrite Forall_forall in W. destruct (W a A) as [x [l [E X]]].
      unfold locs in I. apply in_map_iff in I as [v [Q _]]. unfold at_ in Q. cbn [place] in Q. rewrite E in Q.
      assert (Q' : key (x :: l) = key [5; s; k; j]%positive) by congruence. apply key_one in Q'. inversion Q'. congruence. }
    assert (P : forall ms, (In (key [5; s; k; j]%positive, u) (map snd (pairs Apart ms)) -> False) ->
      same_does V Apart ms m (key [5; s; k; j]%positive, u) = m (key [5; s; k; j]%positive, u)).
    { intros ms Q. unfold same_does. destruct (apply_cases V (copied V m (pairs Apart ms)) m (key [5; s; k; j]%positive, u)) as [[_ E] | [c [I _]]]; auto.
      exfalso. apply Q. apply (in_map fst) in I. rewrite map_fst_copied in I. exact I. }
    assert (S : forall ms, In (key [5; s; k; j]%positive, u) (map snd (pairs Apart ms)) -> In (key [5; s; k; j]%positive, u) (flat_map (locs Apart) (map snd ms))).
    { intros ms I. apply in_map_iff in I as [[x y] [E I]]. cbn in E. subst. unfold pairs in I.
      apply in_flat_map in I as [p [A I]]. apply in_combine_r in I. apply in_flat_map. exists (snd p). split; auto.
      apply in_map. exact A. }
    destruct (act n) as [rs ws ps | ms ps | ms]; cbn [does].
    - unfold op_does. match goal with |- apply V ?es m ?l = _ => destruct (apply_cases V es m l) as [[_ E] | [c [I _]]] end; auto.
      exfalso. apply (in_map fst) in I. rewrite map_fst_op_effects in I. eapply B; eauto.
    - apply P. intro I. apply S in I. eapply B; eauto.
    - destruct T as [H T]. apply P. intro I. apply S in I. apply in_flat_map in I as [a [A I]].
      apply in_map_iff in A as [p [A Q]]. subst a. destruct (T p Q) as [j' E].
      unfold locs in I. apply in_map_iff in I as [v [R _]]. unfold at_ in R. cbn [place] in R. rewrite E in R.
      assert (R' : key [5; at_run (label_of n); at_step (label_of n); j']%positive = key [5; s; k; j]%positive) by congruence.
      apply key_one in R'. inversion R'. subst. apply (N H); auto.
  Qed.

  Lemma untouched_all : forall ns s k j u m, (forall i n, In (i, n) ns -> tidy n /\
      (at_moment (label_of n) = Held -> at_run (label_of n) = s -> at_step (label_of n) <> k)) ->
    behind_all (steps V F Apart ns) m (key [5; s; k; j]%positive, u) = m (key [5; s; k; j]%positive, u).
  Proof.
    unfold behind_all, steps. induction ns as [ | [i n] ns IH ]; intros s k j u m H; auto. cbn [map fold_left fst snd].
    rewrite IH by (intros; apply (H i0 n0); right; assumption). destruct (H i n) as [T N]; [ left; reflexivity | ].
    apply untouched; assumption.
  Qed.

  (** What a hold keeps. *)
  Lemma keeps_them : forall s k ks m y u, In y (number 1 ks) -> In u (units_of (snd y)) ->
    same_does V Apart (map (fun y => (snd y, kept_in s k y)) (number 1 ks)) m (key [5; s; k; fst y]%positive, u) = m (at_ Apart (snd y) u).
  Proof.
    intros s k ks m y u Y U. unfold same_does.
    assert (In_pairs : forall l p q, In (p, q) (pairs Apart (map (fun y => (snd y, kept_in s k y)) l)) <->
      exists z v, In z l /\ In v (units_of (snd z)) /\ p = at_ Apart (snd z) v /\ q = (key [5; s; k; fst z]%positive, v)).
    { intros l p q. unfold pairs. rewrite in_flat_map. split.
      - intros [x [X I]]. apply in_map_iff in X as [z [E X]]. subst x. cbn [fst snd] in I. exists z.
        unfold locs in I. change (units_of (kept_in s k z)) with (units_of (snd z)) in I.
        assert (G : forall us, In (p, q) (combine (map (at_ Apart (snd z)) us) (map (at_ Apart (kept_in s k z)) us)) ->
          exists v, In v us /\ p = at_ Apart (snd z) v /\ q = (key [5; s; k; fst z]%positive, v)).
        { induction us as [ | v us IH ]; cbn [map combine]; intro C; [ contradiction | ]. destruct C as [C | C].
          - inversion C; subst. exists v. split; [ left; reflexivity | ]. split; reflexivity.
          - apply IH in C as [w [W C]]. exists w. split; [ right; exact W | exact C ]. }
        apply G in I as [v [A B]]. exists v. auto.
      - intros [z [v [Z0 [Vu [P Q]]]]]. exists (snd z, kept_in s k z). split; [ apply in_map_iff; exists z; auto | ].
        cbn [fst snd]. unfold locs. change (units_of (kept_in s k z)) with (units_of (snd z)).
        revert Vu. induction (units_of (snd z)) as [ | w us IH ]; cbn [map combine]; intro C; [ contradiction | ].
        destruct C as [C | C]; [ left; subst; reflexivity | right; auto ]. }
    match goal with |- apply V ?es m ?l = _ => destruct (apply_cases V es m l) as [[N _] | [c [I E]]] end.
    - exfalso. apply N. rewrite map_fst_copied. apply in_map_iff. eexists (at_ Apart (snd y) u, _). split; [ reflexivity | ].
      apply In_pairs. exists y, u. auto.
    - rewrite E. unfold copied in I. apply in_map_iff in I as [[p q] [P I]]. cbn [fst snd] in P. inversion P; subst.
      apply In_pairs in I as [z [v [Z0 [_ [A B]]]]].
      assert (K : key [5; s; k; fst y]%positive = key [5; s; k; fst z]%positive) by congruence. apply key_one in K. inversion K as [K'].
      assert (v = u) by congruence. subst v. destruct y as [j a], z as [j' a']. cbn [fst snd] in *. subst j'.
      rewrite (number_unique _ _ _ _ _ _ Y Z0), <- A. congruence.
  Qed.

  (** Every late read of the list has its hold in front of it. *)
  Lemma opened_nodes : forall d t os i o, opened_all d = Some (t, os) -> In (i, o) (number 1 os) ->
    exists count r accs ns p, (forall v a, PositiveMap.find v accs = Some a -> of_buffers a) /\
      In (i, r) (number 1 (session d)) /\
      all (nodes_of_op count i r accs) (number 1 (ops p)) = Some ns /\ own_nodes o = map fst ns /\
      late_nodes o = flat_map (fun n => match snd n with Some l => [l] | None => [] end) ns.
  Proof.
    intros d t os i o H I. unfold opened_all in H. destruct (infos_of d); [ | discriminate].
    destruct (all _ _) as [os' | ] eqn:A; [ | discriminate]. inversion H; subst.
    destruct (all_number _ _ _ _ _ _ A _ _ I) as [r [R E]]. unfold open_run in E.
    destruct (PositiveMap.find (of_program r) _) as [p | ]; [ | discriminate].
    destruct (PositiveMap.find (by_plan r) _) as [ss | ]; [ | discriminate].
    destruct (PositiveMap.find i t) as [inf | ]; [ | discriminate]. destruct (both _ _) as [bs | ]; [ | discriminate].
    destruct (all (access_in _) _) as [accs | ] eqn:Ac; [ | discriminate].
    destruct (all (nodes_of_op _ _ _ _) _) as [ns | ] eqn:N; [ | discriminate]. inversion E; subst.
    eexists. exists r. eexists. exists ns, p. split; [ | split; [ exact R | split; [ exact N | split; reflexivity ] ] ].
    intros v a F0. apply table_find in F0. apply number_in in F0. destruct (all_in _ _ _ _ _ _ Ac F0) as [x [_ X]].
    unfold access_in in X. destruct (PositiveMap.find (lies_in x) _) as [[id [sp b]] | ] eqn:P; [ | discriminate].
    inversion X; subst. apply table_find in P. apply number_in in P. apply in_map_iff in P as [[b' [bf sl]] [P _]].
    unfold place_of in P. inversion P; subst. unfold of_buffers. cbn [ident]. apply own_of_buffers.
  Qed.

  Lemma in_nodes : forall d n, In n (nodes d) -> tidy n /\ (is_late (label_of n) = true ->
    exists h ks, In h (nodes d) /\ at_run (label_of h) = at_run (label_of n) /\ at_step (label_of h) = at_step (label_of n) /\
      at_moment (label_of h) = Held /\ sooner (label_of h) (label_of n) /\
      act h = Hold (map (fun y => (snd y, kept_in (at_run (label_of n)) (at_step (label_of n)) y)) (number 1 ks)) /\
      act n = Op (map (found_in (at_run (label_of n)) (at_step (label_of n))) (number 1 ks)) [] []).
  Proof.
    intros d n I. unfold nodes, joined in *. destruct (opened_all d) as [[t os] | ] eqn:E; [ | contradiction ].
    assert (Own : forall i o m, In (i, o) (number 1 os) -> In m (own_nodes o) -> In m (in_order os)).
    { intros i o m O M. unfold in_order. apply in_flat_map. exists (i, o). split; auto. apply in_or_app. auto. }
    unfold in_order in I. apply in_flat_map in I as [[i o] [O I]]. cbn [fst snd] in I. apply in_app_or in I as [I | I].
    - destruct (opened_nodes _ _ _ _ _ E O) as [count [r [accs [ns [p [Pl [_ [A [On _]]]]]]]]]. rewrite On in I.
      pose proof (ops_labels _ _ _ _ _ _ _ A) as [L _].
      apply in_map_iff in I as [[n' m] [X I]]. cbn in X. subst n'. destruct (all_in _ _ _ _ _ _ A I) as [[k op] [_ X]].
      split; [ apply (op_nodes _ _ _ _ Pl _ _ _ _ X) | ]. destruct (L _ _ I) as [_ [Z0 _]]. congruence.
    - apply behind_group in I. apply in_flat_map in I as [o' [O' I]].
      destruct (number_has _ _ 1%positive _ O') as [i' J]. destruct (opened_nodes _ _ _ _ _ E J) as [count [r [accs [ns [p [Pl [_ [A [On Ln]]]]]]]]].
      rewrite Ln in I. apply in_flat_map in I as [[h [[b l] | ]] [I X]]; [ | contradiction ]. cbn [snd] in X.
      destruct X as [X | []]. inversion X; subst b l. destruct (all_in _ _ _ _ _ _ A I) as [[k op] [_ Y]].
      destruct (op_nodes _ _ _ _ Pl _ _ _ _ Y) as [_ Z0]. destruct (Z0 _ _ eq_refl) as [ks [H1 [H2 [H3 [H4 [H5 [H6 [H7 _]]]]]]]].
      split; [ unfold tidy; rewrite H7; constructor | ]. intros _. exists h, ks. rewrite H1, H4, H5. cbn [at_run at_step at_moment].
      repeat split; auto.
      + apply (Own i' o'); auto. rewrite On. apply in_map_iff. exists (h, Some (i, n)). auto.
      + left. unfold anchor. cbn [at_moment at_run]. rewrite H3. exact H6.
  Qed.

  Lemma number_app : forall A (a b : list A) i, exists j, number i (a ++ b) = number i a ++ number j b.
  Proof.
    induction a as [ | x a IH ]; intros b i; [ exists i; reflexivity | ]. cbn [app number].
    destruct (IH b (Pos.succ i)) as [j J]. exists j. rewrite J. reflexivity.
  Qed.

  Lemma pairs_split : forall A (R : A -> A -> Prop) a x b, ForallOrdPairs R (a ++ x :: b) ->
    (forall y, In y a -> R y x) /\ (forall y, In y b -> R x y).
  Proof.
    induction a as [ | z a IH ]; intros x b H; cbn [app] in H; inversion H as [ | ? ? P Q ]; subst.
    - split; [ contradiction | ]. rewrite Forall_forall in P. exact P.
    - apply IH in Q as [Q1 Q2]. split; [ | exact Q2 ]. intros y [Y | Y]; auto. subst. rewrite Forall_forall in P.
      apply P. apply in_or_app. right. left. reflexivity.
  Qed.

  (** Apart, in the order of the list, a read that comes late finds what its operands hold where its hold stands,
      at its own place: nobody writes what is kept. *)
  Theorem late_finds : forall d front l post, nodes d = front ++ l :: post -> is_late (label_of l) = true ->
    exists pre h mid ks, front = pre ++ h :: mid /\
      at_run (label_of h) = at_run (label_of l) /\ at_step (label_of h) = at_step (label_of l) /\
      at_moment (label_of h) = Held /\
      act l = Op (map (found_in (at_run (label_of l)) (at_step (label_of l))) (number 1 ks)) [] [] /\
      forall i j ms k m, number i mid = ms ->
        map (behind_all (step_of V F Apart j h :: steps V F Apart ms) m) (reads V (step_of V F Apart k l)) =
        map m (flat_map (locs Apart) ks).
  Proof.
    intros d front l post E L. assert (I : In l (nodes d)) by (rewrite E; apply in_or_app; right; left; reflexivity).
    destruct (in_nodes d l I) as [_ G]. destruct (G L) as [h [ks [H1 [H2 [H3 [H4 [H5 [H6 H7]]]]]]]]. clear G.
    destruct (forward d) as [Fw _]. rewrite E in Fw. pose proof (pairs_split _ _ _ _ _ Fw) as [_ After].
    assert (Hf : In h front).
    { rewrite E in H1. apply in_app_or in H1 as [H1 | [H1 | H1]]; auto.
      - subst. unfold is_late in L. rewrite H4 in L. discriminate.
      - destruct (After _ H1) as [A _]. contradiction. }
    apply in_split in Hf as [pre [mid Q]]. exists pre, h, mid, ks. repeat split; auto. intros i j ms k m Ms.
    set (s := at_run (label_of l)) in *. set (w := at_step (label_of l)) in *.
    assert (T : forall i n, In (i, n) ms -> tidy n /\
      (at_moment (label_of n) = Held -> at_run (label_of n) = s -> at_step (label_of n) <> w)).
    { intros i0 n N. subst ms. apply number_in in N. split.
      - apply (in_nodes d). rewrite E, Q. apply in_or_app. left. apply in_or_app. right. right. exact N.
      - intros A B C. rewrite Q in Fw. rewrite <- app_assoc in Fw. cbn [app] in Fw.
        apply pairs_split in Fw as [_ Fw]. destruct (Fw n) as [_ S]; [ apply in_or_app; left; exact N | ].
        unfold sooner, is_late, anchor in S. rewrite H4, A in S. destruct (S eq_refl eq_refl) as [S' | [_ [_ [S' | S']]]];
          [ lia | discriminate | lia ]. }
    unfold behind_all. cbn [fold_left]. fold (behind_all (steps V F Apart ms) (does V (step_of V F Apart j h) m)).
    assert (R : reads V (step_of V F Apart k l) = flat_map (locs Apart) (map (found_in s w) (number 1 ks)))
      by (unfold step_of; rewrite H7; reflexivity).
    rewrite R. assert (Dh : does V (step_of V F Apart j h) m =
      same_does V Apart (map (fun y => (snd y, kept_in s w y)) (number 1 ks)) m) by (unfold step_of; rewrite H6; reflexivity).
    rewrite Dh. clear R Dh.
    assert (G : forall q l0, (forall y, In y (number q l0) -> In y (number 1 ks)) ->
      map (behind_all (steps V F Apart ms) (same_does V Apart (map (fun y => (snd y, kept_in s w y)) (number 1 ks)) m))
        (flat_map (locs Apart) (map (found_in s w) (number q l0))) = map m (flat_map (locs Apart) l0)).
    { intros q l0. revert q. induction l0 as [ | a l0 IH ]; intros q Inc; [ reflexivity | ].
      cbn [number map flat_map]. rewrite !map_app. f_equal; [ | apply IH; intros y Y; apply Inc; right; exact Y ].
      unfold locs. rewrite !map_map. change (units_of (found_in s w (q, a))) with (units_of a).
      apply map_ext_in. intros u U. unfold at_ at 1. cbn [place shift found_in ident fst]. rewrite Z.add_0_l.
      rewrite untouched_all by exact T. apply (keeps_them s w ks m (q, a) u); [ apply Inc; left; reflexivity | exact U ]. }
    apply G. auto.
  Qed.
End Late.
