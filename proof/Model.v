(** The model: memory, ops, runs joined to one list, and two theorems about them.

    Memory is a map from a location (space, unit) to a cell: a tag, which says what write put it
    there, and a value.  An op reads the cells of its operands, all before it writes any, and
    writes cells that depend on nothing else.  A [trace] is what every op of a list reads.

    Theorem 1 ([values]): where every read finds, as planned, the tag that it finds apart, it finds
    the same value, whatever the ops compute and whatever lay in memory before.

    Theorem 2 ([schedules]): where no two unordered ops touch one location with a write among them,
    every order of the ops that keeps happens-before reads what the list reads.

    What this file does not see: how layouts and plans name locations ([Terms], [Layout]). *)

From Coq Require Import ZArith List Bool Lia Permutation.
Import ListNotations.
Open Scope Z_scope.

Definition loc := (positive * Z)%type.

Definition loc_eq : forall a b : loc, {a = b} + {a <> b}.
Proof. intros [s x] [t y]. destruct (Pos.eq_dec s t), (Z.eq_dec x y); (left; congruence) || (right; congruence). Defined.

(** A write: the op that wrote (contents laid before the runs: 0 and below), and which result. *)
Definition write := (Z * Z)%type.

(** A tag: the write, and the unit of its buffer. *)
Definition tag := (write * Z)%type.

Section Model.
  Variable V : Type.

  Definition cell := (option tag * V)%type.
  Definition memory := loc -> cell.

  Definition agree (a b : memory) : Prop := forall l, a l = b l.

  (** Writes in order; the last one at a location stays. *)
  Definition put (m : memory) (e : loc * cell) : memory :=
    fun l => if loc_eq l (fst e) then snd e else m l.
  Definition apply (es : list (loc * cell)) (m : memory) : memory := fold_left put es m.

  Lemma apply_cases : forall es m l,
    (~ In l (map fst es) /\ apply es m l = m l) \/ (exists c, In (l, c) es /\ apply es m l = c).
  Proof.
    induction es as [ | [l' c'] es IH ] using rev_ind; intros.
    - left. split; auto.
    - unfold apply in *. rewrite fold_left_app. simpl. unfold put at 1 3. simpl.
      destruct (loc_eq l l') as [E | N].
      + subst. right. exists c'. split; auto. apply in_or_app. right. left. reflexivity.
      + destruct (IH m l) as [[A B] | [c [A B]]].
        * left. split; auto. rewrite map_app, in_app_iff. simpl. intros [H | [H | []]]; auto.
        * right. exists c. split; auto. apply in_or_app. auto.
  Qed.

  (** An op as a step of memory, with what it may read and what it may change. *)
  Record step := { name : positive; reads : list loc; writes : list loc; does : memory -> memory }.

  (** It changes nothing but what it writes, and what it writes depends on what it reads alone. *)
  Definition lawful (g : step) : Prop :=
    (forall m l, ~ In l (writes g) -> does g m l = m l) /\
    (forall m m', (forall l, In l (reads g) -> m l = m' l) -> forall l, In l (writes g) -> does g m l = does g m' l).

  (** What each op of a list finds: its name, and the cells of its operands. *)
  Fixpoint trace (gs : list step) (m : memory) : list (positive * list cell) :=
    match gs with
    | [] => []
    | g :: rest => (name g, map m (reads g)) :: trace rest (does g m)
    end.

  Lemma does_agree : forall g, lawful g -> forall m m', agree m m' -> agree (does g m) (does g m').
  Proof.
    intros g [F D] m m' E l. destruct (in_dec loc_eq l (writes g)) as [I | N].
    - apply D; auto.
    - rewrite !F by assumption. apply E.
  Qed.

  Lemma trace_agree : forall gs, Forall lawful gs -> forall m m', agree m m' -> trace gs m = trace gs m'.
  Proof.
    induction gs; intros L m m' E; simpl; auto. inversion L; subst. f_equal.
    - f_equal. apply map_ext. exact E.
    - apply IHgs; auto. apply does_agree; auto.
  Qed.

  (** Two ops meet where both touch a location and one of them writes it. *)
  Definition meet (a b : step) : Prop :=
    exists l, (In l (writes a) /\ (In l (reads b) \/ In l (writes b))) \/ (In l (writes b) /\ In l (reads a)).

  Lemma exchange : forall a b m, lawful a -> lawful b -> ~ meet a b ->
    agree (does b (does a m)) (does a (does b m)) /\
    map (does a m) (reads b) = map m (reads b) /\ map (does b m) (reads a) = map m (reads a).
  Proof.
    intros a b m [Fa Da] [Fb Db] N.
    assert (Rb : forall l, In l (reads b) -> does a m l = m l).
    { intros l I. apply Fa. intro W. apply N. exists l. auto. }
    assert (Ra : forall l, In l (reads a) -> does b m l = m l).
    { intros l I. apply Fb. intro W. apply N. exists l. auto. }
    repeat split; try (apply map_ext_in; assumption).
    intro l. destruct (in_dec loc_eq l (writes a)) as [Ia | Na].
    - assert (Nb : ~ In l (writes b)) by (intro W; apply N; exists l; auto).
      rewrite (Fb _ _ Nb). apply Da; auto. intros l' I. symmetry. apply Ra. exact I.
    - rewrite (Fa _ _ Na). destruct (in_dec loc_eq l (writes b)) as [Ib | Nb].
      + apply Db; auto.
      + rewrite (Fb _ _ Nb). rewrite (Fb _ _ Nb). apply Fa. exact Na.
  Qed.

  Lemma trace_first : forall pre x post m, Forall lawful (pre ++ x :: post) ->
    (forall y, In y pre -> ~ meet y x) ->
    Permutation (trace (pre ++ x :: post) m) (trace (x :: pre ++ post) m).
  Proof.
    induction pre as [ | y pre IH ]; intros x post m L N; [ apply Permutation_refl | ].
    assert (Ly : lawful y) by (inversion L; auto).
    assert (L' : Forall lawful (pre ++ x :: post)) by (inversion L; auto).
    assert (Lx : lawful x) by (rewrite Forall_app in L'; destruct L' as [_ L']; inversion L'; auto).
    destruct (exchange y x m Ly Lx) as [E [Rx Ry]]; [ apply N; left; reflexivity | ].
    simpl app. cbn [trace].
    eapply perm_trans; [ apply perm_skip, IH; [ exact L' | intros; apply N; right; assumption ] | ].
    cbn [trace]. rewrite Rx, Ry. eapply perm_trans; [ apply perm_swap | ].
    assert (L2 : Forall lawful (pre ++ post)).
    { rewrite Forall_app in *. destruct L' as [A B]. inversion B. auto. }
    rewrite (trace_agree _ L2 _ _ E).
    apply Permutation_refl.
  Qed.

  (** An order keeps happens-before where nothing stands before what happens before it. *)
  Definition keeps (before : positive -> positive -> Prop) (gs : list step) : Prop :=
    ForallOrdPairs (fun x y => ~ before (name y) (name x)) gs.

  (** No race: what meets is ordered, the earlier one in the list first. *)
  Definition ordered (before : positive -> positive -> Prop) (gs : list step) : Prop :=
    ForallOrdPairs (fun x y => meet x y -> before (name x) (name y)) gs.

  Lemma pairs_remove : forall (A : Type) (R : A -> A -> Prop) pre x post,
    ForallOrdPairs R (pre ++ x :: post) -> ForallOrdPairs R (pre ++ post) /\ (forall y, In y pre -> R y x).
  Proof.
    induction pre as [ | y pre IH ]; simpl; intros x post H; inversion H as [ | ? ? F P ]; subst.
    - split; [assumption | contradiction].
    - apply IH in P as [P Q]. split.
      + constructor; auto. rewrite Forall_app in *. destruct F as [A' B]. inversion B; auto.
      + intros z [E | I]; [ | auto ]. subst. rewrite Forall_app in F. destruct F as [_ B]. inversion B; auto.
  Qed.

  Theorem schedules : forall before order gs m,
    Permutation gs order -> Forall lawful gs -> ordered before gs -> keeps before order ->
    Permutation (trace order m) (trace gs m).
  Proof.
    intros before. induction order as [ | x order IH ]; intros gs m P L O K.
    - apply Permutation_sym, Permutation_nil in P. subst. apply Permutation_refl.
    - assert (I : In x gs) by (apply (Permutation_in _ (Permutation_sym P)); left; reflexivity).
      apply in_split in I as [pre [post E]]. subst gs.
      pose proof (Permutation_sym (Permutation_cons_app_inv _ _ (Permutation_sym P))) as P'.
      apply pairs_remove in O as [O' M]. inversion K as [ | ? ? F K' ]; subst.
      assert (N : forall y, In y pre -> ~ meet y x).
      { intros y Y T. apply M in T; auto. rewrite Forall_forall in F. apply (F y); auto.
        apply (Permutation_in _ P'). apply in_or_app. auto. }
      eapply perm_trans; [ | apply Permutation_sym, trace_first; assumption ].
      cbn [trace]. apply perm_skip. apply IH; auto.
      rewrite Forall_app in *. destruct L as [A B]. inversion B; auto.
  Qed.

  (** Two memories side by side: cells of one tag hold one value, and no tag is of an op to come. *)
  Definition twins (a b : memory) : Prop :=
    forall l l' t, fst (a l) = Some t -> fst (b l') = Some t -> snd (a l) = snd (b l').
  Definition past (k : Z) (m : memory) : Prop := forall l n j u, fst (m l) = Some ((n, j), u) -> n < k.

  (** Reads of both sides that find the same tags. *)
  Fixpoint same_tags (a b : list step) (m m' : memory) : Prop :=
    match a, b with
    | [], [] => True
    | x :: a', y :: b' =>
        name x = name y /\
        Forall2 (fun l l' => exists t, fst (m l) = Some t /\ fst (m' l') = Some t) (reads x) (reads y) /\
        same_tags a' b' (does x m) (does y m')
    | _, _ => False
    end.

  (** What both sides of an op do: either they copy cells, or they compute new ones. *)
  Definition copies (g : step) : Prop := forall m l, exists l', does g m l = m l'.
  Definition computes (k : Z) (f : list V -> Z -> Z -> V) (g : step) : Prop :=
    forall m l, does g m l = m l \/
      exists j u, does g m l = (Some ((k, j), u), f (map (fun l => snd (m l)) (reads g)) j u).

  Inductive alike (k : Z) (x y : step) : Prop :=
  | both_copy : copies x -> copies y -> alike k x y
  | both_compute f : computes k f x -> computes k f y -> alike k x y.

  Fixpoint all_alike (k : Z) (a b : list step) : Prop :=
    match a, b with
    | x :: a', y :: b' => alike k x y /\ all_alike (k + 1) a' b'
    | _, _ => True
    end.

  Lemma reads_equal : forall x y m m', twins m m' ->
    Forall2 (fun l l' => exists t, fst (m l) = Some t /\ fst (m' l') = Some t) x y -> map m x = map m' y.
  Proof.
    induction 2 as [ | l l' x y [t [A B]] R IH ]; simpl; auto. f_equal; auto.
    pose proof (H l l' t A B) as E. destruct (m l), (m' l'). simpl in *. congruence.
  Qed.

  Lemma alike_step : forall k x y m m', alike k x y -> twins m m' -> past k m -> past k m' ->
    map m (reads x) = map m' (reads y) ->
    twins (does x m) (does y m') /\ past (k + 1) (does x m) /\ past (k + 1) (does y m').
  Proof.
    intros k x y m m' [Cx Cy | f Cx Cy] T P P' R.
    - repeat split; intro l.
      + intros l' t A B. destruct (Cx m l) as [s E], (Cy m' l') as [s' E']. rewrite E in *. rewrite E' in *. eauto.
      + intros n j u A. destruct (Cx m l) as [s E]. rewrite E in A. apply P in A. lia.
      + intros n j u A. destruct (Cy m' l) as [s E]. rewrite E in A. apply P' in A. lia.
    - assert (RV : map (fun l => snd (m l)) (reads x) = map (fun l => snd (m' l)) (reads y)).
      { rewrite <- (map_map m snd), <- (map_map m' snd). congruence. }
      repeat split; intro l.
      + intros l' t A B. destruct (Cx m l) as [E | [j [u E]]], (Cy m' l') as [E' | [j' [u' E']]];
          rewrite E in *; rewrite E' in *; simpl in *.
        * eauto.
        * exfalso. injection B as B. subst t. apply P in A. lia.
        * exfalso. injection A as A. subst t. apply P' in B. lia.
        * assert (Q : (k, j, u) = (k, j', u')) by congruence. inversion Q; subst. rewrite RV. reflexivity.
      + intros n j u A. destruct (Cx m l) as [E | [j' [u' E]]]; rewrite E in A; simpl in A.
        * apply P in A. lia.
        * inversion A. lia.
      + intros n j u A. destruct (Cy m' l) as [E | [j' [u' E]]]; rewrite E in A; simpl in A.
        * apply P' in A. lia.
        * inversion A. lia.
  Qed.

  Theorem values : forall a b k m m', all_alike k a b -> twins m m' -> past k m -> past k m' ->
    same_tags a b m m' -> trace a m = trace b m'.
  Proof.
    induction a as [ | x a IH ]; destruct b as [ | y b ]; simpl; intros k m m' A T P P' S; try contradiction; auto.
    destruct A as [A1 A2], S as [S1 [S2 S3]].
    pose proof (reads_equal _ _ _ _ T S2) as R.
    destruct (alike_step _ _ _ _ _ A1 T P P' R) as [T' [Q Q']].
    f_equal; [ congruence | ]. apply (IH b (k + 1)); auto.
  Qed.
End Model.
