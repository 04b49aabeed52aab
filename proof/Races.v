(** The checker of races: it goes over the list once, with the claimed clock of each node.

    A clock says of each chain how far it is known: the last node of that chain that happens before
    a node, or is it.  Of each address the tree keeps the last write, and the reads since then that
    no other of them is known to follow.  An access is refused where its clock does not cover them.

    What this file does not see: tags and values ([Reads]). *)

From Coq Require Import ZArith List Bool Lia FMapPositive Relations.
From Proof Require Import Layout Tree Model Terms Reads.
Import ListNotations.
Open Scope Z_scope.

(** A node, and the chain it is on. *)
Definition stamp := (positive * positive)%type.
Definition touched := (option stamp * list stamp)%type.
Definition clock := PositiveMap.t positive.
Definition claim := list (positive * positive).

(** A read or a write of addresses [low, high) of a space. *)
Record touch := Touch { writing : bool; t_space : positive; low : Z; high : Z }.

Section Races.
  Variable d : nat.
  Variable size : Z.
  Hypothesis sized : size = 2 ^ Z.of_nat d.
  Variable grain : Z.
  (** Units that hardware writes together: 8 where units are bits, else 1. *)

  Definition bound (w : bool) (a : access) (r : run) : touch :=
    let from := base a + fst r in
    let upto := from + snd r in
    Touch w (space a) (grain * (from / grain)) (grain * ((upto + grain - 1) / grain)).

  Definition touches_of (w : bool) (a : access) : list touch := map (bound w a) (runs (start a) (dims a) (len a)).

  (** Whether a move leaves all where it is. *)
  Definition rests (mv : access * access) : bool :=
    let '(a, b) := mv in
    (space a =? space b)%positive &&
    (let xs := map (fun r => (r, tt)) (rows (start a) (dims a) (len a)) in
     let ys := rows (start b) (dims b) (len b) in
     match aligned (fuel xs ys) xs ys with
     | Some zs => forallb (fun z => base a + fst (left z) =? base b + fst (right z)) zs
     | None => false
     end).

  Definition touches (n : node) : list touch :=
    match act n with
    | Op rs ws _ => flat_map (touches_of false) rs ++ flat_map (touches_of true) ws
    | Same ms =>
        flat_map (fun p => touches_of false (fst p)) ms ++
        flat_map (fun p => if rests p then [] else touches_of true (snd p)) ms
    | Hold _ => []
    end.

  Definition tree_of (t : PositiveMap.t (tree touched)) (sp : positive) : tree touched :=
    match PositiveMap.find sp t with Some tr => tr | None => Leaf (None, []) end.

  Definition known (c : clock) (j : positive) (s : stamp) : bool :=
    (fst s =? j)%positive ||
    match PositiveMap.find (snd s) c with Some m => (fst s <=? m)%positive | None => false end.

  Definition last_known c j (x : touched) : bool := match fst x with Some s => known c j s | None => true end.
  Definition all_known c j (x : touched) : bool := last_known c j x && forallb (known c j) (snd x).
  Definition read_by c j (s : stamp) (x : touched) : touched :=
    (fst x, s :: filter (fun r => negb (known c j r)) (snd x)).

  Definition apply_touch (c : clock) (j : positive) (s : stamp) (t : PositiveMap.t (tree touched)) (x : touch) :
    option (PositiveMap.t (tree touched)) :=
    let tr := tree_of t (t_space x) in
    if (0 <=? low x) && (high x <=? size) &&
       test (if writing x then all_known c j else last_known c j) d size tr (low x) (high x)
    then Some (PositiveMap.add (t_space x)
      (if writing x then fill d size tr (low x) (high x) (Some s, [])
       else modify (read_by c j s) d size tr (low x) (high x)) t)
    else None.

  Fixpoint apply_touches c j s t (xs : list touch) : option (PositiveMap.t (tree touched)) :=
    match xs with
    | [] => Some t
    | x :: xs' => match apply_touch c j s t x with Some t' => apply_touches c j s t' xs' | None => None end
    end.

  Definition at_loc (t : PositiveMap.t (tree touched)) (l : loc) : option touched :=
    if inside 0 size (snd l) then get d size (tree_of t (fst l)) (snd l) else None.

  Definition hit (x : touch) (l : loc) : Prop := fst l = t_space x /\ low x <= snd l < high x.

  Lemma tree_of_same : forall t sp tr, tree_of (PositiveMap.add sp tr t) sp = tr.
  Proof. intros. unfold tree_of. rewrite PositiveMap.gss. reflexivity. Qed.

  Lemma tree_of_other : forall t sp sp' tr, sp <> sp' -> tree_of (PositiveMap.add sp' tr t) sp = tree_of t sp.
  Proof. intros. unfold tree_of. rewrite PositiveMap.gso by assumption. reflexivity. Qed.

  Lemma apply_touch_spec : forall c j s t x t', apply_touch c j s t x = Some t' ->
    (forall l, ~ hit x l -> at_loc t' l = at_loc t l) /\
    (forall l, hit x l -> exists v, at_loc t l = Some v /\
       (if writing x then all_known c j v = true /\ at_loc t' l = Some (Some s, [])
        else last_known c j v = true /\ at_loc t' l = Some (read_by c j s v))).
  Proof.
    intros c j s t x t' H. unfold apply_touch in H.
    destruct (_ && _) eqn:C; [ | discriminate]. inversion H; subst t'. clear H.
    rewrite !andb_true_iff, !Z.leb_le in C. destruct C as [[C1 C2] C3]. split.
    - intros [sp y] N. unfold at_loc, hit in *. cbn [fst snd] in *. destruct (inside 0 size y) eqn:I; auto.
      apply inside_true in I. destruct (Pos.eq_dec sp (t_space x)) as [E | E].
      + subst sp. rewrite tree_of_same. rewrite sized in *.
        destruct (inside (low x) (high x) y) eqn:J; [ apply inside_true in J; tauto | ].
        destruct (writing x); [ rewrite get_fill by exact I | rewrite get_modify by exact I ]; rewrite J; reflexivity.
      + rewrite tree_of_other by exact E. reflexivity.
    - intros [sp y] [E J]. unfold at_loc. cbn [fst snd] in *. subst sp.
      assert (I : inside 0 size y = true) by (apply inside_true; lia). rewrite I. apply inside_true in I.
      rewrite sized in *. destruct (test_get _ _ _ _ _ y C3 I J) as [v [G P]].
      exists v. split; auto. rewrite tree_of_same.
      assert (K : inside (low x) (high x) y = true) by (apply inside_true; exact J).
      destruct (writing x).
      + split; auto. rewrite get_fill by exact I. rewrite K. reflexivity.
      + split; auto. rewrite get_modify by exact I. rewrite K, G. reflexivity.
  Qed.

  Section Order.
    Variable ns : list node.
    Let nodes := number 1 ns.

    Definition upto (i j : positive) : Prop := i = j \/ before ns i j.

    Lemma upto_trans : forall i j k, upto i j -> upto j k -> upto i k.
    Proof.
      unfold upto. intros i j k [A | A] [B | B]; subst; auto. right. eapply t_trans; eauto.
    Qed.

    (** What a clock says of node j is so. *)
    Definition true_clock (j : positive) (c : clock) : Prop :=
      forall s m i n, PositiveMap.find s c = Some m -> In (i, n) nodes -> chain n = s -> (i <= m)%positive -> upto i j.

    Definition true_stamp (s : stamp) : Prop := exists n, In (fst s, n) nodes /\ chain n = snd s.

    Lemma known_true : forall c j s, true_clock j c -> true_stamp s -> known c j s = true -> upto (fst s) j.
    Proof.
      intros c j [i ch] T [n [I E]] K. unfold known in K. cbn [fst snd] in *. apply orb_true_iff in K as [K | K].
      - apply Pos.eqb_eq in K. left. exact K.
      - destruct (PositiveMap.find ch c) as [m | ] eqn:F; [ | discriminate]. apply Pos.leb_le in K.
        eapply T; eauto.
    Qed.

    Definition true_cell (v : touched) : Prop :=
      (forall s, fst v = Some s -> true_stamp s) /\ Forall true_stamp (snd v).
    Definition true_tree (t : PositiveMap.t (tree touched)) : Prop := forall l v, at_loc t l = Some v -> true_cell v.

    (** Node i's write, or read, of a location is before one that is kept there. *)
    Definition wrote (t : PositiveMap.t (tree touched)) (i : positive) (l : loc) : Prop :=
      exists s rs, at_loc t l = Some (Some s, rs) /\ upto i (fst s).
    Definition read (t : PositiveMap.t (tree touched)) (i : positive) (l : loc) : Prop :=
      wrote t i l \/ exists w rs s, at_loc t l = Some (w, rs) /\ In s rs /\ upto i (fst s).

    Lemma hit_dec : forall x l, hit x l \/ ~ hit x l.
    Proof.
      intros x [sp y]. unfold hit. cbn. destruct (Pos.eq_dec sp (t_space x)), (Z_le_dec (low x) y), (Z_lt_dec y (high x)); tauto.
    Qed.

    Lemma touch_true : forall c j s t x t', true_clock j c -> fst s = j -> true_stamp s -> true_tree t ->
      apply_touch c j s t x = Some t' ->
      true_tree t' /\
      (forall i l, wrote t i l -> wrote t' i l) /\ (forall i l, read t i l -> read t' i l) /\
      (forall l, hit x l -> (forall i, wrote t i l -> upto i j) /\
         (if writing x then wrote t' j l /\ (forall i, read t i l -> upto i j) else read t' j l)).
    Proof.
      intros c j s t x t' TC SJ TS TT H. apply apply_touch_spec in H as [Out In_].
      assert (LK : forall v, true_cell v -> last_known c j v = true -> forall s', fst v = Some s' -> upto (fst s') j).
      { intros v [A B] L s' E. unfold last_known in L. rewrite E in L. eapply known_true; eauto. }
      assert (WR : forall i l v, wrote t i l -> at_loc t l = Some v -> last_known c j v = true -> upto i j).
      { intros i l v [s' [rs [E U]]] E' L. rewrite E in E'. inversion E'; subst v.
        eapply upto_trans; [ exact U | ]. eapply LK; eauto. }
      assert (RD : forall i l v, read t i l -> at_loc t l = Some v -> all_known c j v = true -> upto i j).
      { intros i l v [W | [w [rs [s' [E [I U]]]]]] E' L; unfold all_known in L; apply andb_prop in L as [L1 L2].
        - eapply WR; eauto.
        - rewrite E in E'. inversion E'; subst v. cbn [snd] in L2. rewrite forallb_forall in L2.
          eapply upto_trans; [ exact U | ]. apply TT in E as [_ B]. rewrite Forall_forall in B.
          eapply known_true; eauto. }
      assert (UJ : upto j (fst s)) by (left; congruence).
      repeat split.
      - destruct (hit_dec x l) as [Hh | Hh].
        + apply In_ in Hh as [v' [E B]]. destruct (writing x); destruct B as [B1 B2]; rewrite B2 in H; inversion H; subst v.
          * intros s' S'. cbn in S'. inversion S'; subst. exact TS.
          * apply TT in E as [A _]. exact A.
        + rewrite Out in H by assumption. apply TT in H. apply H.
      - destruct (hit_dec x l) as [Hh | Hh].
        + apply In_ in Hh as [v' [E B]]. destruct (writing x); destruct B as [B1 B2]; rewrite B2 in H; inversion H; subst v.
          * constructor.
          * cbn [snd read_by]. constructor; auto. apply TT in E as [_ A]. rewrite Forall_forall in *.
            intros y Y. apply filter_In in Y as [Y _]. auto.
        + rewrite Out in H by assumption. apply TT in H. apply H.
      - intros i l W. destruct (hit_dec x l) as [Hh | Hh].
        + apply In_ in Hh as [v [E B]]. destruct (writing x); destruct B as [B1 B2].
          * exists s, []. split; auto. rewrite SJ. unfold all_known in B1. apply andb_prop in B1 as [B1 _]. eapply WR; eauto.
          * destruct W as [s' [rs [E' U]]]. rewrite E in E'. inversion E'; subst v.
            exists s'. eexists. split; [ exact B2 | exact U ].
        + destruct W as [s' [rs [E' U]]]. exists s', rs. rewrite Out by assumption. auto.
      - intros i l R. destruct (hit_dec x l) as [Hh | Hh].
        + apply In_ in Hh as [v [E B]]. destruct (writing x); destruct B as [B1 B2].
          * left. exists s, []. split; auto. rewrite SJ. eapply RD; eauto.
          * destruct R as [[s' [rs [E' U]]] | [w [rs [s' [E' [I U]]]]]]; rewrite E in E'; inversion E'; subst v.
            -- left. exists s'. eexists. split; [ exact B2 | exact U ].
            -- right. exists w. eexists. destruct (known c j s') eqn:K.
               ++ exists s. split; [ exact B2 | ]. split; [ left; reflexivity | ]. rewrite SJ.
                  eapply upto_trans; [ exact U | ]. apply TT in E as [_ A]. rewrite Forall_forall in A.
                  eapply known_true; eauto.
               ++ exists s'. split; [ exact B2 | ]. split; auto. right. apply filter_In. rewrite K. auto.
        + destruct R as [[s' [rs [E' U]]] | [w [rs [s' [E' [I U]]]]]].
          * left. exists s', rs. rewrite Out by assumption. auto.
          * right. exists w, rs, s'. rewrite Out by assumption. auto.
      - intros i W. apply In_ in H as [v [E B]]. destruct (writing x); destruct B as [B1 B2].
        + unfold all_known in B1. apply andb_prop in B1 as [B1 _]. eapply WR; eauto.
        + eapply WR; eauto.
      - apply In_ in H as [v [E B]]. destruct (writing x); destruct B as [B1 B2].
        + split; [ exists s, []; auto | ]. intros i R. eapply RD; eauto.
        + right. exists (fst v). eexists. exists s. split; [ exact B2 | ]. split; [ left; reflexivity | exact UJ ].
    Qed.

    Lemma touches_true : forall xs c j s t t', true_clock j c -> fst s = j -> true_stamp s -> true_tree t ->
      apply_touches c j s t xs = Some t' ->
      true_tree t' /\
      (forall i l, wrote t i l -> wrote t' i l) /\ (forall i l, read t i l -> read t' i l) /\
      (forall x l, In x xs -> hit x l -> (forall i, wrote t i l -> upto i j) /\
         (if writing x then wrote t' j l /\ (forall i, read t i l -> upto i j) else read t' j l)).
    Proof.
      induction xs as [ | x xs IH ]; intros c j s t t' TC SJ TS TT H; simpl in H.
      - inversion H; subst. split; auto. split; auto. split; auto. intros x l [].
      - destruct (apply_touch c j s t x) as [t1 | ] eqn:E; [ | discriminate].
        apply touch_true in E as [T1 [W1 [R1 H1]]]; auto.
        apply IH in H as [T2 [W2 [R2 H2]]]; auto.
        split; [ exact T2 | ]. split; [ auto | ]. split; [ auto | ].
        intros y l [Y | Y] Hh.
        + subst y. destruct (H1 l Hh) as [A B]. split; auto. destruct (writing x); [ destruct B; split; auto | auto ].
        + destruct (H2 y l Y Hh) as [A B]. split; auto. destruct (writing y); [ destruct B; split; auto | auto ].
    Qed.

    (** Clocks. *)
    Definition justified (clocks : PositiveMap.t clock) (i ch : positive) (preds : list positive) (e : positive * positive) : bool :=
      ((fst e =? ch)%positive && (snd e =? i)%positive) ||
      existsb (fun p => match PositiveMap.find p clocks with
                        | Some c => match PositiveMap.find (fst e) c with Some m => (snd e <=? m)%positive | None => false end
                        | None => false end) preds.

    Definition of_claim (l : claim) : clock := fold_left (fun c e => PositiveMap.add (fst e) (snd e) c) l (PositiveMap.empty _).

    Lemma of_claim_in : forall l s m, PositiveMap.find s (of_claim l) = Some m -> In (s, m) l.
    Proof.
      unfold of_claim. induction l as [ | [s' m'] l IH ] using rev_ind; intros s m H.
      - rewrite PositiveMap.gempty in H. discriminate.
      - rewrite fold_left_app in H. cbn [fold_left fst snd] in H. apply in_or_app.
        destruct (Pos.eq_dec s s') as [E | E].
        + subst. rewrite PositiveMap.gss in H. inversion H; subst. right. left. reflexivity.
        + rewrite PositiveMap.gso in H by congruence. left. auto.
    Qed.

    Definition preds_of (lasts : PositiveMap.t positive) (n : node) : list positive :=
      match PositiveMap.find (chain n) lasts with Some p => p :: after n | None => after n end.

    Definition true_clocks (i : positive) (clocks : PositiveMap.t clock) (lasts : PositiveMap.t positive) : Prop :=
      (forall p c, PositiveMap.find p clocks = Some c -> true_clock p c /\ exists n, In (p, n) nodes) /\
      (forall s p, PositiveMap.find s lasts = Some p -> (p < i)%positive /\ exists n, In (p, n) nodes /\ chain n = s).

    Lemma justified_true : forall i n clocks lasts cl, In (i, n) nodes -> true_clocks i clocks lasts ->
      forallb (justified clocks i (chain n) (preds_of lasts n)) cl = true -> true_clock i (of_claim cl).
    Proof.
      intros i n clocks lasts cl I [TC TL] H s m k nk F K C L. apply of_claim_in in F.
      rewrite forallb_forall in H. apply H in F. unfold justified in F. cbn [fst snd] in F.
      apply orb_true_iff in F as [F | F].
      - apply andb_prop in F as [F1 F2]. apply Pos.eqb_eq in F1, F2. subst.
        destruct (Pos.eq_dec k i) as [E | E]; [ left; exact E | ]. right. apply t_step. exists nk, n.
        repeat split; auto. left. split; auto. lia.
      - apply existsb_exists in F as [p [P F]].
        destruct (PositiveMap.find p clocks) as [c | ] eqn:Fc; [ | discriminate].
        destruct (PositiveMap.find s c) as [m' | ] eqn:Fs; [ | discriminate]. apply Pos.leb_le in F.
        destruct (TC p c Fc) as [T [np Np]].
        apply upto_trans with (j := p).
        + eapply T; eauto. lia.
        + right. apply t_step. exists np, n. repeat split; auto. unfold preds_of in P.
          destruct (PositiveMap.find (chain n) lasts) as [q | ] eqn:Fl.
          * destruct P as [P | P]; [ subst q | right; exact P ].
            destruct (TL _ _ Fl) as [A [nq [B B']]]. left. split; auto.
            rewrite (number_unique _ _ _ _ _ _ Np B). exact B'.
          * right. exact P.
    Qed.

    (** One node, and all of them. *)
    Fixpoint check_order (clocks : PositiveMap.t clock) (lasts : PositiveMap.t positive) (t : PositiveMap.t (tree touched))
      (todo : list (positive * node)) (cls : list claim) : option positive :=
      match todo, cls with
      | [], _ => None
      | (i, n) :: todo', cl :: cls' =>
          if forallb (justified clocks i (chain n) (preds_of lasts n)) cl then
            let c := of_claim cl in
            match apply_touches c i (i, chain n) t (touches n) with
            | Some t' => check_order (PositiveMap.add i c clocks) (PositiveMap.add (chain n) i lasts) t' todo' cls'
            | None => Some i
            end
          else Some i
      | (i, _) :: _, [] => Some i
      end.

    (** What a step of the model touches, the checker counts. *)
    Variable V : Type.
    Variable F : Z -> list V -> Z -> Z -> V.
    Hypothesis grains : 0 < grain.

    Lemma rounded : forall x, grain * (x / grain) <= x < grain * ((x + 1 + grain - 1) / grain).
    Proof.
      intros. pose proof (Z.div_mod x grain ltac:(lia)). pose proof (Z.mod_pos_bound x grain grains).
      replace (x + 1 + grain - 1) with (x + 1 * grain) by lia. rewrite Z.div_add by lia. lia.
    Qed.

    Lemma hit_bound : forall w a l, In l (locs Planned a) -> exists x, In x (touches_of w a) /\ writing x = w /\ hit x l.
    Proof.
      intros w a l H. unfold locs in H. apply in_map_iff in H as [u [E U]]. apply runs_exact in U.
      unfold flat in U. apply in_flat_map in U as [r [R U]]. apply in_range in U.
      exists (bound w a r). split; [ apply in_map; exact R | ]. split; [ reflexivity | ].
      subst l. unfold hit, bound. cbn. split; [ reflexivity | ].
      pose proof (rounded (base a + u)) as [A B].
      assert (base a + fst r <= base a + u) by lia. assert (base a + u + 1 <= base a + fst r + snd r) by lia.
      split.
      - eapply Z.le_trans; [ | exact A ]. apply Z.mul_le_mono_nonneg_l; [ lia | ]. apply Z.div_le_mono; lia.
      - eapply Z.lt_le_trans; [ exact B | ]. apply Z.mul_le_mono_nonneg_l; [ lia | ]. apply Z.div_le_mono; lia.
    Qed.

    Lemma rests_true : forall a b p, rests (a, b) = true -> In p (combine (locs Planned a) (locs Planned b)) -> fst p = snd p.
    Proof.
      intros a b p R I. unfold rests in R. apply andb_prop in R as [R1 R2]. apply Pos.eqb_eq in R1.
      destruct (aligned _ _ _) as [zs | ] eqn:E; [ | discriminate]. apply aligned_spec in E as [E1 [E2 _]].
      unfold bare in E1. rewrite map_map in E1. cbn [fst] in E1. rewrite map_id in E1.
      rewrite flat_rows in E1, E2. rewrite forallb_forall in R2. unfold locs, units_of in I. rewrite E1, E2 in I.
      assert (G : forall zs, (forall z, In z zs -> (base a + fst (left z) =? base b + fst (right z)) = true) ->
        map (at_ Planned a) (flat (map (@left unit) zs)) = map (at_ Planned b) (flat (map right zs))).
      { clear - R1. induction zs as [ | [[[x y] l] q] zs IH ]; intros H; auto.
        unfold flat in *. cbn [map left right flat_map fst snd]. rewrite !map_app. f_equal.
        - pose proof (H _ (or_introl eq_refl)) as E. cbn in E. apply Z.eqb_eq in E. unfold range.
          revert x y H E. induction (Z.to_nat l); intros; cbn [from map]; auto. f_equal.
          + unfold at_. cbn. f_equal; auto. 
          + apply (IHn (x + 1) (y + 1)); [ | lia ]. intros z [Z0 | Z0]; [ subst z; cbn; apply Z.eqb_eq; lia | ].
            apply H. right. exact Z0.
        - apply IH. intros z Z0. apply H. right. exact Z0. }
      rewrite (G zs R2) in I. destruct p as [p q]. cbn [fst snd].
      clear - I. revert I. generalize (map (at_ Planned b) (flat (map right zs))). intro l.
      induction l; simpl; intros; [ contradiction | ]. destruct I as [I | I]; [ inversion I; auto | auto ].
    Qed.

    Lemma reads_counted : forall i n l, In l (reads V (step_of V F Planned i n)) ->
      exists x, In x (touches n) /\ writing x = false /\ hit x l.
    Proof.
      intros i n l H. unfold step_of in H. unfold touches.
      destruct (act n) as [rs ws ps | ms | ms]; simpl in H; [ | | contradiction ];
        apply in_flat_map in H as [a [A B]]; apply (hit_bound false) in B as [x [X Y]]; exists x; split; auto;
        apply in_or_app; left; apply in_flat_map; eauto.
    Qed.

    Lemma writes_counted : forall i n l, In l (writes V (step_of V F Planned i n)) ->
      exists x, In x (touches n) /\ writing x = true /\ hit x l.
    Proof.
      intros i n l H. unfold step_of in H. unfold touches.
      destruct (act n) as [rs ws ps | ms | ms]; simpl in H; [ | | contradiction ].
      - apply in_flat_map in H as [a [A B]]. apply (hit_bound true) in B as [x [X Y]]. exists x. split; auto.
        apply in_or_app. right. apply in_flat_map. eauto.
      - apply in_map_iff in H as [p [E P]]. apply filter_In in P as [P M]. unfold pairs in P.
        apply in_flat_map in P as [[a b] [A P]]. cbn [fst snd] in P.
        destruct (rests (a, b)) eqn:R.
        + apply (rests_true _ _ _ R) in P. unfold moving in M. destruct (loc_eq (fst p) (snd p)); congruence.
        + destruct p as [q r]. cbn in E. subst r. apply in_combine_r in P. apply (hit_bound true) in P as [x [X Y]].
          exists x. split; auto. apply in_or_app. right. apply in_flat_map. exists (a, b). rewrite R. auto.
    Qed.

    Definition covered (j : positive) (t : PositiveMap.t (tree touched)) : Prop :=
      forall i n, In (i, n) nodes -> (i < j)%positive ->
        (forall l, In l (writes V (step_of V F Planned i n)) -> wrote t i l) /\
        (forall l, In l (reads V (step_of V F Planned i n)) -> read t i l).

    Lemma meets_ordered : forall todo i clocks lasts t cls,
      incl (number i todo) nodes ->
      true_clocks i clocks lasts -> true_tree t -> covered i t ->
      check_order clocks lasts t (number i todo) cls = None ->
      forall x nx y ny, In (x, nx) nodes -> In (y, ny) (number i todo) -> (x < y)%positive ->
        meet V (step_of V F Planned x nx) (step_of V F Planned y ny) -> upto x y.
    Proof.
      induction todo as [ | n todo IH ]; intros i clocks lasts t cls Inc TC TT CV C x nx y ny X Y L M;
        cbn [number] in *; [ contradiction | ].
      destruct cls as [ | cl cls ]; simpl in C; [ discriminate | ].
      destruct (forallb _ cl) eqn:J; [ | discriminate].
      destruct (apply_touches _ _ _ _ _) as [t' | ] eqn:A; [ | discriminate].
      assert (I : In (i, n) nodes).
      { apply Inc. left. reflexivity. }
      pose proof (justified_true _ _ _ _ _ I TC J) as TK.
      assert (TS : true_stamp (i, chain n)) by (exists n; auto).
      apply touches_true in A as [T1 [W1 [R1 H1]]]; auto.
      destruct Y as [Y | Y].
      - inversion Y; subst y ny. destruct (CV x nx X L) as [CW CR].
        destruct M as [l [[Wx [Ry | Wy]] | [Wy Rx]]].
        + apply reads_counted in Ry as [z [Z1 [_ Z2]]]. apply (H1 z l Z1 Z2). auto.
        + apply writes_counted in Wy as [z [Z1 [_ Z2]]]. apply (H1 z l Z1 Z2). auto.
        + apply writes_counted in Wy as [z [Z1 [Zw Z2]]]. destruct (H1 z l Z1 Z2) as [_ B]. rewrite Zw in B.
          destruct B as [_ B]. apply B. auto.
      - eapply (IH (Pos.succ i)); eauto.
        + intros p Hp. apply Inc. right. exact Hp.
        + destruct TC as [TC TL]. split.
          * intros p c Fp. destruct (Pos.eq_dec p i) as [E | E].
            -- subst. rewrite PositiveMap.gss in Fp. inversion Fp; subst. eauto.
            -- rewrite PositiveMap.gso in Fp by congruence. auto.
          * intros s p Fp. destruct (Pos.eq_dec s (chain n)) as [E | E].
            -- subst. rewrite PositiveMap.gss in Fp. inversion Fp; subst. split; [ lia | eauto ].
            -- rewrite PositiveMap.gso in Fp by congruence. apply TL in Fp as [Fp Fn]. split; [ lia | exact Fn ].
        + intros k nk K Lk. destruct (Pos.eq_dec k i) as [E | E].
          * subst k. rewrite (number_unique _ _ _ _ _ _ K I). split; intros l Hl.
            -- apply writes_counted in Hl as [z [Z1 [Zw Z2]]]. destruct (H1 z l Z1 Z2) as [_ B]. rewrite Zw in B. apply B.
            -- apply reads_counted in Hl as [z [Z1 [Zw Z2]]]. destruct (H1 z l Z1 Z2) as [_ B]. rewrite Zw in B. exact B.
          * assert (Lk' : (k < i)%positive) by lia. destruct (CV k nk K Lk'). split; auto.
    Qed.
  End Order.

  (** One chain is an order; else each access is held against the clocks. *)
  Definition check_races (ns : list node) (cls : list claim) : option positive :=
    match ns with
    | [] => None
    | n :: _ =>
        if forallb (fun m => (chain m =? chain n)%positive) ns then None
        else if 0 <? grain then
          check_order (PositiveMap.empty _) (PositiveMap.empty _) (PositiveMap.empty _) (number 1 ns) cls
        else Some 1%positive
    end.

  Theorem races_sound : forall ns cls, check_races ns cls = None ->
    forall V F, ordered V (before ns) (steps V F Planned (number 1 ns)).
  Proof.
    intros ns cls C V F.
    assert (A : forall x nx y ny, In (x, nx) (number 1 ns) -> In (y, ny) (number 1 ns) -> (x < y)%positive ->
      meet V (step_of V F Planned x nx) (step_of V F Planned y ny) -> before ns x y).
    { intros x nx y ny X Y L M. unfold check_races in C.
      assert (OneChain : forall n, forallb (fun m => (chain m =? chain n)%positive) ns = true -> before ns x y).
      { intros n H. rewrite forallb_forall in H. apply t_step. exists nx, ny. repeat split; auto. left. split; auto.
        apply number_in, H, Pos.eqb_eq in X. apply number_in, H, Pos.eqb_eq in Y. congruence. }
      destruct ns as [ | n rest ]; [ contradiction | ]. destruct (forallb _ _) eqn:One; [ eauto | ].
      destruct (0 <? grain) eqn:Gr; [ | discriminate]. apply Z.ltb_lt in Gr.
      assert (Up : upto (n :: rest) x y).
      { eapply (meets_ordered (n :: rest) V F Gr (n :: rest) 1); eauto.
        - apply incl_refl.
        - split; intros; rewrite PositiveMap.gempty in H; discriminate.
        - intros l v H. unfold at_loc, tree_of in H. rewrite PositiveMap.gempty in H.
          destruct (inside 0 size (snd l)); [ | discriminate].
          assert (v = (None, [])) by (destruct d; cbn in H; congruence). subst v. split; [ discriminate | constructor ].
        - intros i m _ Li. lia. }
      destruct Up as [E | B]; [ subst; lia | exact B ]. }
    unfold ordered, steps.
    assert (S : forall l i, (forall p, In p (number i l) -> In p (number 1 ns)) ->
      ForallOrdPairs (fun x y => meet V x y -> before ns (name V x) (name V y))
        (map (fun p => step_of V F Planned (fst p) (snd p)) (number i l))).
    { induction l as [ | n l IH ]; intros i H; cbn [number map]; constructor.
      - apply Forall_forall. intros y Y M. apply in_map_iff in Y as [[j m] [E Y]]. subst y. cbn [fst snd] in *.
        assert (Nm : forall k z, name V (step_of V F Planned k z) = k) by (intros; unfold step_of; destruct (act z); reflexivity).
        rewrite !Nm. eapply A; eauto; [ apply H; left; reflexivity | apply H; right; exact Y | apply number_from in Y; lia ].
      - apply IH. intros p P. apply H. right. exact P. }
    apply S. auto.
  Qed.
End Races.
