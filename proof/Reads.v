(** The checker of reads: it replays the list of ops over two memories of marks and holds every
    claim of the certificate against both.

    A claim says of some units of one operand, as runs within its buffer, which write they hold.  A
    mark is a write and a shift: unit x of a memory holds unit x - shift of what was written.

    What this file does not see: the order of streams ([Races]). *)

From Coq Require Import ZArith List Bool Lia FMapPositive.
From Proof Require Import Layout Tree Model Nodes.
Import ListNotations.
Open Scope Z_scope.

(** A write, and by how much the units lie further than in the buffer of that write. *)
Definition mark := (write * Z)%type.

(** Units [start, start + length) of a buffer, and the mark that they hold apart. *)
Definition piece := (Z * Z * mark)%type.

Definition same_write (a b : write) : bool := (fst a =? fst b) && (snd a =? snd b).

Definition is_mark (k : mark) (v : option mark) : bool :=
  match v with Some k' => same_write (fst k) (fst k') && (snd k =? snd k') | None => false end.

Lemma is_mark_true : forall k v, is_mark k v = true -> v = Some k.
Proof.
  intros [[w j] s] [[[w' j'] s'] | ] H; simpl in H; [ | discriminate].
  unfold same_write in H. simpl in H. rewrite !andb_true_iff, !Z.eqb_eq in H. destruct H as [[A B] C]. congruence.
Qed.

(** Two lists of runs cut alike: where each stretch starts in the one, in the other, and its length. *)
Fixpoint aligned {P} (fuel : nat) (xs : list (Z * Z * P)) (ys : list run) : option (list (Z * Z * Z * P)) :=
  match xs, ys with
  | [], [] => Some []
  | (x, l, p) :: xs', (y, m) :: ys' =>
      match fuel with
      | O => None
      | S f =>
          if (l <=? 0) || (m <=? 0) then None else
          let '(cut, rest) :=
            if l <? m then (l, aligned f xs' ((y + l, m - l) :: ys'))
            else if m <? l then (m, aligned f ((x + m, l - m, p) :: xs') ys')
            else (l, aligned f xs' ys') in
          match rest with Some zs => Some ((x, y, cut, p) :: zs) | None => None end
      end
  | _, _ => None
  end.

Definition bare {P} (xs : list (Z * Z * P)) : list run := map fst xs.
Definition left {P} (z : Z * Z * Z * P) : run := match z with (x, y, l, p) => (x, l) end.
Definition right {P} (z : Z * Z * Z * P) : run := match z with (x, y, l, p) => (y, l) end.

Lemma flat_cut : forall x l m rest, 0 <= m <= l -> flat ((x, l) :: rest) = range x m ++ flat ((x + m, l - m) :: rest).
Proof.
  intros. unfold flat. cbn [flat_map fst snd]. replace l with (m + (l - m)) at 1 by lia.
  rewrite range_app by lia. rewrite app_assoc. reflexivity.
Qed.

Lemma aligned_spec : forall P fuel (xs : list (Z * Z * P)) ys zs, aligned fuel xs ys = Some zs ->
  flat (bare xs) = flat (map left zs) /\ flat ys = flat (map right zs) /\
  forall x y l p, In (x, y, l, p) zs -> exists x0 l0, In (x0, l0, p) xs /\ x0 <= x /\ x + l <= x0 + l0.
Proof.
  induction fuel; intros xs ys zs E.
  - destruct xs as [ | [[x l] p] xs' ], ys as [ | [y m] ys' ]; simpl in E; try discriminate.
    inversion E; subst. repeat split; auto. contradiction.
  - destruct xs as [ | [[x l] p] xs' ], ys as [ | [y m] ys' ]; simpl in E; try discriminate.
    + inversion E; subst. repeat split; auto. contradiction.
    + destruct ((l <=? 0) || (m <=? 0)) eqn:Z0; [discriminate | ].
      rewrite orb_false_iff, !Z.leb_gt in Z0. destruct Z0.
      destruct (l <? m) eqn:C1; [ | destruct (m <? l) eqn:C2 ].
      * apply Z.ltb_lt in C1. destruct (aligned fuel xs' _) as [zs' | ] eqn:R; [ | discriminate]. inversion E; subst.
        apply IHfuel in R as [A [B C]]. repeat split.
        -- unfold flat, bare in *. cbn [map fst snd left flat_map]. f_equal. exact A.
        -- rewrite (flat_cut y m l) by lia. rewrite B. reflexivity.
        -- intros a b c q [I | I]; [ inversion I; subst; exists a, c; simpl; split; auto; lia | ].
           apply C in I as [x0 [l0 [I J]]]. exists x0, l0. simpl. auto.
      * apply Z.ltb_lt in C2. destruct (aligned fuel _ ys') as [zs' | ] eqn:R; [ | discriminate]. inversion E; subst.
        apply IHfuel in R as [A [B C]]. repeat split.
        -- unfold bare in *. cbn [map fst]. rewrite (flat_cut x l m) by lia. cbn [map fst] in A. rewrite A. reflexivity.
        -- unfold flat in *. cbn [map fst snd right flat_map]. f_equal. exact B.
        -- intros a b c q [I | I]; [ inversion I; subst; exists a, l; simpl; split; auto; lia | ].
           apply C in I as [x0 [l0 [[I | I] J]]].
           ++ inversion I; subst. exists x, l. simpl. split; auto. lia.
           ++ exists x0, l0. simpl. auto.
      * apply Z.ltb_ge in C1, C2. assert (l = m) by lia. subst m.
        destruct (aligned fuel xs' ys') as [zs' | ] eqn:R; [ | discriminate]. inversion E; subst.
        apply IHfuel in R as [A [B C]]. repeat split.
        -- unfold flat, bare in *. cbn [map fst snd left flat_map]. f_equal. exact A.
        -- unfold flat in *. cbn [map fst snd right flat_map]. f_equal. exact B.
        -- intros a b c q [I | I]; [ inversion I; subst; exists a, c; simpl; split; auto; lia | ].
           apply C in I as [x0 [l0 [I J]]]. exists x0, l0. simpl. auto.
Qed.

Definition fuel {A B} (xs : list A) (ys : list B) : nat := (length xs + length ys)%nat.

(** Whether pieces cover runs, unit by unit, in order. *)
Definition tiles (ps : list piece) (rs : list run) : bool :=
  match aligned (fuel ps rs) ps rs with
  | Some zs => forallb (fun z => fst (left z) =? fst (right z)) zs
  | None => false
  end.

Lemma tiles_true : forall ps rs, tiles ps rs = true -> flat (bare ps) = flat rs.
Proof.
  intros. unfold tiles in H. destruct (aligned _ ps rs) as [zs | ] eqn:E; [ | discriminate].
  apply aligned_spec in E as [A [B _]]. rewrite A, B. f_equal. apply map_ext_in. intros [[[x y] l] p] I.
  rewrite forallb_forall in H. apply H in I. simpl in *. apply Z.eqb_eq in I. congruence.
Qed.

Definition marks := PositiveMap.t (tree (option mark)).

Section Checker.
  Variable d : nat.
  Variable size : Z.
  Hypothesis sized : size = 2 ^ Z.of_nat d.

  Definition lookup (t : marks) (sp : positive) (x : Z) : option mark :=
    if inside 0 size x then
      match PositiveMap.find sp t with
      | Some tr => match get d size tr x with Some (Some k) => Some k | _ => None end
      | None => None
      end
    else None.

  Definition fill1 (t : marks) (sp : positive) (a b : Z) (k : mark) : marks :=
    let tr := match PositiveMap.find sp t with Some tr => tr | None => Leaf None end in
    PositiveMap.add sp (fill d size tr a b (Some k)) t.

  Lemma lookup_fill1 : forall t sp a b k sp' x k', lookup (fill1 t sp a b k) sp' x = Some k' ->
    (sp' = sp /\ a <= x < b /\ k' = k) \/ (~ (sp' = sp /\ a <= x < b) /\ lookup t sp' x = Some k').
  Proof.
    intros t sp a b k sp' x k' H. unfold lookup, fill1 in *.
    destruct (inside 0 size x) eqn:X; [ | discriminate]. apply inside_true in X.
    destruct (Pos.eq_dec sp' sp) as [E | N].
    - subst sp'. rewrite PositiveMap.gss in H. rewrite sized in *. rewrite get_fill in H by exact X.
      destruct (inside a b x) eqn:I.
      + apply inside_true in I. inversion H. auto.
      + apply inside_false in I. right. split; [ tauto | ].
        destruct (PositiveMap.find sp t); auto. cbn in H. destruct d; discriminate.
    - rewrite PositiveMap.gso in H by congruence. right. split; [ tauto | exact H ].
  Qed.

  Definition holds (t : marks) (sp : positive) (a b : Z) (k : mark) : bool :=
    (0 <=? a) && (b <=? size) &&
    match PositiveMap.find sp t with Some tr => test (is_mark k) d size tr a b | None => false end.

  Lemma holds_lookup : forall t sp a b k x, holds t sp a b k = true -> a <= x < b -> lookup t sp x = Some k.
  Proof.
    intros t sp a b k x H X. unfold holds in H. rewrite !andb_true_iff, !Z.leb_le in H. destruct H as [[A B] T].
    unfold lookup. assert (I : inside 0 size x = true) by (apply inside_true; lia). rewrite I.
    destruct (PositiveMap.find sp t) as [tr | ]; [ | discriminate]. rewrite sized in *.
    apply (test_get (is_mark k) d tr a b x) in T as [v [G M]]; [ | lia | exact X ].
    rewrite G. apply is_mark_true in M. rewrite M. reflexivity.
  Qed.

  (** Marks of a value, run by run. *)
  Definition mark_runs (s : side) (w : write) (a : access) (rs : list run) (t : marks) : marks :=
    fold_left (fun t r => fill1 t (place s a) (shift s a + fst r) (shift s a + fst r + snd r) (w, shift s a)) rs t.

  Lemma lookup_runs : forall s w a rs t sp x k, lookup (mark_runs s w a rs t) sp x = Some k ->
    (sp = place s a /\ In (x - shift s a) (flat rs) /\ k = (w, shift s a)) \/
    (~ (sp = place s a /\ In (x - shift s a) (flat rs)) /\ lookup t sp x = Some k).
  Proof.
    induction rs as [ | [u l] rs IH ] using rev_ind; intros t sp x k H.
    - right. split; [ intros [_ []] | exact H ].
    - unfold mark_runs in *. rewrite fold_left_app in H. cbn [fold_left fst snd] in H.
      rewrite flat_app, in_app_iff, in_flat_cons.
      apply lookup_fill1 in H as [[A [B C]] | [A B]].
      + left. split; auto. split; auto. right. left. lia.
      + apply IH in B as [[B1 [B2 B3]] | [B1 B2]]; [ left; auto | ].
        right. split; auto. intros [E [I | [I | []]]]; [ apply B1; auto | apply A; split; [ exact E | lia ] ].
  Qed.

  Section Meaning.
    Variable V : Type.
    Variable F : Z -> list V -> Z -> Z -> V.

    (** What the checker knows of a memory is so. *)
    Definition knows (t : marks) (m : memory V) : Prop :=
      forall sp x w s, lookup t sp x = Some (w, s) -> fst (m (sp, x)) = Some (w, x - s).

    Lemma knows_effects : forall s k vals j a t m, knows t m ->
      knows (mark_runs s (k, j) a (runs (start a) (dims a) (len a)) t) (apply V (effects V F s k vals j a) m).
    Proof.
      intros s k vals j a t m K sp x w sh H. apply lookup_runs in H.
      destruct (apply_cases V (effects V F s k vals j a) m (sp, x)) as [[N E] | [c [I E]]]; rewrite E.
      - destruct H as [[A [B C]] | [A B]]; [ | apply K; exact B ].
        exfalso. apply N. rewrite map_fst_effects. subst. apply runs_exact in B. unfold locs. apply in_map_iff.
        exists (x - shift s a). split; [ | exact B ]. unfold at_. f_equal. lia.
      - apply in_map_iff in I as [u [P Q]]. inversion P; subst. clear P. simpl. apply runs_exact in Q.
        destruct H as [[A [B C]] | [A B]].
        + inversion C. subst. do 2 f_equal. lia.
        + exfalso. apply A. split; auto. replace (shift s a + u - shift s a) with u by lia. exact Q.
    Qed.

    Definition mark_all (s : side) (k : Z) (ws : list (Z * access)) (t : marks) : marks :=
      fold_left (fun t w => mark_runs s (k, fst w) (snd w) (runs (start (snd w)) (dims (snd w)) (len (snd w))) t) ws t.

    Lemma knows_all : forall s k vals ws t m, knows t m ->
      knows (mark_all s k ws t) (apply V (flat_map (fun w => effects V F s k vals (fst w) (snd w)) ws) m).
    Proof.
      induction ws as [ | [j a] ws IH ]; intros t m K; [ exact K | ].
      cbn [flat_map fst snd]. unfold apply. rewrite fold_left_app. apply IH. apply knows_effects. exact K.
    Qed.

    Lemma knows_laid : forall s contents g, knows (mark_all s 0 (enum 0 contents) (PositiveMap.empty _)) (laid V F s contents g).
    Proof.
      intros. unfold laid, op_does, op_effects. apply knows_all.
      intros sp x w sh H. unfold lookup in H. destruct (inside 0 size x); [ | discriminate].
      rewrite PositiveMap.gempty in H. discriminate.
    Qed.

    (** One read. *)
    Definition planned_mark (a : access) (k : mark) : mark := (fst k, base a + snd k).

    Definition check_piece (A P : marks) (a : access) (p : piece) : bool :=
      match p with (u, l, k) =>
        holds A (ident a) u (u + l) k && holds P (space a) (base a + u) (base a + u + l) (planned_mark a k)
      end.

    Definition check_read (A P : marks) (a : access) (ps : list piece) (rs : list run) : bool :=
      tiles ps rs && forallb (check_piece A P a) ps.

    Definition found (m m' : memory V) (l l' : loc) : Prop :=
      exists t, fst (m l) = Some t /\ fst (m' l') = Some t.

    Lemma check_piece_true : forall A P m m' a u l w s x, knows A m -> knows P m' ->
      check_piece A P a (u, l, (w, s)) = true -> u <= x < u + l ->
      fst (m (at_ Apart a x)) = Some (w, x - s) /\ fst (m' (at_ Planned a x)) = Some (w, x - s).
    Proof.
      intros A P m m' a u l w s x KA KP C X. simpl in C. apply andb_prop in C as [C1 C2].
      apply (holds_lookup _ _ _ _ _ x) in C1; [ | exact X ].
      apply (holds_lookup _ _ _ _ _ (base a + x)) in C2; [ | lia ].
      apply KA in C1. apply KP in C2. split.
      - exact C1.
      - unfold at_. simpl. unfold planned_mark in C2. simpl in C2. rewrite C2. do 2 f_equal. lia.
    Qed.

    Lemma check_read_true : forall A P m m' a ps rs, knows A m -> knows P m' ->
      (forall u, In u (units_of a) -> In u (flat rs)) -> check_read A P a ps rs = true ->
      Forall2 (found m m') (locs Apart a) (locs Planned a).
    Proof.
      intros A P m m' a ps rs KA KP U C. unfold check_read in C. apply andb_prop in C as [T H].
      apply tiles_true in T. rewrite forallb_forall in H. unfold locs.
      assert (G : forall us, (forall u, In u us -> In u (flat rs)) ->
          Forall2 (found m m') (map (at_ Apart a) us) (map (at_ Planned a) us)).
      { induction us; intros; simpl; constructor; auto; [ | apply IHus; intros; apply H0; right; assumption ].
        assert (I : In a0 (flat (bare ps))) by (rewrite T; apply H0; left; reflexivity).
        unfold flat, bare in I. apply in_flat_map in I as [r [I R]]. apply in_map_iff in I as [[[u l] [w s]] [E I]].
        simpl in E. subst r. simpl in R. apply in_range in R. apply H in I.
        destruct (check_piece_true _ _ _ _ _ _ _ _ _ a0 KA KP I R) as [X Y]. exists (w, a0 - s). auto. }
      apply G. exact U.
    Qed.

    Fixpoint check_operands (A P : marks) (rs : list access) (cl : list (list piece)) : bool :=
      match rs, cl with
      | [], [] => true
      | a :: rs', ps :: cl' => check_read A P a ps (runs (start a) (dims a) (len a)) && check_operands A P rs' cl'
      | _, _ => false
      end.

    Lemma check_operands_true : forall A P m m' rs cl, knows A m -> knows P m' -> check_operands A P rs cl = true ->
      Forall2 (found m m') (flat_map (locs Apart) rs) (flat_map (locs Planned) rs).
    Proof.
      induction rs as [ | a rs IH ]; destruct cl as [ | ps cl ]; intros KA KP C; simpl in C; try discriminate; simpl.
      - constructor.
      - apply andb_prop in C as [C1 C2]. apply Forall2_app; [ | eapply IH; eauto ].
        eapply check_read_true; eauto. intros u U. apply runs_exact. exact U.
    Qed.

    (** One move of a [same]: what it hands on, stretch by stretch. *)
    Definition stretch := (Z * Z * Z * mark)%type.

    Definition check_move (A P : marks) (mv : access * access) (ps : list piece) : option (access * access * list stretch) :=
      let '(a, b) := mv in
      if check_read A P a ps (rows (start a) (dims a) (len a)) then
        let rs := rows (start b) (dims b) (len b) in
        match aligned (fuel ps rs) ps rs with Some zs => Some (a, b, zs) | None => None end
      else None.

    Fixpoint check_moves (A P : marks) (ms : list (access * access)) (cl : list (list piece)) :
      option (list (access * access * list stretch)) :=
      match ms, cl with
      | [], [] => Some []
      | mv :: ms', ps :: cl' =>
          match check_move A P mv ps, check_moves A P ms' cl' with
          | Some x, Some xs => Some (x :: xs)
          | _, _ => None
          end
      | _, _ => None
      end.

    Definition hand (s : side) (ab : access * access) (t : marks) (z : stretch) : marks :=
      let '(a, b) := ab in
      match z with (x, y, l, (w, sh)) =>
        let k := (w, shift s b + y - x + sh) in
        fill1 t (place s b) (shift s b + y) (shift s b + y + l) k
      end.

    Definition hand_on (s : side) (mvs : list (access * access * list stretch)) (t : marks) : marks :=
      fold_left (fun t mv => fold_left (hand s (fst mv)) (snd mv) t) mvs t.

    Definition stretch_pairs (s : side) (ab : access * access) (z : stretch) : list (loc * loc) :=
      match z with (x, y, l, _) => combine (map (at_ s (fst ab)) (range x l)) (map (at_ s (snd ab)) (range y l)) end.

    Lemma combine_app : forall (X Y : Type) (a a' : list X) (b b' : list Y), length a = length b ->
      combine (a ++ a') (b ++ b') = combine a b ++ combine a' b'.
    Proof. induction a; destruct b; simpl; intros; try discriminate; auto. f_equal. apply IHa. congruence. Qed.

    Lemma pairs_stretches : forall s ab (zs : list stretch),
      combine (map (at_ s (fst ab)) (flat (map left zs))) (map (at_ s (snd ab)) (flat (map right zs))) =
      flat_map (stretch_pairs s ab) zs.
    Proof.
      induction zs as [ | [[[x y] l] k] zs IH ]; auto.
      unfold flat in *. cbn [map left right flat_map fst snd]. rewrite !map_app, combine_app.
      - rewrite IH. reflexivity.
      - rewrite !map_length. unfold range. rewrite !from_length. reflexivity.
    Qed.

    Lemma in_combine_from : forall n x y p q, In (p, q) (combine (from x n) (from y n)) ->
      q - y = p - x /\ x <= p < x + Z.of_nat n.
    Proof.
      induction n; intros x y p q H; [ contradiction | ]. cbn [from combine] in H. destruct H as [H | H].
      - inversion H; subst. lia.
      - apply IHn in H. lia.
    Qed.

    Lemma combine_map : forall (X Y X' Y' : Type) (f : X -> X') (g : Y -> Y') a b,
      combine (map f a) (map g b) = map (fun p => (f (fst p), g (snd p))) (combine a b).
    Proof. induction a; destruct b; simpl; auto. f_equal. auto. Qed.

    Lemma map_snd_combine : forall (X Y : Type) (a : list X) (b : list Y), length a = length b -> map snd (combine a b) = b.
    Proof. induction a; destruct b; simpl; intros; try discriminate; auto. f_equal. apply IHa. congruence. Qed.

    Definition sound (s : side) (m0 : memory V) (a : access) (z : stretch) : Prop :=
      match z with (x, y, l, (w, sh)) => forall u, x <= u < x + l -> fst (m0 (at_ s a u)) = Some (w, u - sh) end.

    Lemma knows_hand : forall s m0 a b z t m, knows t m -> sound s m0 a z ->
      knows (hand s (a, b) t z) (apply V (copied V m0 (stretch_pairs s (a, b) z)) m).
    Proof.
      intros s m0 a b [[[x y] l] [w sh]] t m K S sp v w' sh' H. simpl in S. cbn [hand] in H.
      apply lookup_fill1 in H.
      match goal with |- context [apply V ?es m (sp, v)] => destruct (apply_cases V es m (sp, v))
        as [[N E] | [c [I E]]] end; rewrite E.
      - destruct H as [[A [B C]] | [A B]]; [ | apply K; exact B ].
        exfalso. apply N. rewrite map_fst_copied. unfold stretch_pairs. cbn [fst snd].
        rewrite map_snd_combine by (rewrite !map_length; unfold range; rewrite !from_length; reflexivity).
        apply in_map_iff. exists (v - shift s b). split; [ unfold at_; subst; f_equal; lia | ]. apply in_range. lia.
      - clear E. unfold copied, stretch_pairs in I. apply in_map_iff in I as [[p q] [P Q]]. cbn [fst snd] in *.
        rewrite combine_map in Q. apply in_map_iff in Q as [[p' q'] [P' Q]]. cbn [fst snd] in *.
        inversion P'; subst. unfold at_ in P. inversion P; subst. clear P P'.
        unfold range in Q. apply in_combine_from in Q as [Q1 Q2].
        assert (S' : x <= p' < x + l) by lia. apply S in S'. unfold at_ in S'. cbn [fst]. rewrite S'.
        destruct H as [[A [B C]] | [A B]].
        + inversion C; subst. do 2 f_equal. lia.
        + exfalso. apply A. split; auto. lia.
    Qed.

    Lemma knows_stretches : forall s m0 a b zs t m, knows t m -> (forall z, In z zs -> sound s m0 a z) ->
      knows (fold_left (hand s (a, b)) zs t) (apply V (copied V m0 (flat_map (stretch_pairs s (a, b)) zs)) m).
    Proof.
      induction zs as [ | z zs IH ]; intros t m K S; [ exact K | ].
      cbn [flat_map fold_left]. unfold copied. rewrite map_app. unfold apply. rewrite fold_left_app.
      apply IH; [ | intros; apply S; right; assumption ]. apply knows_hand; auto. apply S. left. reflexivity.
    Qed.

    Definition meant (s : side) (mv : access * access) (x : access * access * list stretch) : Prop :=
      fst x = mv /\ combine (locs s (fst mv)) (locs s (snd mv)) = flat_map (stretch_pairs s mv) (snd x).

    Lemma check_move_true : forall A P m m' mv ps x, knows A m -> knows P m' -> check_move A P mv ps = Some x ->
      Forall2 (found m m') (locs Apart (fst mv)) (locs Planned (fst mv)) /\
      meant Apart mv x /\ meant Planned mv x /\
      (forall z, In z (snd x) -> sound Apart m (fst mv) z /\ sound Planned m' (fst mv) z).
    Proof.
      intros A P m m' [a b] ps x KA KP C. unfold check_move in C.
      destruct (check_read A P a ps _) eqn:R; [ | discriminate].
      destruct (aligned _ ps _) as [zs | ] eqn:E; [ | discriminate]. inversion C; subst. clear C. simpl.
      assert (U : forall u, In u (units_of a) -> In u (flat (rows (start a) (dims a) (len a)))).
      { intros u I. rewrite flat_rows. exact I. }
      pose proof (check_read_true _ _ _ _ _ _ _ KA KP U R) as F2.
      unfold check_read in R. apply andb_prop in R as [T H]. apply tiles_true in T. rewrite flat_rows in T.
      apply aligned_spec in E as [E1 [E2 E3]]. rewrite flat_rows in E2.
      assert (M : forall s, meant s (a, b) (a, b, zs)).
      { intro s. split; auto. cbn [fst snd]. rewrite <- (pairs_stretches s (a, b) zs). unfold locs, units_of.
        cbn [fst snd]. rewrite <- E1, <- E2, T. reflexivity. }
      split; [ exact F2 | ]. split; [ apply M | ]. split; [ apply M | ].
      intros [[[x y] l] [w sh]] I. apply E3 in I as [x0 [l0 [I [J1 J2]]]].
      rewrite forallb_forall in H. apply H in I.
      split; intros u Hu; apply (check_piece_true _ _ _ _ _ _ _ _ _ u KA KP I); lia.
    Qed.

    Lemma check_moves_true : forall A P m m' ms cl xs, knows A m -> knows P m' -> check_moves A P ms cl = Some xs ->
      Forall2 (found m m') (flat_map (fun p => locs Apart (fst p)) ms) (flat_map (fun p => locs Planned (fst p)) ms) /\
      (forall t m1, knows t m1 -> knows (hand_on Apart xs t) (apply V (copied V m (pairs Apart ms)) m1)) /\
      (forall t m1, knows t m1 -> knows (hand_on Planned xs t) (apply V (copied V m' (pairs Planned ms)) m1)).
    Proof.
      induction ms as [ | mv ms IH ]; destruct cl as [ | ps cl ]; intros xs KA KP C; simpl in C; try discriminate.
      - inversion C; subst. simpl. repeat split; auto.
      - destruct (check_move A P mv ps) as [x | ] eqn:C1; [ | discriminate].
        destruct (check_moves A P ms cl) as [xs' | ] eqn:C2; [ | discriminate]. inversion C; subst. clear C.
        apply (check_move_true _ _ m m') in C1 as [F2 [[M1 M2] [[_ M3] S]]]; auto.
        apply IH in C2 as [G2 [KA' KP']]; auto. destruct mv as [a b]. destruct x as [ab zs]. cbn [fst snd] in *. subst ab.
        split; [ cbn [flat_map fst]; apply Forall2_app; assumption | ].
        split; intros t m1 K1; unfold pairs; cbn [flat_map fst snd];
          unfold copied; rewrite map_app; unfold apply; rewrite fold_left_app; cbn [hand_on fold_left fst snd].
        + rewrite M2. apply KA'. apply (knows_stretches Apart m); auto. intros z Z0. apply S. exact Z0.
        + rewrite M3. apply KP'. apply (knows_stretches Planned m'); auto. intros z Z0. apply S. exact Z0.
    Qed.

    (** What is kept for a read that comes late: both sides are memory apart. *)
    Definition alone (a : access) : access := Access (ident a) (ident a) 0 (start a) (dims a) (len a).
    Definition both_alone (p : access * access) : access * access := (alone (fst p), alone (snd p)).

    Lemma pairs_alone : forall ms, pairs Apart (map both_alone ms) = pairs Apart ms.
    Proof.
      unfold pairs. induction ms as [ | [a b] ms IH ]; auto.
      cbn [map flat_map both_alone fst snd]. rewrite IH. reflexivity.
    Qed.

    (** One node, and all of them. *)
    Definition check_node (A P : marks) (i : positive) (n : node) (cl : list (list piece)) : option (marks * marks) :=
      match act n with
      | Op rs ws _ =>
          if check_operands A P rs cl then
            Some (mark_all Apart (Zpos i) (enum 0 ws) A, mark_all Planned (Zpos i) (enum 0 ws) P)
          else None
      | Same ms _ =>
          match check_moves A P ms cl with
          | Some xs => Some (hand_on Apart xs A, hand_on Planned xs P)
          | None => None
          end
      | Hold ms =>
          match check_moves A A (map both_alone ms) cl with
          | Some xs => Some (hand_on Apart xs A, P)
          | None => None
          end
      end.

    Lemma check_node_true : forall A P m m' i n cl A' P', knows A m -> knows P m' ->
      check_node A P i n cl = Some (A', P') ->
      Forall2 (found m m') (reads V (step_of V F Apart i n)) (reads V (step_of V F Planned i n)) /\
      knows A' (does V (step_of V F Apart i n) m) /\ knows P' (does V (step_of V F Planned i n) m').
    Proof.
      intros A P m m' i n cl A' P' KA KP C. unfold check_node in C. unfold step_of.
      destruct (act n) as [rs ws ps | ms sp | ms]; simpl.
      - destruct (check_operands A P rs cl) eqn:R; [ | discriminate]. inversion C; subst.
        split; [ eapply check_operands_true; eauto | ]. unfold op_does, op_effects.
        split; apply knows_all; assumption.
      - destruct (check_moves A P ms cl) as [xs | ] eqn:R; [ | discriminate]. inversion C; subst.
        apply (check_moves_true _ _ m m') in R as [F2 [KA' KP']]; auto.
        split; [ exact F2 | ]. unfold same_does. split; auto.
      - destruct (check_moves A A (map both_alone ms) cl) as [xs | ] eqn:R; [ | discriminate]. inversion C; subst.
        apply (check_moves_true _ _ m m) in R as [_ [KA' _]]; auto. rewrite pairs_alone in KA'.
        split; [ constructor | ]. unfold same_does. split; auto.
    Qed.

    (** [None] where all is well, else the first node that is not. *)
    Fixpoint check_nodes (A P : marks) (ns : list (positive * node)) (cls : list (list (list piece))) : option positive :=
      match ns, cls with
      | [], _ => None
      | (i, n) :: ns', cl :: cls' =>
          match check_node A P i n cl with
          | Some (A', P') => check_nodes A' P' ns' cls'
          | None => Some i
          end
      | (i, _) :: _, [] => Some i
      end.

    Theorem check_nodes_true : forall ns A P m m' cls, knows A m -> knows P m' -> check_nodes A P ns cls = None ->
      same_tags V (steps V F Apart ns) (steps V F Planned ns) m m'.
    Proof.
      induction ns as [ | [i n] ns IH ]; intros A P m m' cls KA KP C; simpl; auto.
      destruct cls as [ | cl cls ]; simpl in C; [ discriminate | ].
      destruct (check_node A P i n cl) as [[A' P'] | ] eqn:E; [ | discriminate].
      apply (check_node_true _ _ m m') in E as [F2 [KA' KP']]; auto.
      split; [ unfold step_of; destruct (act n); reflexivity | ]. split; [ exact F2 | ]. eapply IH; eauto.
    Qed.
    (** A claim of an operand: its pieces are its units, and both memories hold what they say. *)
    Definition true_claim (m m' : memory V) (a : access) (ps : list piece) (rs : list run) : Prop :=
      flat (bare ps) = flat rs /\
      forall u l w s x, In (u, l, (w, s)) ps -> u <= x < u + l ->
        fst (m (at_ Apart a x)) = Some (w, x - s) /\ fst (m' (at_ Planned a x)) = Some (w, x - s).

    Lemma check_read_claim : forall A P m m' a ps rs, knows A m -> knows P m' -> check_read A P a ps rs = true ->
      true_claim m m' a ps rs.
    Proof.
      intros A P m m' a ps rs KA KP C. unfold check_read in C. apply andb_prop in C as [T H]. split.
      - apply tiles_true. exact T.
      - intros u l w s x I X. rewrite forallb_forall in H. apply H in I. eapply check_piece_true; eauto.
    Qed.

    Definition true_claims_of (m m' : memory V) (n : node) (cl : list (list piece)) : Prop :=
      match act n with
      | Op rs _ _ => Forall2 (fun a ps => true_claim m m' a ps (runs (start a) (dims a) (len a))) rs cl
      | Same ms _ => Forall2 (fun p ps => true_claim m m' (fst p) ps (rows (start (fst p)) (dims (fst p)) (len (fst p)))) ms cl
      | Hold _ => True
      end.

    Fixpoint true_claims (ns : list (positive * node)) (cls : list (list (list piece))) (m m' : memory V) : Prop :=
      match ns, cls with
      | [], _ => True
      | (i, n) :: ns', cl :: cls' =>
          true_claims_of m m' n cl /\
          true_claims ns' cls' (does V (step_of V F Apart i n) m) (does V (step_of V F Planned i n) m')
      | _ :: _, [] => False
      end.

    Lemma check_node_claims : forall A P m m' i n cl A' P', knows A m -> knows P m' ->
      check_node A P i n cl = Some (A', P') -> true_claims_of m m' n cl.
    Proof.
      intros A P m m' i n cl A' P' KA KP C. unfold check_node in C. unfold true_claims_of.
      destruct (act n) as [rs ws ps | ms sp | ms]; auto.
      - destruct (check_operands A P rs cl) eqn:R; [ | discriminate]. clear C. revert cl R.
        induction rs as [ | a rs IH ]; destruct cl as [ | p cl ]; simpl; intro R; try discriminate; constructor;
          apply andb_prop in R as [R1 R2]; auto. eapply check_read_claim; eauto.
      - destruct (check_moves A P ms cl) as [xs | ] eqn:R; [ | discriminate]. clear C. revert cl xs R.
        induction ms as [ | [a b] ms IH ]; destruct cl as [ | p cl ]; simpl; intros xs R; try discriminate; constructor.
        + destruct (check_read A P a p _) eqn:Q; [ | discriminate]. eapply check_read_claim; eauto.
        + destruct (if check_read A P a p _ then _ else _); [ | discriminate].
          destruct (check_moves A P ms cl) eqn:Q; [ | discriminate]. eapply IH. exact Q.
    Qed.

    Lemma check_nodes_claims : forall ns A P m m' cls, knows A m -> knows P m' -> check_nodes A P ns cls = None ->
      true_claims ns cls m m'.
    Proof.
      induction ns as [ | [i n] ns IH ]; intros A P m m' cls KA KP C; simpl; auto.
      destruct cls as [ | cl cls ]; simpl in C; [ discriminate | ].
      destruct (check_node A P i n cl) as [[A' P'] | ] eqn:E; [ | discriminate].
      split; [ eapply check_node_claims; eauto | ].
      apply (check_node_true _ _ m m') in E as [_ [KA' KP']]; auto. eapply IH; eauto.
    Qed.
  End Meaning.

  Definition check_reads (contents : list access) (ns : list node) (cls : list (list (list piece))) : option positive :=
    let at_start s := mark_all s 0 (enum 0 contents) (PositiveMap.empty _) in
    check_nodes (at_start Apart) (at_start Planned) (number 1 ns) cls.

  (** What the checker accepts reads the same values, as planned and apart, in the order of the list. *)
  Theorem reads_sound : forall contents ns cls, check_reads contents ns cls = None ->
    forall V F g g',
      trace V (steps V F Apart (number 1 ns)) (laid V F Apart contents g) =
      trace V (steps V F Planned (number 1 ns)) (laid V F Planned contents g').
  Proof.
    intros contents ns cls C V F g g'. apply values with (k := 1).
    - apply steps_alike.
    - apply laid_twins.
    - apply laid_past.
    - apply laid_past.
    - eapply check_nodes_true; eauto using knows_laid.
  Qed.

  (** Every claim of an accepted certificate is so, apart and as planned, in the order of the list. *)
  Theorem claims_hold : forall contents ns cls, check_reads contents ns cls = None ->
    forall V F g g', true_claims V F (number 1 ns) cls (laid V F Apart contents g) (laid V F Planned contents g').
  Proof. intros contents ns cls C V F g g'. eapply check_nodes_claims; eauto using knows_laid. Qed.
End Checker.
