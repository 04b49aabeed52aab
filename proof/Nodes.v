(** The ops of all runs as one list of nodes, and what they mean as steps of the model.

    A unit is a bit.  An access is a layout within a buffer, and where that buffer lies: apart it is
    memory of its own ([ident]), as planned a base in a space ([space], [base]).  A node is an op of
    a run; its label says which, and what the order of the runs asks of it.  Contents are writes
    before the first node, in order.

    What this file does not see: how a document comes to be such a list ([Terms]). *)

From Coq Require Import ZArith List Bool Lia Permutation Relations.
From Proof Require Import Layout Model.
Import ListNotations.
Open Scope Z_scope.

Record access := Access
  { ident : positive; space : positive; base : Z; start : Z; dims : list (Z * Z);
    len : Z  (** Bits of an element. *) }.

(** What a kernel promises of a pair of operand and result, by position. *)
Inductive strength := Exact | Bytes | Whole.

Inductive action :=
| Op (operands results : list access) (promises : list (Z * Z * strength))
| Same (moves : list (access * access)) (promises : list (Z * Z * strength))
| Hold (kept : list (access * access)).
(** [Hold] is no op.  Apart, it keeps a copy of what a read that comes late must find; as planned, it
    does nothing. *)

(** When an op of a run is done: at its own place; or behind a later run, and then its own place only
    keeps what it must find. *)
Inductive moment := Now | Held | Late (behind : positive).

Record label := Label
  { at_run : positive; at_step : positive; on_stream : positive;
    afters : list positive;  (** Steps of the same run. *)
    at_moment : moment }.

Record node := MakeNode { label_of : label; act : action }.

Inductive side := Apart | Planned.

Definition place (s : side) (a : access) : positive := match s with Apart => ident a | Planned => space a end.
Definition shift (s : side) (a : access) : Z := match s with Apart => 0 | Planned => base a end.
Definition at_ (s : side) (a : access) (u : Z) : loc := (place s a, shift s a + u).
Definition units_of (a : access) : list Z := units (start a) (dims a) (len a).
Definition locs (s : side) (a : access) : list loc := map (at_ s a) (units_of a).

Fixpoint enum {A} (j : Z) (l : list A) : list (Z * A) :=
  match l with [] => [] | x :: r => (j, x) :: enum (j + 1) r end.

Fixpoint number {A} (i : positive) (l : list A) : list (positive * A) :=
  match l with [] => [] | x :: r => (i, x) :: number (Pos.succ i) r end.

Lemma number_from : forall A (l : list A) i j x, In (j, x) (number i l) -> (i <= j)%positive.
Proof.
  induction l; simpl; intros i j x H; [ contradiction | ]. destruct H as [H | H]; [ inversion H; lia | ].
  apply IHl in H. lia.
Qed.

Lemma number_unique : forall A (l : list A) i j x y, In (j, x) (number i l) -> In (j, y) (number i l) -> x = y.
Proof.
  induction l; simpl; intros i j x y H H'; [ contradiction | ].
  destruct H as [H | H], H' as [H' | H']; try (inversion H; inversion H'; congruence).
  - inversion H; subst. apply number_from in H'. lia.
  - inversion H'; subst. apply number_from in H. lia.
  - eauto.
Qed.

Lemma number_in : forall A (l : list A) i j x, In (j, x) (number i l) -> In x l.
Proof. induction l; simpl; intros i j x H; [ contradiction | ]. destruct H as [H | H]; [ inversion H; auto | eauto ]. Qed.

Definition pairs (s : side) (ms : list (access * access)) : list (loc * loc) :=
  flat_map (fun p => combine (locs s (fst p)) (locs s (snd p))) ms.

Section Meaning.
  Variable V : Type.
  Variable F : Z -> list V -> Z -> Z -> V.
  (** What an op computes: from its number and the values of all units it reads, the value of each
      unit of each result.  Any function will do. *)

  Definition effects (s : side) (k : Z) (vals : list V) (j : Z) (a : access) : list (loc * cell V) :=
    map (fun u => (at_ s a u, (Some ((k, j), u), F k vals j u))) (units_of a).

  Definition op_effects s k vals (ws : list access) :=
    flat_map (fun w => effects s k vals (fst w) (snd w)) (enum 0 ws).

  Definition op_does (s : side) (k : Z) (rs ws : list access) (m : memory V) : memory V :=
    apply V (op_effects s k (map (fun l => snd (m l)) (flat_map (locs s) rs)) ws) m.

  Definition copied (m : memory V) (ps : list (loc * loc)) : list (loc * cell V) :=
    map (fun p => (snd p, m (fst p))) ps.

  Definition same_does (s : side) (ms : list (access * access)) (m : memory V) : memory V :=
    apply V (copied m (pairs s ms)) m.

  (** A [same] writes no unit that it leaves where it is. *)
  Definition moving (p : loc * loc) : bool := if loc_eq (fst p) (snd p) then false else true.

  Definition step_of (s : side) (i : positive) (n : node) : step V :=
    match act n with
    | Op rs ws _ =>
        {| name := i; reads := flat_map (locs s) rs; writes := flat_map (locs s) ws; does := op_does s (Zpos i) rs ws |}
    | Same ms _ =>
        {| name := i; reads := flat_map (fun p => locs s (fst p)) ms;
           writes := map snd (filter moving (pairs s ms)); does := same_does s ms |}
    | Hold ms =>
        {| name := i; reads := []; writes := [];
           does := match s with Apart => same_does Apart ms | Planned => fun m => m end |}
    end.

  Definition steps (s : side) (ns : list (positive * node)) : list (step V) :=
    map (fun p => step_of s (fst p) (snd p)) ns.

  (** Memory before the first node: contents over what lay there, whatever that was. *)
  Definition laid (s : side) (contents : list access) (garbage : loc -> V) : memory V :=
    op_does s 0 [] contents (fun l => (None, garbage l)).

  Lemma map_fst_effects : forall s k vals j a, map fst (effects s k vals j a) = locs s a.
  Proof. intros. unfold effects, locs. rewrite map_map. reflexivity. Qed.

  Lemma map_fst_op_effects : forall s k vals ws, map fst (op_effects s k vals ws) = flat_map (locs s) ws.
  Proof.
    intros. unfold op_effects. generalize 0. induction ws; intros; simpl; auto.
    rewrite map_app, map_fst_effects, IHws. reflexivity.
  Qed.

  Lemma in_op_effects : forall s k vals ws l c, In (l, c) (op_effects s k vals ws) ->
    exists j u, c = (Some ((k, j), u), F k vals j u).
  Proof.
    intros. unfold op_effects in H. apply in_flat_map in H as [[j a] [_ H]].
    apply in_map_iff in H as [u [E _]]. inversion E. eauto.
  Qed.

  Lemma apply_same : forall (es : list (loc * cell V)) m m' l, In l (map fst es) -> apply V es m l = apply V es m' l.
  Proof.
    induction es as [ | [l' c'] es IH ] using rev_ind; intros; simpl in *; [ contradiction | ].
    unfold apply in *. rewrite !fold_left_app. simpl. unfold put at 1 3. simpl.
    destruct (loc_eq l l'); auto. apply IH. rewrite map_app, in_app_iff in H. simpl in H.
    destruct H as [H | [H | []]]; auto. congruence.
  Qed.

  Lemma pairs_reads : forall s ms p, In p (pairs s ms) -> In (fst p) (flat_map (fun q => locs s (fst q)) ms).
  Proof.
    intros s ms [x y] H. unfold pairs in H. apply in_flat_map in H as [q [A B]]. apply in_flat_map.
    exists q. split; auto. apply in_combine_l in B. exact B.
  Qed.

  Lemma map_fst_copied : forall m ps, map fst (copied m ps) = map snd ps.
  Proof. intros. unfold copied. rewrite map_map. reflexivity. Qed.

  Lemma step_lawful : forall i n, lawful V (step_of Planned i n).
  Proof.
    intros. unfold step_of. set (s := Planned). destruct (act n) as [rs ws ps | ms sp | ms]; split; simpl; auto.
    - intros m l N. unfold op_does. destruct (apply_cases V (op_effects s (Zpos i) (map (fun l => snd (m l))
        (flat_map (locs s) rs)) ws) m l) as [[_ E] | [c [I _]]]; auto.
      exfalso. apply N. apply (in_map fst) in I. rewrite map_fst_op_effects in I. exact I.
    - intros m m' E l I. unfold op_does.
      rewrite (map_ext_in (fun l => snd (m l)) (fun l => snd (m' l))) by (intros a A; rewrite E; auto).
      apply apply_same. rewrite map_fst_op_effects. exact I.
    - intros m l N. unfold same_does. destruct (apply_cases V (copied m (pairs s ms)) m l) as [[_ E] | [c [I E]]]; auto.
      rewrite E. apply in_map_iff in I as [[x y] [A B]]. simpl in A. inversion A; subst.
      destruct (loc_eq x l) as [D | D]; [ subst; reflexivity | ]. exfalso. apply N.
      apply in_map_iff. exists (x, l). split; auto. apply filter_In. split; auto.
      unfold moving. simpl. destruct (loc_eq x l); congruence.
    - intros m m' E l I. unfold same_does. unfold copied.
      rewrite (map_ext_in (fun p => (snd p, m (fst p))) (fun p => (snd p, m' (fst p)))).
      + apply apply_same. rewrite map_map. simpl. apply in_map_iff in I as [p [A B]].
        apply filter_In in B as [B _]. apply in_map_iff. eauto.
      + intros p P. rewrite E; auto. apply pairs_reads. exact P.
  Qed.

  Lemma steps_lawful : forall ns, Forall (lawful V) (steps Planned ns).
  Proof. intros. apply Forall_forall. intros g H. apply in_map_iff in H as [p [E _]]. subst. apply step_lawful. Qed.

  Lemma step_alike : forall i n, alike V (Zpos i) (step_of Apart i n) (step_of Planned i n).
  Proof.
    intros. unfold step_of. destruct (act n) as [rs ws ps | ms sp | ms].
    - apply both_compute with (f := F (Zpos i)); intros m l; simpl; unfold op_does;
        match goal with |- context [apply V ?es m l] => destruct (apply_cases V es m l) as [[_ E] | [c [I E]]] end; auto;
        right; rewrite E; apply in_op_effects in I as [j [u I]]; subst; eauto.
    - apply both_copy; intros m l; simpl; unfold same_does;
        match goal with |- context [apply V ?es m l] => destruct (apply_cases V es m l) as [[_ E] | [c [I E]]] end;
        rewrite E; eauto; apply in_map_iff in I as [p [A _]]; inversion A; eauto.
    - apply both_copy; intros m l; simpl; [ unfold same_does | eauto ].
      match goal with |- context [apply V ?es m l] => destruct (apply_cases V es m l) as [[_ E] | [c [I E]]] end;
        rewrite E; eauto; apply in_map_iff in I as [p [A _]]; inversion A; eauto.
  Qed.

  Lemma steps_alike : forall ns i, all_alike V (Zpos i) (steps Apart (number i ns)) (steps Planned (number i ns)).
  Proof.
    induction ns; intros; simpl; auto. split; [ apply step_alike | ].
    rewrite Pos.add_1_r. apply IHns.
  Qed.

  Lemma laid_cases : forall s cs g l,
    laid s cs g l = (None, g l) \/ exists j u, laid s cs g l = (Some ((0, j), u), F 0 [] j u).
  Proof.
    intros. unfold laid, op_does. simpl.
    destruct (apply_cases V (op_effects s 0 [] cs) (fun l => (None, g l)) l) as [[_ E] | [c [I E]]]; auto.
    right. apply in_op_effects in I as [j [u I]]. rewrite E, I. eauto.
  Qed.

  Lemma laid_twins : forall cs g g', twins V (laid Apart cs g) (laid Planned cs g').
  Proof.
    intros cs g g' l l' t A B.
    destruct (laid_cases Apart cs g l) as [E | [j [u E]]], (laid_cases Planned cs g' l') as [E' | [j' [u' E']]];
      rewrite E in *; rewrite E' in *; simpl in *; try discriminate.
    congruence.
  Qed.

  Lemma laid_past : forall s cs g, past V 1 (laid s cs g).
  Proof.
    intros s cs g l n j u A. destruct (laid_cases s cs g l) as [E | [j' [u' E]]]; rewrite E in A; simpl in A.
    - discriminate.
    - inversion A. lia.
  Qed.
End Meaning.

(** Happens-before.  Within a run: the order of a stream, and what an op waits for.  Between runs: all
    ops of a run before those of a run that waits for it ([W]).  A read that comes late is after all
    ops of the run behind which it stands, besides what it waits for at its own place, and before the
    runs that wait for that run.  Else nothing is before or after it. *)
Definition ordered_by (W : positive -> positive -> Prop) (a b : label) : Prop :=
  at_moment b <> Held /\
  match at_moment a with
  | Now =>
      (at_run a = at_run b /\
        ((on_stream a = on_stream b /\ (at_step a < at_step b)%positive) \/ In (at_step a) (afters b)))
      \/ W (at_run a) (at_run b) \/ at_moment b = Late (at_run a)
  | Held => False
  | Late k => W k (at_run b)
  end.

Definition edge W (ns : list node) (i j : positive) : Prop :=
  exists a b, In (i, a) (number 1 ns) /\ In (j, b) (number 1 ns) /\ ordered_by W (label_of a) (label_of b).

Definition before W (ns : list node) : positive -> positive -> Prop := clos_trans _ (edge W ns).
