(** In place: when an op may write where it reads, and what that asks of kernels.

    [vouched] is the rule: a result shares no unit with an operand, or the kernel promised the pair
    and the two lie as the promise says; and no two results share a unit.  What is assumed of kernels
    is no more than this: where the rule is kept, a kernel does what [step_of] says, as if it had
    read all before it wrote any.  A [same] is a parallel move: a result shares no unit with an operand,
    or all, or the pair is promised whole; and no two results share a unit.

    What this file does not see: whether any kernel keeps its promise. *)

From Coq Require Import ZArith List Bool Lia.
From Proof Require Import Layout Model Nodes.
Import ListNotations.
Open Scope Z_scope.

Definition same_start (a b : access) : bool :=
  (space a =? space b)%positive && (base a + start a =? base b + start b).

Fixpoint same_dims (a b : list (Z * Z)) : bool :=
  match a, b with
  | [], [] => true
  | (n, s) :: a', (m, t) :: b' => (n =? m) && ((n <=? 1) || (s =? t)) && same_dims a' b'
  | _, _ => false
  end.

(** How many units follow one another, where a value has no holes and no other order. *)
Definition solid (a : access) : option Z :=
  match joined (dims a) (len a) with ([], n) => Some n | _ => None end.

(** How many bytes so many bits fill: a kernel that promises by bytes writes its last one whole. *)
Definition bytes_of (n : Z) : Z := (n + 7) / 8.

(** How operand and result must lie for a promise to hold. *)
Definition kept (s : strength) (operand result : access) : bool :=
  match s with
  | Exact => same_start operand result && (len operand =? len result) && same_dims (dims operand) (dims result)
  | Bytes => same_start operand result &&
      match solid operand, solid result with Some n, Some m => bytes_of m <=? bytes_of n | _, _ => false end
  | Whole => true
  end.

Definition parted (a b : access) : Prop := forall l, In l (locs Planned a) -> In l (locs Planned b) -> False.

(** They hold the same units. *)
Definition alike (a b : access) : Prop := forall l, In l (locs Planned a) <-> In l (locs Planned b).

Definition vouched (n : node) : Prop :=
  match act n with
  | Op rs ws ps =>
      (forall i r j w, In (i, r) (enum 0 rs) -> In (j, w) (enum 0 ws) ->
         parted r w \/ exists s, In (i, j, s) ps /\ kept s r w = true) /\
      ForallOrdPairs parted ws
  | Same ms ps =>
      (forall i r j w, In (i, r) (enum 0 (map fst ms)) -> In (j, w) (enum 0 (map snd ms)) ->
         parted r w \/ alike r w \/ In (i, j, Whole) ps) /\
      ForallOrdPairs parted (map snd ms)
  | Hold _ => True
  end.

(** Whether lists of runs are in order, from the lowest up. *)
Fixpoint ascending (rs : list run) : bool :=
  match rs with
  | [] => true
  | (s, l) :: rest => (0 <=? l) && match rest with [] => true | (t, _) :: _ => s + l <=? t end && ascending rest
  end.

Lemma ascending_low : forall rs s l x, ascending ((s, l) :: rs) = true -> In x (flat rs) -> s + l <= x.
Proof.
  induction rs as [ | [t m] rs IH ]; intros s l x A I; [ contradiction | ].
  cbn [ascending] in A. rewrite !andb_true_iff, !Z.leb_le in A. destruct A as [[A1 A2] [[A3 A4] A5]].
  apply in_flat_cons in I as [I | I]; [ lia | ].
  assert (t + m <= x); [ | lia ]. apply IH; auto. cbn [ascending]. rewrite !andb_true_iff, !Z.leb_le. auto.
Qed.

Fixpoint clear (fuel : nat) (xs ys : list run) : bool :=
  match xs, ys with
  | [], _ | _, [] => true
  | (x, l) :: xs', (y, m) :: ys' =>
      match fuel with
      | O => false
      | S f => if x + l <=? y then clear f xs' ys else if y + m <=? x then clear f xs ys' else false
      end
  end.

Lemma clear_true : forall fuel xs ys, clear fuel xs ys = true -> ascending xs = true -> ascending ys = true ->
  forall u, In u (flat xs) -> In u (flat ys) -> False.
Proof.
  induction fuel; intros xs ys C A B u X Y;
    destruct xs as [ | [x l] xs' ], ys as [ | [y m] ys' ]; try contradiction; cbn [clear] in C; [ discriminate | ].
  assert (A' : ascending xs' = true) by (cbn [ascending] in A; rewrite !andb_true_iff in A; tauto).
  assert (B' : ascending ys' = true) by (cbn [ascending] in B; rewrite !andb_true_iff in B; tauto).
  assert (Lx : 0 <= l) by (cbn [ascending] in A; rewrite !andb_true_iff, Z.leb_le in A; tauto).
  assert (Ly : 0 <= m) by (cbn [ascending] in B; rewrite !andb_true_iff, Z.leb_le in B; tauto).
  assert (Yl : y <= u) by (apply in_flat_cons in Y as [Y | Y]; [ lia | apply (ascending_low _ _ _ _ B) in Y; lia ]).
  assert (Xl : x <= u) by (apply in_flat_cons in X as [X | X]; [ lia | apply (ascending_low _ _ _ _ A) in X; lia ]).
  destruct (x + l <=? y) eqn:C1; [ apply Z.leb_le in C1 | destruct (y + m <=? x) eqn:C2; [ apply Z.leb_le in C2 | discriminate ] ].
  - apply in_flat_cons in X as [X | X]; [ lia | ]. eapply (IHfuel xs' ((y, m) :: ys')); eauto.
  - apply in_flat_cons in Y as [Y | Y]; [ lia | ]. eapply (IHfuel ((x, l) :: xs') ys'); eauto.
Qed.

Definition laid_runs (a : access) : list run :=
  map (fun r => (base a + fst r, snd r)) (runs (start a) (dims a) (len a)).

Lemma laid_runs_in : forall a l, In l (locs Planned a) -> fst l = space a /\ In (snd l) (flat (laid_runs a)).
Proof.
  intros a l H. unfold locs in H. apply in_map_iff in H as [u [E U]]. subst l. split; [ reflexivity | ].
  apply runs_exact in U. unfold flat, laid_runs in *. apply in_flat_map in U as [r [R U]]. apply in_range in U.
  apply in_flat_map. exists (base a + fst r, snd r). split; [ apply in_map_iff; eauto | ].
  apply in_range. cbn. lia.
Qed.

Definition part_from (a b : access) : bool :=
  negb (space a =? space b)%positive ||
  (let xs := laid_runs a in let ys := laid_runs b in
   ascending xs && ascending ys && clear (length xs + length ys) xs ys).

Lemma part_from_true : forall a b, part_from a b = true -> parted a b.
Proof.
  intros a b H l X Y. apply laid_runs_in in X as [X1 X2]. apply laid_runs_in in Y as [Y1 Y2].
  unfold part_from in H. apply orb_true_iff in H as [H | H].
  - apply negb_true_iff, Pos.eqb_neq in H. congruence.
  - rewrite !andb_true_iff in H. destruct H as [[A B] C]. eapply clear_true; eauto.
Qed.

Fixpoint all_parted (ws : list access) : bool :=
  match ws with [] => true | w :: rest => forallb (part_from w) rest && all_parted rest end.

Definition promised (ps : list (Z * Z * strength)) (r w : Z * access) : bool :=
  existsb (fun p => match p with (i, j, s) => (i =? fst r) && (j =? fst w) && kept s (snd r) (snd w) end) ps.

Definition whole (ps : list (Z * Z * strength)) (r w : Z * access) : bool :=
  existsb (fun p => match p with (i, j, Whole) => (i =? fst r) && (j =? fst w) | _ => false end) ps.

Fixpoint same_runs (xs ys : list run) : bool :=
  match xs, ys with
  | [], [] => true
  | (x, l) :: xs', (y, m) :: ys' => (x =? y) && (l =? m) && same_runs xs' ys'
  | _, _ => false
  end.

Definition alike_b (a b : access) : bool := (space a =? space b)%positive && same_runs (laid_runs a) (laid_runs b).

Lemma same_runs_true : forall xs ys, same_runs xs ys = true -> xs = ys.
Proof.
  induction xs as [ | [x l] xs IH ]; destruct ys as [ | [y m] ys ]; intro H; cbn [same_runs] in H; try discriminate; auto.
  rewrite !andb_true_iff, !Z.eqb_eq in H. destruct H as [[A B] C]. apply IH in C. congruence.
Qed.

Lemma laid_runs_exact : forall a sp x, In (sp, x) (locs Planned a) <-> sp = space a /\ In x (flat (laid_runs a)).
Proof.
  intros a sp x. split; [ intro H; apply laid_runs_in in H; exact H | ]. intros [E H]. subst.
  unfold laid_runs, flat in H. apply in_flat_map in H as [r [R X]]. apply in_map_iff in R as [q [Q R]]. subst r.
  cbn [fst snd] in X. apply in_range in X. unfold locs. apply in_map_iff. exists (x - base a). split.
  - unfold at_. cbn. f_equal. lia.
  - unfold units_of. apply runs_exact. apply in_flat_map. exists q. split; auto. apply in_range. lia.
Qed.

Lemma alike_b_true : forall a b, alike_b a b = true -> alike a b.
Proof.
  intros a b H [sp x]. unfold alike_b in H. apply andb_prop in H as [S R]. apply Pos.eqb_eq in S. apply same_runs_true in R.
  rewrite !laid_runs_exact, S, R. reflexivity.
Qed.

Definition check_vouched (n : node) : bool :=
  match act n with
  | Op rs ws ps =>
      forallb (fun r => forallb (fun w => part_from (snd r) (snd w) || promised ps r w) (enum 0 ws)) (enum 0 rs)
      && all_parted ws
  | Same ms ps =>
      forallb (fun r => forallb (fun w => part_from (snd r) (snd w) || alike_b (snd r) (snd w) || whole ps r w)
        (enum 0 (map snd ms))) (enum 0 (map fst ms))
      && all_parted (map snd ms)
  | Hold _ => true
  end.

Lemma all_parted_true : forall ws, all_parted ws = true -> ForallOrdPairs parted ws.
Proof.
  induction ws as [ | w ws IH ]; intro P; constructor; cbn [all_parted] in P; apply andb_prop in P as [P Q]; auto.
  rewrite forallb_forall in P. apply Forall_forall. intros x X. apply part_from_true. auto.
Qed.

Lemma check_vouched_true : forall n, check_vouched n = true -> vouched n.
Proof.
  intros n H. unfold check_vouched, vouched in *.
  destruct (act n) as [rs ws ps | ms sp | ms]; auto.
  2: { apply andb_prop in H as [H P]. split; [ | apply all_parted_true; exact P ].
    intros i r j w R W. rewrite forallb_forall in H. apply H in R. rewrite forallb_forall in R. apply R in W.
    cbn [fst snd] in W. apply orb_true_iff in W as [W | W]; [ apply orb_true_iff in W as [W | W] | ].
    - left. apply part_from_true. exact W.
    - right. left. apply alike_b_true. exact W.
    - right. right. unfold whole in W. apply existsb_exists in W as [[[i' j'] s] [I W]]. destruct s; try discriminate.
      rewrite !andb_true_iff, !Z.eqb_eq in W. cbn [fst] in W. destruct W. subst. exact I. }
  apply andb_prop in H as [H P]. split; [ | apply all_parted_true; exact P ].
  intros i r j w R W. rewrite forallb_forall in H. apply H in R. rewrite forallb_forall in R. apply R in W.
  cbn [fst snd] in W. apply orb_true_iff in W as [W | W].
  - left. apply part_from_true. exact W.
  - right. unfold promised in W. apply existsb_exists in W as [[[i' j'] s] [I W]].
    rewrite !andb_true_iff, !Z.eqb_eq in W. cbn [fst snd] in W. destruct W as [[A B] C]. subst. eauto.
Qed.

Fixpoint check_promises (ns : list (positive * node)) : option positive :=
  match ns with
  | [] => None
  | (i, n) :: rest => if check_vouched n then check_promises rest else Some i
  end.

Lemma check_promises_true : forall ns, check_promises ns = None -> forall i n, In (i, n) ns -> vouched n.
Proof.
  induction ns as [ | [k m] ns IH ]; intros H i n I; [ contradiction | ]. cbn [check_promises] in H.
  destruct (check_vouched m) eqn:C; [ | discriminate ].
  destruct I as [I | I]; [ inversion I; subst; apply check_vouched_true; exact C | eauto ].
Qed.

(** Real kernels: what an op does to memory as planned, by any means that keeps the contract. *)
Section Kernels.
  Variable V : Type.
  Variable F : Z -> list V -> Z -> Z -> V.
  Variable kernel : positive -> node -> memory V -> memory V.

  Definition keeps_contract : Prop :=
    forall i n m, vouched n -> agree V (kernel i n m) (does V (step_of V F Planned i n) m).

  Definition real_step (p : positive * node) : step V :=
    let g := step_of V F Planned (fst p) (snd p) in
    {| name := name V g; reads := reads V g; writes := writes V g; does := kernel (fst p) (snd p) |}.

  Lemma real_trace : keeps_contract -> forall ns, (forall i n, In (i, n) ns -> vouched n) -> forall m,
    trace V (map real_step ns) m = trace V (steps V F Planned ns) m.
  Proof.
    intros K. induction ns as [ | [i n] ns IH ]; intros Vd m; auto.
    cbn [map steps trace]. f_equal. rewrite IH by (intros; eapply Vd; right; eauto).
    apply trace_agree; [ apply steps_lawful | ]. apply K. eapply Vd. left. reflexivity.
  Qed.
End Kernels.
