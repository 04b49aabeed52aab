(** The checker of races: it goes over the list once, with the claimed clock of each node.

    Chains are claimed too: on a chain, each node must happen before the next.  A clock says of each
    chain how far it is known: the last node of that chain that happens before a node, or is it.  It
    knows what the clocks of nodes know that happen before; which those are is claimed, and looked up
    in the document ([ordered_b]).  Of each address the tree keeps the last write, and the reads since
    then that no other of them is known to follow.  An access is refused where its clock does not
    cover them.  Without claims all nodes must be one chain.

    What this file does not see: tags and values ([Reads]). *)

From Coq Require Import ZArith List Bool Lia FMapPositive Relations.
From Proof Require Import Layout Tree Model Nodes Reads.
Import ListNotations.
Open Scope Z_scope.

(** A node, and the chain it is on. *)
Definition stamp := (positive * positive)%type.
Definition touched := (option stamp * list stamp)%type.
Definition clock := PositiveMap.t positive.
(** Of a node: its chain, nodes that happen before it, and its clock. *)
Record claim := Claim { chain : positive; earlier : list positive; ends : list (positive * positive) }.

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
    | Same ms _ =>
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
    Variable Waits : positive -> positive -> Prop.
    Variable waits : positive -> positive -> bool.
    Hypothesis waits_true : forall q r, waits q r = true -> Waits q r.

    Definition is_held (m : moment) : bool := match m with Held => true | _ => false end.

    Definition ordered_b (a b : label) : bool :=
      negb (is_held (at_moment b)) &&
      match at_moment a with
      | Now =>
          ((at_run a =? at_run b)%positive &&
            (((on_stream a =? on_stream b)%positive && (at_step a <? at_step b)%positive)
             || existsb (Pos.eqb (at_step a)) (afters b)))
          || waits (at_run a) (at_run b)
          || match at_moment b with Late k => (k =? at_run a)%positive | _ => false end
      | Held => false
      | Late k => waits k (at_run b)
      end.

    Lemma ordered_b_true : forall a b, ordered_b a b = true -> ordered_by Waits a b.
    Proof.
      intros a b H. unfold ordered_b in H. apply andb_prop in H as [H1 H2]. split.
      - intro E. rewrite E in H1. discriminate.
      - destruct (at_moment a); [ | discriminate | auto ].
        rewrite !orb_true_iff, !andb_true_iff, !orb_true_iff, !andb_true_iff, !Pos.eqb_eq, Pos.ltb_lt, existsb_exists in H2.
        destruct H2 as [[[R [S | [k [K E]]]] | Q] | L]; auto.
        + left. split; auto. right. apply Pos.eqb_eq in E. subst. exact K.
        + destruct (at_moment b); try discriminate. apply Pos.eqb_eq in L. subst. auto.
    Qed.

    Variable ns : list node.
    Variable chains : positive -> positive.
    Let nodes := number 1 ns.
    Let before := before Waits ns.

    Definition upto (i j : positive) : Prop := i = j \/ before i j.

    Lemma upto_trans : forall i j k, upto i j -> upto j k -> upto i k.
    Proof.
      unfold upto. intros i j k [A | A] [B | B]; subst; auto. right. eapply t_trans; eauto.
    Qed.

    (** What a clock says of node j is so. *)
    Definition true_clock (j : positive) (c : clock) : Prop :=
      forall s m i n, PositiveMap.find s c = Some m -> In (i, n) nodes -> chains i = s -> (i <= m)%positive -> upto i j.

    Definition true_stamp (s : stamp) : Prop := exists n, In (fst s, n) nodes /\ chains (fst s) = snd s.

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

    (** Clocks, with the labels of their nodes. *)
    Definition clocks_of := PositiveMap.t (label * clock).

    Definition really (clocks : clocks_of) (b : label) (p : positive) : bool :=
      match PositiveMap.find p clocks with Some (a, _) => ordered_b a b | None => false end.

    Definition justified (clocks : clocks_of) (i : positive) (ps : list positive) (e : positive * positive) : bool :=
      ((fst e =? chains i)%positive && (snd e =? i)%positive) ||
      existsb (fun p => match PositiveMap.find p clocks with
                        | Some (_, c) => match PositiveMap.find (fst e) c with Some m => (snd e <=? m)%positive | None => false end
                        | None => false end) ps.

    Definition of_ends (l : list (positive * positive)) : clock :=
      fold_left (fun c e => PositiveMap.add (fst e) (snd e) c) l (PositiveMap.empty _).

    Lemma of_ends_in : forall l s m, PositiveMap.find s (of_ends l) = Some m -> In (s, m) l.
    Proof.
      unfold of_ends. induction l as [ | [s' m'] l IH ] using rev_ind; intros s m H.
      - rewrite PositiveMap.gempty in H. discriminate.
      - rewrite fold_left_app in H. cbn [fold_left fst snd] in H. apply in_or_app.
        destruct (Pos.eq_dec s s') as [E | E].
        + subst. rewrite PositiveMap.gss in H. inversion H; subst. right. left. reflexivity.
        + rewrite PositiveMap.gso in H by congruence. left. auto.
    Qed.

    Definition known_earlier (lasts : PositiveMap.t positive) (i : positive) (ps : list positive) : list positive :=
      match PositiveMap.find (chains i) lasts with Some p => p :: ps | None => ps end.

    Definition true_clocks (i : positive) (clocks : clocks_of) (lasts : PositiveMap.t positive) : Prop :=
      (forall p a c, PositiveMap.find p clocks = Some (a, c) ->
         true_clock p c /\ exists n, In (p, n) nodes /\ label_of n = a) /\
      (forall k n, In (k, n) nodes -> (k < i)%positive ->
         exists p, PositiveMap.find (chains k) lasts = Some p /\ upto k p).

    Lemma really_before : forall i n clocks lasts p, In (i, n) nodes -> true_clocks i clocks lasts ->
      really clocks (label_of n) p = true -> before p i.
    Proof.
      intros i n clocks lasts p I [TC _] H. unfold really in H.
      destruct (PositiveMap.find p clocks) as [[a c] | ] eqn:F; [ | discriminate].
      apply ordered_b_true in H. destruct (TC _ _ _ F) as [_ [m [M E]]]. apply t_step. exists m, n. subst a. auto.
    Qed.

    Lemma chain_before : forall i n clocks lasts ps k m, In (i, n) nodes -> true_clocks i clocks lasts ->
      forallb (really clocks (label_of n)) (known_earlier lasts i ps) = true ->
      In (k, m) nodes -> (k < i)%positive -> chains k = chains i -> before k i.
    Proof.
      intros i n clocks lasts ps k m I TC R K L E. pose proof TC as [_ TL]. apply TL in K as [p [F U]]; auto.
      unfold known_earlier in R. rewrite <- E, F in R. cbn [forallb] in R. apply andb_prop in R as [R _].
      eapply really_before in R; eauto. destruct U as [U | U]; [ subst; exact R | eapply t_trans; eauto ].
    Qed.

    Lemma justified_true : forall i n clocks lasts ps es, In (i, n) nodes -> true_clocks i clocks lasts ->
      forallb (really clocks (label_of n)) (known_earlier lasts i ps) = true ->
      forallb (justified clocks i (known_earlier lasts i ps)) es = true -> true_clock i (of_ends es).
    Proof.
      intros i n clocks lasts ps es I TC R H s m k nk F K C L. apply of_ends_in in F.
      rewrite forallb_forall in H. apply H in F. unfold justified in F. cbn [fst snd] in F.
      apply orb_true_iff in F as [F | F].
      - apply andb_prop in F as [F1 F2]. apply Pos.eqb_eq in F1, F2. subst.
        destruct (Pos.eq_dec k i) as [E | E]; [ left; exact E | ]. right.
        eapply chain_before; eauto. lia.
      - apply existsb_exists in F as [p [P F]].
        destruct (PositiveMap.find p clocks) as [[a c] | ] eqn:Fc; [ | discriminate].
        destruct (PositiveMap.find s c) as [m' | ] eqn:Fs; [ | discriminate]. apply Pos.leb_le in F.
        destruct TC as [TC TL]. destruct (TC _ _ _ Fc) as [T _].
        apply upto_trans with (j := p).
        + eapply T; eauto. lia.
        + right. rewrite forallb_forall in R. eapply really_before; eauto. split; eauto.
    Qed.

    (** One node, and all of them. *)
    Fixpoint check_order (clocks : clocks_of) (lasts : PositiveMap.t positive) (t : PositiveMap.t (tree touched))
      (todo : list (positive * node)) (cls : list claim) : option positive :=
      match todo, cls with
      | [], _ => None
      | (i, n) :: todo', cl :: cls' =>
          let ps := known_earlier lasts i (earlier cl) in
          if forallb (really clocks (label_of n)) ps && forallb (justified clocks i ps) (ends cl) then
            let c := of_ends (ends cl) in
            match apply_touches c i (i, chains i) t (touches n) with
            | Some t' => check_order (PositiveMap.add i (label_of n, c) clocks) (PositiveMap.add (chains i) i lasts) t' todo' cls'
            | None => Some i
            end
          else Some i
      | (i, _) :: _, [] => Some i
      end.

    (** One chain. *)
    Fixpoint in_line (a : label) (todo : list (positive * node)) : option positive :=
      match todo with
      | [] => None
      | (i, n) :: todo' => if ordered_b a (label_of n) then in_line (label_of n) todo' else Some i
      end.

    Lemma in_line_true : forall todo i n, In (i, n) nodes -> incl (number (Pos.succ i) todo) nodes ->
      in_line (label_of n) (number (Pos.succ i) todo) = None ->
      forall x nx y ny, In (x, nx) (number i (n :: todo)) -> In (y, ny) (number i (n :: todo)) -> (x < y)%positive -> before x y.
    Proof.
      induction todo as [ | m todo IH ]; intros i n I Inc C x nx y ny X Y L.
      - destruct X as [X | []], Y as [Y | []]. inversion X; inversion Y; lia.
      - cbn [number in_line] in C. destruct (ordered_b _ _) eqn:O; [ | discriminate]. apply ordered_b_true in O.
        assert (M : In (Pos.succ i, m) nodes) by (apply Inc; left; reflexivity).
        assert (S : before i (Pos.succ i)) by (apply t_step; exists n, m; auto).
        assert (Inc' : incl (number (Pos.succ (Pos.succ i)) todo) nodes) by (intros p P; apply Inc; right; exact P).
        pose proof (IH (Pos.succ i) m M Inc' C) as G.
        cbn [number] in X, Y. destruct Y as [Y | Y].
        { inversion Y; subst. destruct X as [X | X]; [ inversion X; lia | ].
          change (In (x, nx) (number (Pos.succ y) (m :: todo))) in X. apply number_from in X. lia. }
        destruct X as [X | X].
        + inversion X; subst. destruct Y as [Y | Y]; [ inversion Y; subst; exact S | ].
          eapply t_trans; [ exact S | ]. eapply (G (Pos.succ x) m y ny); [ left; reflexivity | right; exact Y | ].
          apply number_from in Y. lia.
        + eapply G; eauto.
    Qed.

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
      destruct (act n) as [rs ws ps | ms sp | ms]; simpl in H; [ | | contradiction ];
        apply in_flat_map in H as [a [A B]]; apply (hit_bound false) in B as [x [X Y]]; exists x; split; auto;
        apply in_or_app; left; apply in_flat_map; eauto.
    Qed.

    Lemma writes_counted : forall i n l, In l (writes V (step_of V F Planned i n)) ->
      exists x, In x (touches n) /\ writing x = true /\ hit x l.
    Proof.
      intros i n l H. unfold step_of in H. unfold touches.
      destruct (act n) as [rs ws ps | ms sp | ms]; simpl in H; [ | | contradiction ].
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
      destruct cls as [ | cl cls ]; cbn [check_order] in C; [ discriminate | ].
      destruct (_ && _) eqn:J; [ | discriminate]. apply andb_prop in J as [RB J].
      destruct (apply_touches _ _ _ _ _) as [t' | ] eqn:A; [ | discriminate].
      assert (I : In (i, n) nodes).
      { apply Inc. left. reflexivity. }
      pose proof (justified_true _ _ _ _ _ _ I TC RB J) as TK.
      assert (TS : true_stamp (i, chains i)) by (exists n; auto).
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
        + pose proof TC as [TC1 TL]. split.
          * intros p a c Fp. destruct (Pos.eq_dec p i) as [E | E].
            -- subst. rewrite PositiveMap.gss in Fp. inversion Fp; subst. eauto.
            -- rewrite PositiveMap.gso in Fp by congruence. auto.
          * intros k m K Lk. destruct (Pos.eq_dec (chains k) (chains i)) as [E | E].
            -- rewrite E, PositiveMap.gss. exists i. split; auto. destruct (Pos.eq_dec k i) as [Q | Q]; [ left; exact Q | ].
               right. eapply chain_before; eauto. lia.
            -- rewrite PositiveMap.gso by congruence. assert (k <> i) by congruence. eapply TL; eauto. lia.
        + intros k nk K Lk. destruct (Pos.eq_dec k i) as [E | E].
          * subst k. rewrite (number_unique _ _ _ _ _ _ K I). split; intros l Hl.
            -- apply writes_counted in Hl as [z [Z1 [Zw Z2]]]. destruct (H1 z l Z1 Z2) as [_ B]. rewrite Zw in B. apply B.
            -- apply reads_counted in Hl as [z [Z1 [Zw Z2]]]. destruct (H1 z l Z1 Z2) as [_ B]. rewrite Zw in B. exact B.
          * assert (Lk' : (k < i)%positive) by lia. destruct (CV k nk K Lk'). split; auto.
    Qed.
  End Order.

  (** Chains as claimed, by node. *)
  Definition chains_of (cls : list claim) (i : positive) : positive :=
    match PositiveMap.find i (fold_left (fun t x => PositiveMap.add (fst x) (chain (snd x)) t) (number 1 cls) (PositiveMap.empty _)) with
    | Some s => s
    | None => 1%positive
    end.

  Definition check_races (waits : positive -> positive -> bool) (ns : list node) (cls : list claim) : option positive :=
    match ns, cls with
    | [], _ => None
    | n :: rest, [] => in_line waits (label_of n) (number 2 rest)
    | _, _ =>
        if 0 <? grain then
          let chains := chains_of cls in
          check_order waits chains (PositiveMap.empty _) (PositiveMap.empty _) (PositiveMap.empty _) (number 1 ns) cls
        else Some 1%positive
    end.

  Theorem races_sound : forall (Waits : positive -> positive -> Prop) waits ns cls, (forall q r, waits q r = true -> Waits q r) ->
    check_races waits ns cls = None ->
    forall V F, ordered V (before Waits ns) (steps V F Planned (number 1 ns)).
  Proof.
    intros Waits waits ns cls WT C V F.
    assert (A : forall x nx y ny, In (x, nx) (number 1 ns) -> In (y, ny) (number 1 ns) -> (x < y)%positive ->
      meet V (step_of V F Planned x nx) (step_of V F Planned y ny) -> before Waits ns x y).
    { intros x nx y ny X Y L M. unfold check_races in C.
      destruct ns as [ | n rest ]; [ contradiction | ]. destruct cls as [ | cl cls ].
      - eapply (in_line_true Waits waits WT (n :: rest) rest 1); eauto; [ left; reflexivity | ].
        intros p P. right. exact P.
      - destruct (0 <? grain) eqn:Gr; [ | discriminate]. apply Z.ltb_lt in Gr. cbv zeta in C.
        assert (Up : upto Waits (n :: rest) x y).
        { eapply (meets_ordered Waits waits WT (n :: rest) (chains_of (cl :: cls)) V F Gr (n :: rest) 1); eauto.
          - apply incl_refl.
          - split; [ intros; rewrite PositiveMap.gempty in H; discriminate | intros; lia ].
          - intros l v H. unfold at_loc, tree_of in H. rewrite PositiveMap.gempty in H.
            destruct (inside 0 size (snd l)); [ | discriminate].
            assert (v = (None, [])) by (destruct d; cbn in H; congruence). subst v. split; [ discriminate | constructor ].
          - intros i m _ Li. lia. }
        destruct Up as [E | B]; [ subst; lia | exact B ]. }
    unfold ordered, steps.
    assert (S : forall l i, (forall p, In p (number i l) -> In p (number 1 ns)) ->
      ForallOrdPairs (fun x y => meet V x y -> before Waits ns (name V x) (name V y))
        (map (fun p => step_of V F Planned (fst p) (snd p)) (number i l))).
    { induction l as [ | n l IH ]; intros i H; cbn [number map]; constructor.
      - apply Forall_forall. intros y Y M. apply in_map_iff in Y as [[j m] [E Y]]. subst y. cbn [fst snd] in *.
        assert (Nm : forall k z, name V (step_of V F Planned k z) = k) by (intros; unfold step_of; destruct (act z); reflexivity).
        rewrite !Nm. eapply A; eauto; [ apply H; left; reflexivity | apply H; right; exact Y | apply number_from in Y; lia ].
      - apply IH. intros p P. apply H. right. exact P. }
    apply S. auto.
  Qed.
End Races.
