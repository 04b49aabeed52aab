(** Where the units (bytes, or bits) of a value lie: what a layout means, and its runs.

    A layout is a start, dimensions (count, stride) from the outermost to the innermost, and a
    length: the units that stand together at each index.  [units] is its meaning, in row-major
    order.  [rows] are its runs in that order; [runs] are its runs as a set, from the lowest up.
    Both are lists of (start, length), and both are proved to name the units and no others.

    What this file does not see: buffers and addresses. *)

From Coq Require Import ZArith List Bool Lia Permutation Mergesort Orders.
Import ListNotations.
Open Scope Z_scope.

(** [from s n] counts n numbers up from s. *)
Fixpoint from (s : Z) (n : nat) : list Z :=
  match n with O => [] | S n' => s :: from (s + 1) n' end.

Definition range (s n : Z) : list Z := from s (Z.to_nat n).

Lemma in_from : forall n s x, In x (from s n) <-> s <= x < s + Z.of_nat n.
Proof.
  induction n; intros; simpl from; simpl In; [ lia | ].
  rewrite IHn. lia.
Qed.

Lemma in_range : forall s n x, In x (range s n) <-> s <= x < s + n.
Proof. intros. unfold range. rewrite in_from. lia. Qed.

Lemma from_app : forall n m s, from s (n + m) = from s n ++ from (s + Z.of_nat n) m.
Proof.
  induction n; intros; simpl from; simpl app.
  - f_equal; lia.
  - rewrite IHn. do 3 f_equal; lia.
Qed.

Lemma range_app : forall s n m, 0 <= n -> 0 <= m -> range s (n + m) = range s n ++ range (s + n) m.
Proof.
  intros. unfold range. rewrite Z2Nat.inj_add by lia. rewrite from_app. do 2 f_equal; lia.
Qed.

Lemma from_length : forall n s, length (from s n) = n.
Proof. induction n; intros; simpl; auto. Qed.

Definition run := (Z * Z)%type.

Definition flat (rs : list run) : list Z := flat_map (fun r => range (fst r) (snd r)) rs.

Lemma flat_app : forall a b, flat (a ++ b) = flat a ++ flat b.
Proof. intros. unfold flat. apply flat_map_app. Qed.

(** The meaning of a layout. *)
Fixpoint units (s : Z) (dims : list (Z * Z)) (len : Z) : list Z :=
  match dims with
  | [] => range s len
  | (n, st) :: inner => flat_map (fun i => units (s + i * st) inner len) (range 0 n)
  end.

(** Row-major runs: dimensions that follow one another without a gap are one. *)
Fixpoint joined (dims : list (Z * Z)) (len : Z) : list (Z * Z) * Z :=
  match dims with
  | [] => ([], len)
  | (n, st) :: inner =>
      let '(inner', len') := joined inner len in
      if n =? 1 then (inner', len') else
      match inner' with
      | [] => if (st =? len') && (0 <=? n) && (0 <=? len') then ([], n * len') else ([(n, st)], len')
      | _ => ((n, st) :: inner', len')
      end
  end.

Fixpoint expand (s : Z) (dims : list (Z * Z)) (len : Z) : list run :=
  match dims with
  | [] => [(s, len)]
  | (n, st) :: inner => flat_map (fun i => expand (s + i * st) inner len) (range 0 n)
  end.

Definition rows (s : Z) (dims : list (Z * Z)) (len : Z) : list run :=
  let '(dims', len') := joined dims len in expand s dims' len'.

Lemma flat_expand : forall dims s len, flat (expand s dims len) = units s dims len.
Proof.
  induction dims as [ | [n st] inner IH ]; intros; simpl.
  - apply app_nil_r.
  - generalize (range 0 n). intro l. induction l; simpl; auto.
    rewrite flat_app, IH, IHl. reflexivity.
Qed.

Lemma stacked : forall k i s len, 0 <= len ->
  flat_map (fun j => range (s + j * len) len) (from i k) = range (s + i * len) (Z.of_nat k * len).
Proof.
  induction k; intros; cbn [from flat_map].
  - simpl Z.of_nat. reflexivity.
  - rewrite IHk by lia. replace (Z.of_nat (S k) * len) with (len + Z.of_nat k * len) by lia.
    rewrite range_app by nia. f_equal. f_equal. lia.
Qed.

Lemma joined_units : forall dims s len dims' len',
  joined dims len = (dims', len') -> units s dims len = units s dims' len'.
Proof.
  induction dims as [ | [n st] inner IH ]; intros s len dims' len' E; simpl in E.
  - inversion E. reflexivity.
  - destruct (joined inner len) as [inner' l'] eqn:J.
    assert (H : forall t, units t inner len = units t inner' l') by (intro; apply IH; exact J).
    simpl. rewrite (flat_map_ext _ _ (fun i => H (s + i * st))).
    destruct (n =? 1) eqn:One.
    + apply Z.eqb_eq in One. subst n. inversion E; subst. change (range 0 1) with [0]. cbn [flat_map]. rewrite app_nil_r. f_equal; lia.
    + destruct inner' as [ | d ds ].
      * destruct ((st =? l') && (0 <=? n) && (0 <=? l')) eqn:C.
        -- inversion E; subst. apply andb_prop in C as [C C3]. apply andb_prop in C as [C1 C2].
           apply Z.eqb_eq in C1. apply Z.leb_le in C2, C3. subst st. simpl.
           change (range 0 n) with (from 0 (Z.to_nat n)). rewrite stacked by lia. rewrite Z2Nat.id by lia. f_equal; lia.
        -- inversion E; subst. reflexivity.
      * inversion E; subst. reflexivity.
Qed.

Lemma flat_rows : forall s dims len, flat (rows s dims len) = units s dims len.
Proof.
  intros. unfold rows. destruct (joined dims len) as [d l] eqn:J.
  rewrite flat_expand. symmetry. apply joined_units. exact J.
Qed.

(** Runs as a set: strides made positive, broadcasts dropped, the largest stride outermost. *)
Fixpoint upward (s : Z) (dims : list (Z * Z)) : Z * list (Z * Z) :=
  match dims with
  | [] => (s, [])
  | (n, st) :: inner =>
      let '(s', inner') := upward s inner in
      if (0 <? n) && (st =? 0) then (s', inner')
      else if (0 <? n) && (st <? 0) then (s' + (n - 1) * st, (n, - st) :: inner')
      else (s', (n, st) :: inner')
  end.

Definition within (s : Z) (dims : list (Z * Z)) (len x : Z) : Prop := In x (units s dims len).

Lemma within_cons : forall n st inner s len x,
  within s ((n, st) :: inner) len x <-> exists i, 0 <= i < n /\ within (s + i * st) inner len x.
Proof.
  intros. unfold within. simpl. rewrite in_flat_map. split.
  - intros [i [A B]]. apply in_range in A. exists i. split; [lia | exact B].
  - intros [i [A B]]. exists i. split; [apply in_range; lia | exact B].
Qed.

Lemma within_shift : forall dims s t len x, within (s + t) dims len x <-> within s dims len (x - t).
Proof.
  induction dims as [ | [n st] inner IH ]; intros.
  - unfold within. simpl. rewrite !in_range. lia.
  - rewrite !within_cons. split; intros [i [A B]]; exists i; split; auto.
    + rewrite <- IH. replace (s + i * st + t) with (s + t + i * st) by lia. exact B.
    + rewrite <- IH in B. replace (s + t + i * st) with (s + i * st + t) by lia. exact B.
Qed.

Lemma upward_shift : forall dims s t, upward (s + t) dims = (fst (upward s dims) + t, snd (upward s dims)).
Proof.
  induction dims as [ | [n st] inner IH ]; intros; simpl; auto.
  rewrite IH. destruct (upward s inner) as [s' inner']. simpl.
  destruct ((0 <? n) && (st =? 0)); simpl; auto.
  destruct ((0 <? n) && (st <? 0)); simpl; auto. f_equal. lia.
Qed.

Lemma upward_within : forall dims s len x,
  within (fst (upward s dims)) (snd (upward s dims)) len x <-> within s dims len x.
Proof.
  induction dims as [ | [n st] inner IH ]; intros; [ reflexivity | ].
  rewrite within_cons.
  assert (H : forall i, within (s + i * st) inner len x <->
      within (fst (upward s inner) + i * st) (snd (upward s inner)) len x).
  { intro i. rewrite <- (IH (s + i * st)). rewrite upward_shift. reflexivity. }
  simpl. destruct (upward s inner) as [s' inner']. simpl in H.
  destruct ((0 <? n) && (st =? 0)) eqn:Z0.
  - apply andb_prop in Z0 as [A B]. apply Z.ltb_lt in A. apply Z.eqb_eq in B. subst st. simpl. split.
    + intro W. exists 0. split; [lia|]. apply H. replace (s' + 0 * 0) with s' by lia. exact W.
    + intros [i [_ W]]. apply H in W. replace (s' + i * 0) with s' in W by lia. exact W.
  - destruct ((0 <? n) && (st <? 0)) eqn:Neg; simpl; rewrite within_cons.
    + apply andb_prop in Neg as [A _]. apply Z.ltb_lt in A. split; intros [i [B W]].
      * exists (n - 1 - i). split; [lia|]. apply H.
        replace (s' + (n - 1 - i) * st) with (s' + (n - 1) * st + i * - st) by lia. exact W.
      * exists (n - 1 - i). split; [lia|]. apply H in W.
        replace (s' + (n - 1) * st + (n - 1 - i) * - st) with (s' + i * st) by lia. exact W.
    + split; intros [i [B W]]; exists i; split; auto; apply H; exact W.
Qed.

Module Widest <: TotalLeBool.
  Definition t := (Z * Z)%type.
  Definition leb (a b : t) := snd b <=? snd a.
  Lemma leb_total : forall a b, leb a b = true \/ leb b a = true.
  Proof. intros. unfold leb. rewrite !Z.leb_le. lia. Qed.
End Widest.
Module ByStride := Sort Widest.

Lemma within_perm : forall a b, Permutation a b -> forall s len x, within s a len x <-> within s b len x.
Proof.
  induction 1; intros.
  - reflexivity.
  - destruct x as [n st]. rewrite !within_cons.
    split; intros [i [A B]]; exists i; split; auto; apply IHPermutation; exact B.
  - destruct x as [n st], y as [m tt]. rewrite !within_cons.
    split; intros [i [A B]]; apply within_cons in B as [j [C D]].
    + exists j. split; auto. apply within_cons. exists i. split; auto.
      replace (s + j * st + i * tt) with (s + i * tt + j * st) by lia. exact D.
    + exists j. split; auto. apply within_cons. exists i. split; auto.
      replace (s + j * tt + i * st) with (s + i * st + j * tt) by lia. exact D.
  - rewrite IHPermutation1. apply IHPermutation2.
Qed.

(** Dimensions that overlap or touch are one longer run, from the innermost out. *)
Fixpoint fused (dims : list (Z * Z)) (len : Z) : list (Z * Z) * Z :=
  match dims with
  | [] => ([], len)
  | (n, st) :: inner =>
      let '(inner', len') := fused inner len in
      match inner' with
      | [] => if (0 <? n) && (0 <=? st) && (st <=? len') then ([], len' + (n - 1) * st) else ([(n, st)], len')
      | _ => ((n, st) :: inner', len')
      end
  end.

Lemma covered : forall k s st len x, 0 <= st <= len ->
  (exists i, 0 <= i < Z.of_nat (S k) /\ s + i * st <= x < s + i * st + len) <->
  s <= x < s + len + Z.of_nat k * st.
Proof.
  induction k; intros s st len x H.
  - split.
    + intros [i [A B]]. assert (i = 0) by lia. subst i. lia.
    + intro A. exists 0. lia.
  - specialize (IHk s st len x H). split.
    + intros [i [A B]]. destruct (Z.eq_dec i (Z.of_nat (S k))).
      * subst i. nia.
      * assert (C : s <= x < s + len + Z.of_nat k * st) by (apply IHk; exists i; lia). nia.
    + intro A. destruct (Z_lt_dec x (s + len + Z.of_nat k * st)) as [L | G].
      * assert (C : s <= x < s + len + Z.of_nat k * st) by lia.
        apply IHk in C as [i [D E]]. exists i. lia.
      * exists (Z.of_nat (S k)). nia.
Qed.

Lemma fused_within : forall dims s len dims' len', fused dims len = (dims', len') ->
  forall x, within s dims len x <-> within s dims' len' x.
Proof.
  induction dims as [ | [n st] inner IH ]; intros s len dims' len' E x; simpl in E.
  - inversion E. reflexivity.
  - destruct (fused inner len) as [inner' l'] eqn:J.
    assert (H : forall t, within t inner len x <-> within t inner' l' x) by (intro; apply IH; exact J).
    rewrite within_cons.
    assert (G : (exists i, 0 <= i < n /\ within (s + i * st) inner len x) <->
                (exists i, 0 <= i < n /\ within (s + i * st) inner' l' x)).
    { split; intros [i [A B]]; exists i; split; auto; apply H; exact B. }
    rewrite G. destruct inner' as [ | d ds ].
    + destruct ((0 <? n) && (0 <=? st) && (st <=? l')) eqn:C.
      * inversion E; subst. apply andb_prop in C as [C C3]. apply andb_prop in C as [C1 C2].
        apply Z.ltb_lt in C1. apply Z.leb_le in C2, C3. unfold within. simpl.
        rewrite in_range.
        rewrite (Z.add_assoc s l'). pose proof (covered (Z.to_nat (n - 1)) s st l' x (conj C2 C3)) as K.
        replace (Z.of_nat (S (Z.to_nat (n - 1)))) with n in K by lia.
        replace (Z.of_nat (Z.to_nat (n - 1))) with (n - 1) in K by lia.
        rewrite <- K. split; intros [i [A B]]; exists i; (split; [exact A | ]).
        -- apply in_range in B. exact B.
        -- apply in_range. exact B.
      * inversion E; subst. rewrite within_cons. reflexivity.
    + inversion E; subst. rewrite within_cons. reflexivity.
Qed.

Module Lowest <: TotalLeBool.
  Definition t := (Z * Z)%type.
  Definition leb (a b : t) := fst a <=? fst b.
  Lemma leb_total : forall a b, leb a b = true \/ leb b a = true.
  Proof. intros. unfold leb. rewrite !Z.leb_le. lia. Qed.
End Lowest.
Module ByStart := Sort Lowest.

Fixpoint merged (s l : Z) (rs : list run) : list run :=
  match rs with
  | [] => [(s, l)]
  | (t, m) :: rest =>
      if (0 <=? l) && (s <=? t) && (t <=? s + l) && (0 <=? m) then merged s (Z.max l (t + m - s)) rest
      else (s, l) :: merged t m rest
  end.

Definition sorted (rs : list run) : list run :=
  match ByStart.sort rs with [] => [] | (s, l) :: rest => merged s l rest end.

Lemma in_flat_cons : forall s l rs x, In x (flat ((s, l) :: rs)) <-> s <= x < s + l \/ In x (flat rs).
Proof. intros. unfold flat. cbn [flat_map fst snd]. rewrite in_app_iff, in_range. reflexivity. Qed.

Lemma merged_in : forall rs s l x, In x (flat (merged s l rs)) <-> In x (flat ((s, l) :: rs)).
Proof.
  induction rs as [ | [t m] rest IH ]; intros; cbn [merged]; [ reflexivity | ].
  destruct ((0 <=? l) && (s <=? t) && (t <=? s + l) && (0 <=? m)) eqn:C.
  - apply andb_prop in C as [C C3]. apply andb_prop in C as [C C2]. apply andb_prop in C as [C0 C1].
    apply Z.leb_le in C0, C1, C2, C3. rewrite IH, !in_flat_cons.
    split; intros [H | H]; try tauto; try lia.
    destruct H; [left; lia | tauto].
  - rewrite in_flat_cons, IH, (in_flat_cons s l). reflexivity.
Qed.

Lemma flat_perm : forall a b x, Permutation a b -> In x (flat a) -> In x (flat b).
Proof.
  intros a b x P H. unfold flat in *. apply in_flat_map in H as [r [A B]]. apply in_flat_map.
  exists r. split; [ apply (Permutation_in _ P A) | exact B ].
Qed.

Lemma sorted_in : forall rs x, In x (flat (sorted rs)) <-> In x (flat rs).
Proof.
  intros. unfold sorted. pose proof (ByStart.Permuted_sort rs) as P.
  destruct (ByStart.sort rs) as [ | [s l] rest ].
  - apply Permutation_sym, Permutation_nil in P. subst. reflexivity.
  - rewrite merged_in. split; apply flat_perm; [ apply Permutation_sym | ]; exact P.
Qed.

Definition runs (s : Z) (dims : list (Z * Z)) (len : Z) : list run :=
  let '(s', dims') := upward s dims in
  let '(dims2, len2) := fused (ByStride.sort dims') len in
  sorted (expand s' dims2 len2).

Theorem runs_exact : forall s dims len x, In x (flat (runs s dims len)) <-> In x (units s dims len).
Proof.
  intros. unfold runs. pose proof (upward_within dims s len x) as U.
  destruct (upward s dims) as [s' dims']. simpl in U. fold (within s dims len x). rewrite <- U.
  rewrite (within_perm _ _ (ByStride.Permuted_sort dims')).
  destruct (fused (ByStride.sort dims') len) as [d l] eqn:F.
  rewrite (fused_within _ _ _ _ _ F). rewrite sorted_in, flat_expand. reflexivity.
Qed.
