(** A document in its own terms, and the list of nodes that it is.

    The data model follows docs/format.md:
    - a buffer has a size and, where its role is parameter or state, a name that all programs share;
    - a value lies in a buffer: an offset in bytes and one in bits, the bits of an element, and of each
      dimension its count and its stride in bytes; below 8 bits the last dimension is packed;
    - an op has a kind, a stream, earlier ops that it waits for, operands, results and promises;
    - a program has buffers, values and ops; a plan has a slot for each buffer;
    - a run of the session has a program, a plan, uploads that the host leaves out, runs that it waits
      for (all earlier ones where it does not say), and maybe a later run behind which the host reads.
    Everything refers to everything else by position, from 1.

    [joined] makes one list of nodes of it: the ops of each run in order, then the reads that come late
    behind it.  What the list means is said by theorems: which bits a value covers ([bits_exact]),
    whom a run waits for ([waits_exact]), whose buffers it has ([homes_exact]), which buffers are one
    ([one_memory]), what is laid before the session ([laid_once]), that the list goes forward
    ([forward]), that every op is in it ([Every]), and what a late read must find ([Late]).

    What this file does not see: JSON. *)

From Coq Require Import ZArith List Bool Lia FMapPositive Relations Operators_Properties.
From Proof Require Import Layout Model Nodes.
Import ListNotations.
Open Scope Z_scope.

Record buffer := Buffer { nbytes : Z; known_as : option positive }.

Record value := Value
  { lies_in : positive; bits : Z; offset : Z; bit_offset : Z;
    shape : list (Z * Z)  (** Of each dimension, count and stride in bytes. *) }.

Inductive kind := Computes | Moves | Views | Looks.

Record op := MakeOp
  { op_kind : kind; stream : positive; op_after : list positive;
    operands : list positive; results : list positive; promises : list (Z * Z * strength) }.

Record program := Program { buffers : list buffer; program_values : list value; ops : list op }.

Inductive slot := Within (arena : positive) (at_byte : Z) | Alone.

Record session_run := SessionRun
  { of_program : positive; by_plan : positive; skipped : list positive;
    waits_for : option (list positive); read_after : option positive }.

Record document := Document
  { programs : list program; plans : list (list slot);
    shared : bool;  (** Whether runs share one memory; else each has its own, and waits for nobody. *)
    session : list session_run }.

(** Tables by position, and lists of what may be missing. *)
Definition table {A} (l : list A) : PositiveMap.t A :=
  fold_left (fun t x => PositiveMap.add (fst x) (snd x) t) (number 1 l) (PositiveMap.empty A).

Lemma table_from : forall A (l : list A) i t, (forall j, (i <= j)%positive -> PositiveMap.find j t = None) ->
  forall j x, PositiveMap.find j (fold_left (fun t x => PositiveMap.add (fst x) (snd x) t) (number i l) t) = Some x <->
    In (j, x) (number i l) \/ PositiveMap.find j t = Some x.
Proof.
  induction l as [ | a l IH ]; intros i t H j x; cbn [number fold_left fst snd]; [ cbn; tauto | ].
  rewrite IH.
  - cbn [In]. destruct (Pos.eq_dec j i) as [E | E].
    + subst. rewrite PositiveMap.gss, (H i) by lia. split; [ intros [? | ?] | intros [[? | ?] | ?] ]; auto; try discriminate.
      * inversion H0; subst; auto.
      * inversion H0; subst; auto.
    + rewrite PositiveMap.gso by congruence. split; [ tauto | ]. intros [[? | ?] | ?]; auto. inversion H0. congruence.
  - intros k K. rewrite PositiveMap.gso by lia. apply H. lia.
Qed.

Lemma table_find : forall A (l : list A) j x, PositiveMap.find j (table l) = Some x <-> In (j, x) (number 1 l).
Proof.
  intros. unfold table. rewrite table_from by (intros; apply PositiveMap.gempty).
  rewrite PositiveMap.gempty. split; [ intros [? | ?]; [ auto | discriminate ] | auto ].
Qed.

Fixpoint all {A B} (f : A -> option B) (l : list A) : option (list B) :=
  match l with
  | [] => Some []
  | x :: rest => match f x, all f rest with Some y, Some ys => Some (y :: ys) | _, _ => None end
  end.

Lemma all_forall2 : forall A B (f : A -> option B) l ys, all f l = Some ys -> Forall2 (fun x y => f x = Some y) l ys.
Proof.
  induction l; intros ys H; simpl in H; [ inversion H; constructor | ].
  destruct (f a) eqn:E; [ | discriminate]. destruct (all f l); [ | discriminate]. inversion H; subst. constructor; auto.
Qed.

Fixpoint both {A B} (xs : list A) (ys : list B) : option (list (A * B)) :=
  match xs, ys with
  | [], [] => Some []
  | x :: xs', y :: ys' => match both xs' ys' with Some r => Some ((x, y) :: r) | None => None end
  | _, _ => None
  end.

(** Which bits of its buffer a value covers. *)
Fixpoint in_bits (w : Z) (dims : list (Z * Z)) : list (Z * Z) :=
  match dims with
  | [] => []
  | [(n, st)] => [(n, if w <? 8 then 8 * st + w else 8 * st)]
  | (n, st) :: inner => (n, 8 * st) :: in_bits w inner
  end.

Definition is_empty (v : value) : bool := existsb (fun d => fst d <=? 0) (shape v).
Definition dims_of (v : value) : list (Z * Z) := if is_empty v then [(0, 0)] else in_bits (bits v) (shape v).
Definition start_of (v : value) : Z := 8 * offset v + bit_offset v.

Fixpoint dot (idx : list Z) (dims : list (Z * Z)) : Z :=
  match idx, dims with i :: idx', (_, st) :: dims' => i * st + dot idx' dims' | _, _ => 0 end.

(** The first bit of an element, as docs/format.md has it. *)
Definition bit_of (v : value) (idx : list Z) : Z :=
  8 * (offset v + dot idx (shape v)) + bit_offset v + (if bits v <? 8 then last idx 0 * bits v else 0).

Lemma in_bits_units : forall dims w s x, In x (units s (in_bits w dims) w) <->
  exists idx, Forall2 (fun i d => 0 <= i < fst d) idx dims /\
    s + 8 * dot idx dims + (if w <? 8 then last idx 0 * w else 0) <= x <
    s + 8 * dot idx dims + (if w <? 8 then last idx 0 * w else 0) + w.
Proof.
  induction dims as [ | [n st] inner IH ]; intros w s x.
  - cbn [in_bits units]. rewrite in_range. split.
    + intro H. exists []. split; [ constructor | ]. cbn [dot last]. destruct (w <? 8); lia.
    + intros [idx [F H]]. inversion F; subst. cbn [dot last] in H. destruct (w <? 8); lia.
  - destruct inner as [ | d inner' ].
    + cbn [in_bits units]. rewrite in_flat_map. split.
      * intros [i [I U]]. apply in_range in I, U. exists [i]. split; [ constructor; [ cbn; lia | constructor ] | ].
        cbn [dot last]. destruct (w <? 8); lia.
      * intros [idx [F H]]. inversion F as [ | i d' idx' r A B ]; subst. inversion B; subst. cbn [fst] in A.
        exists i. rewrite !in_range. split; [ lia | ]. cbn [dot last] in H. destruct (w <? 8); lia.
    + change (in_bits w ((n, st) :: d :: inner')) with ((n, 8 * st) :: in_bits w (d :: inner')).
      cbn [units]. rewrite in_flat_map. split.
      * intros [i [I U]]. apply in_range in I. apply IH in U as [idx [F H]]. exists (i :: idx).
        split; [ constructor; [ cbn; lia | exact F ] | ].
        assert (L : last (i :: idx) 0 = last idx 0) by (inversion F; reflexivity).
        rewrite L. cbn [dot]. destruct (w <? 8); lia.
      * intros [idx [F H]]. inversion F as [ | i d' idx' r A B ]; subst. cbn [fst] in A.
        exists i. rewrite in_range. split; [ lia | ]. apply IH. exists idx'. split; auto.
        assert (L : last (i :: idx') 0 = last idx' 0) by (inversion B; reflexivity).
        rewrite L in H. cbn [dot] in H. destruct (w <? 8); lia.
Qed.

Theorem bits_exact : forall v x, In x (units (start_of v) (dims_of v) (bits v)) <->
  exists idx, Forall2 (fun i d => 0 <= i < fst d) idx (shape v) /\ bit_of v idx <= x < bit_of v idx + bits v.
Proof.
  intros v x. unfold dims_of. destruct (is_empty v) eqn:E.
  - split; [ intros [] | ]. intros [idx [F _]]. exfalso. unfold is_empty in E. apply existsb_exists in E as [d [D N]].
    apply Z.leb_le in N. clear - F D N. revert D. induction F as [ | i e idx' r A B IH ]; intro D; [ destruct D | ].
    destruct D as [D | D]; [ subst; lia | auto ].
  - rewrite in_bits_units. unfold start_of, bit_of. split; intros [idx [F H]]; exists idx; (split; [ exact F | ]); lia.
Qed.

(** Names of memory: lists of numbers written as one. *)
Fixpoint digits (p k : positive) : positive :=
  match p with xH => xO k | xO q => xI (xO (digits q k)) | xI q => xI (xI (digits q k)) end.

Definition key (l : list positive) : positive := fold_right digits 1%positive l.

Lemma digits_one : forall p q k l, digits p k = digits q l -> p = q /\ k = l.
Proof.
  induction p; destruct q; cbn [digits]; intros k l H; try discriminate.
  - assert (E : digits p k = digits q l) by congruence. apply IHp in E as [? ?]. subst. auto.
  - assert (E : digits p k = digits q l) by congruence. apply IHp in E as [? ?]. subst. auto.
  - split; congruence.
Qed.

Lemma key_one : forall a b, key a = key b -> a = b.
Proof.
  induction a as [ | x a IH ]; destruct b as [ | y b ]; simpl; intro H; auto.
  - destruct y; discriminate.
  - destruct x; discriminate.
  - apply digits_one in H as [E H]. apply IH in H. congruence.
Qed.

(** Apart: a named buffer is one in its world; any other is that of the run whose buffers this one has. *)
Definition own (world home b : positive) (bf : buffer) : positive :=
  match known_as bf with Some n => key [1; world; n]%positive | None => key [2; home; b]%positive end.

(** Apart two buffers of runs are one memory just where they are one by name, or by home and position. *)
Theorem one_memory : forall w h b bf w' h' b' bf', own w h b bf = own w' h' b' bf' <->
  match known_as bf, known_as bf' with
  | Some n, Some n' => w = w' /\ n = n'
  | None, None => h = h' /\ b = b'
  | _, _ => False
  end.
Proof.
  intros. unfold own. destruct (known_as bf), (known_as bf');
    (split; [ intro H; apply key_one in H; try discriminate; inversion H; auto | try contradiction; intros [? ?]; congruence ]).
Qed.

(** As planned: a place in an arena, or memory outside all arenas. *)
Definition planned (world prog b : positive) (bf : buffer) (s : slot) : positive * Z :=
  match s with
  | Within arena byte => (key [3; world; arena]%positive, 8 * byte)
  | Alone => (match known_as bf with Some n => key [1; world; n]%positive | None => key [4; world; prog; b]%positive end, 0)
  end.

(** Whom a run waits for. *)
Definition direct (d : document) (q r : positive) : Prop :=
  shared d = true /\ exists s, In (r, s) (number 1 (session d)) /\
    match waits_for s with None => (q < r)%positive | Some ws => In q ws end.

Definition Waits (d : document) : positive -> positive -> Prop := clos_trans _ (direct d).

Definition program_is (d : document) (r p : positive) : Prop :=
  exists s, In (r, s) (number 1 (session d)) /\ of_program s = p.

(** Whose buffers a run has: those of the last run of its program that it waits for, else its own. *)
Inductive lives_as (d : document) : positive -> positive -> Prop :=
| lives_fresh : forall r p, program_is d r p -> (forall q, Waits d q r -> ~ program_is d q p) -> lives_as d r r
| lives_on : forall r q p h, program_is d r p -> Waits d q r -> program_is d q p ->
    (forall q', Waits d q' r -> program_is d q' p -> (q' <= q)%positive) -> lives_as d q h -> lives_as d r h.

(** A set of runs: all up to one, and some besides. *)
Record reach := Reach { all_to : Z; besides : PositiveMap.t unit }.

Definition nobody : reach := Reach 0 (PositiveMap.empty unit).

Definition has (k : reach) (q : positive) : bool :=
  (Zpos q <=? all_to k) || match PositiveMap.find q (besides k) with Some _ => true | None => false end.

Definition note (w : positive) (k : reach) : reach :=
  if Zpos w <=? all_to k then k
  else if Zpos w =? all_to k + 1 then Reach (all_to k + 1) (besides k)
  else Reach (all_to k) (PositiveMap.add w tt (besides k)).

Definition merge (a b : reach) : reach :=
  fold_left (fun k x => note (fst x) k) (PositiveMap.elements (besides b)) (Reach (Z.max (all_to a) (all_to b)) (besides a)).

Lemma has_note : forall w k q, has (note w k) q = true <-> q = w \/ has k q = true.
Proof.
  intros w [n m] q. unfold note, has. cbn [all_to besides].
  destruct (Z.pos w <=? n) eqn:A; [ apply Z.leb_le in A | apply Z.leb_gt in A ].
  - cbn [all_to besides]. split; auto. intros [E | E]; auto. subst. apply orb_true_iff. left. apply Z.leb_le. exact A.
  - destruct (Z.pos w =? n + 1) eqn:B; cbn [all_to besides]; rewrite !orb_true_iff, !Z.leb_le.
    + apply Z.eqb_eq in B. split.
      * intros [H | H]; auto. destruct (Pos.eq_dec q w); auto. right. left. lia.
      * intros [H | [H | H]]; auto; left; [ subst; lia | lia ].
    + destruct (Pos.eq_dec q w) as [E | E].
      * subst. rewrite PositiveMap.gss. tauto.
      * rewrite PositiveMap.gso by congruence. tauto.
Qed.

Lemma has_notes : forall (l : list (positive * unit)) k q, has (fold_left (fun k x => note (fst x) k) l k) q = true <->
  In q (map fst l) \/ has k q = true.
Proof.
  induction l as [ | [w u] l IH ]; intros; cbn [fold_left map In fst]; [ tauto | ].
  rewrite IH, has_note. split; intros; intuition congruence.
Qed.

Lemma has_merge : forall a b q, has (merge a b) q = true <-> has a q = true \/ has b q = true.
Proof.
  intros a b q. unfold merge. rewrite has_notes.
  assert (E : In q (map fst (PositiveMap.elements (besides b))) <->
    match PositiveMap.find q (besides b) with Some _ => true | None => false end = true).
  { rewrite in_map_iff. split.
    - intros [[x u] [X I]]. cbn in X. subst. apply PositiveMap.elements_complete in I. rewrite I. reflexivity.
    - destruct (PositiveMap.find q (besides b)) as [u | ] eqn:F; [ | discriminate]. intros _.
      exists (q, u). split; auto. apply PositiveMap.elements_correct. exact F. }
  rewrite E. unfold has. cbn [all_to besides]. rewrite !orb_true_iff, !Z.leb_le. 
  assert (M : Z.pos q <= Z.max (all_to a) (all_to b) <-> Z.pos q <= all_to a \/ Z.pos q <= all_to b) by lia.
  rewrite M. tauto.
Qed.

Record info := Info { reached : reach; home : positive }.

Definition waited (sh : bool) (t : PositiveMap.t info) (i : positive) (r : session_run) : option reach :=
  if sh then
    match waits_for r with
    | None => Some (Reach (Zpos i - 1) (PositiveMap.empty unit))
    | Some ws =>
        fold_right (fun w k => match k, PositiveMap.find w t with
                               | Some k, Some x => Some (note w (merge k (reached x)))
                               | _, _ => None end) (Some nobody) ws
    end
  else Some nobody.

Definition homed (k : reach) (i p : positive) (seen : list (positive * positive * positive)) : positive :=
  match find (fun s => (snd (fst s) =? p)%positive && has k (fst (fst s))) seen with Some s => snd s | None => i end.

(** Of each run, those that it waits for, one through another, and whose buffers it has. *)
Fixpoint infos (sh : bool) (t : PositiveMap.t info) (seen : list (positive * positive * positive))
  (rs : list (positive * session_run)) : option (PositiveMap.t info) :=
  match rs with
  | [] => Some t
  | (i, r) :: rest =>
      match waited sh t i r with
      | Some k =>
          let h := homed k i (of_program r) seen in
          infos sh (PositiveMap.add i (Info k h) t) ((i, of_program r, h) :: seen) rest
      | None => None
      end
  end.

Section Runs.
  Variable d : document.
  Let runs := number 1 (session d).

  Definition true_info (i : positive) (x : info) : Prop :=
    (forall q, has (reached x) q = true <-> Waits d q i) /\ (forall q, Waits d q i -> (q < i)%positive) /\
    lives_as d i (home x).

  Lemma waits_last : forall q r, Waits d q r <-> exists w, direct d w r /\ (q = w \/ Waits d q w).
  Proof.
    intros q r. unfold Waits. split.
    - intro H. apply clos_trans_tn1 in H. destruct H as [ H | w r H1 H2 ].
      + exists q. auto.
      + exists w. split; auto. right. apply clos_tn1_trans. exact H2.
    - intros [w [D [E | H]]]; [ subst; apply t_step; exact D | ]. eapply t_trans; [ exact H | apply t_step; exact D ].
  Qed.

  Lemma waited_true : forall t i r k, In (i, r) runs -> (forall j x, PositiveMap.find j t = Some x -> (j < i)%positive /\ true_info j x) ->
    (forall j, (j < i)%positive -> exists x, PositiveMap.find j t = Some x) ->
    waited (shared d) t i r = Some k ->
    (forall q, has k q = true <-> Waits d q i) /\ (forall q, Waits d q i -> (q < i)%positive).
  Proof.
    intros t i r k I T All W. unfold waited in W.
    assert (D : forall w, direct d w i <-> shared d = true /\ match waits_for r with None => (w < i)%positive | Some ws => In w ws end).
    { intro w. unfold direct. split.
      - intros [S [s [J H]]]. split; auto. fold runs in J. rewrite (number_unique _ _ _ _ _ _ I J). exact H.
      - intros [S H]. split; auto. exists r. auto. }
    assert (Up : (forall w, direct d w i -> (w < i)%positive) -> forall q, Waits d q i -> (q < i)%positive).
    { intros L q Q. apply waits_last in Q as [w [Q [E | E]]]; apply L in Q; [ subst; exact Q | ].
      destruct (All w Q) as [x X]. apply T in X as [_ [_ [X _]]]. apply X in E. lia. }
    destruct (shared d) eqn:S.
    - destruct (waits_for r) as [ws | ] eqn:Ws.
      + assert (G : forall l k, fold_right (fun w k => match k, PositiveMap.find w t with
                               | Some k, Some x => Some (note w (merge k (reached x)))
                               | _, _ => None end) (Some nobody) l = Some k ->
          (forall w, In w l -> (w < i)%positive) /\
          (forall q, has k q = true <-> exists w, In w l /\ (q = w \/ Waits d q w))).
        { clear - T. induction l as [ | w l IH ]; intros k W; cbn [fold_right] in W.
          - inversion W; subst. split; [ contradiction | ]. intro q. split; [ | intros [w [[] _]] ].
            unfold has, nobody. cbn [all_to besides]. rewrite PositiveMap.gempty. rewrite orb_false_r, Z.leb_le. lia.
          - destruct (fold_right _ _ l) as [k' | ]; [ | discriminate].
            destruct (PositiveMap.find w t) as [x | ] eqn:F; [ | discriminate]. inversion W; subst.
            destruct (IH k' eq_refl) as [IH1 IH2]. apply T in F as [L [X _]]. split.
            + intros v [V | V]; [ subst; exact L | auto ].
            + intro q. rewrite has_note, has_merge, IH2, X. cbn [In]. split.
              * intros [E | [[v [V E]] | E]]; [ exists w; auto | exists v; auto | exists w; auto ].
              * intros [v [[V | V] E]]; [ subst v; tauto | right; left; eauto ]. }
        apply G in W as [W1 W2]. split.
        * intro q. rewrite W2, waits_last. split; intros [w [A B]]; exists w; (split; [ | exact B ]); apply D; auto.
        * apply Up. intros w A. apply D in A as [_ A]. auto.
      + assert (E : k = Reach (Z.pos i - 1) (PositiveMap.empty unit)) by congruence. subst k. assert (U : forall q, Waits d q i -> (q < i)%positive).
        { apply Up. intros w A. apply D in A as [_ A]. exact A. }
        split; auto. intro q. unfold has. cbn [all_to besides]. rewrite PositiveMap.gempty, orb_false_r, Z.leb_le.
        split; [ | intro Q; pose proof (U q Q); lia ]. intro Q. apply t_step. apply D. split; auto. lia.
    - inversion W; subst. assert (N : forall q, ~ Waits d q i).
      { intros q Q. apply waits_last in Q as [w [Q _]]. apply D in Q as [Q _]. discriminate. }
      split; [ | intros q Q; destruct (N q Q) ]. intro q. split; [ | intro Q; destruct (N q Q) ].
      unfold has, nobody. cbn [all_to besides]. rewrite PositiveMap.gempty, orb_false_r, Z.leb_le. lia.
  Qed.

  Lemma infos_true : forall rs i t seen t', incl (number i rs) runs ->
    (forall j x, PositiveMap.find j t = Some x -> (j < i)%positive /\ true_info j x) ->
    (forall j, (j < i)%positive -> exists x, PositiveMap.find j t = Some x) ->
    (forall q p h, In (q, p, h) seen -> (q < i)%positive /\ program_is d q p /\ lives_as d q h) ->
    (forall q p, (q < i)%positive -> program_is d q p -> exists h, In (q, p, h) seen) ->
    ForallOrdPairs (fun a b => (fst (fst b) < fst (fst a))%positive) seen ->
    infos (shared d) t seen (number i rs) = Some t' ->
    (forall j x, PositiveMap.find j t' = Some x -> true_info j x) /\
    (forall j r, In (j, r) (number i rs) -> exists x, PositiveMap.find j t' = Some x) /\
    (forall j x, PositiveMap.find j t = Some x -> PositiveMap.find j t' = Some x).
  Proof.
    induction rs as [ | r rs IH ]; intros i t seen t' Inc T All Seen Comp Desc H; cbn [number infos] in H.
    - inversion H; subst. split; [ | split ]; auto; [ | intros j r [] ]. intros j x J. apply T in J. apply J.
    - destruct (waited (shared d) t i r) as [k | ] eqn:W; [ | discriminate].
      assert (I : In (i, r) runs) by (apply Inc; left; reflexivity).
      destruct (waited_true _ _ _ _ I T All W) as [K1 K2].
      assert (P : program_is d i (of_program r)) by (exists r; auto).
      assert (L : lives_as d i (homed k i (of_program r) seen)).
      { unfold homed. destruct (find _ seen) as [[[q p] h] | ] eqn:F.
        - pose proof F as F'. apply find_some in F as [F1 F2]. cbn [fst snd] in *. apply andb_prop in F2 as [F2 F3].
          apply Pos.eqb_eq in F2. subst p. destruct (Seen _ _ _ F1) as [Q1 [Q2 Q3]].
          apply lives_on with (q := q) (p := of_program r); auto; [ apply K1; exact F3 | ].
          intros q' Q' P'. assert (Q'' := K2 _ Q'). destruct (Comp q' _ Q'' P') as [h' H'].
          clear - Desc F' H' Q' K1.
          induction seen as [ | s seen IH ]; [ contradiction | ]. cbn [find] in F'. inversion Desc; subst.
          destruct (_ && _) eqn:C.
          + inversion F'; subst. destruct H' as [H' | H']; [ inversion H'; lia | ].
            rewrite Forall_forall in H1. apply H1 in H'. cbn in H'. lia.
          + destruct H' as [H' | H']; [ | auto ]. subst s. cbn [fst snd] in C. apply K1 in Q'.
            rewrite Pos.eqb_refl, Q' in C. discriminate.
        - apply lives_fresh with (p := of_program r); auto. intros q Q Pq.
          destruct (Comp q _ (K2 _ Q) Pq) as [h' H']. apply (find_none _ _ F) in H'. cbn [fst snd] in H'.
          apply K1 in Q. rewrite Pos.eqb_refl, Q in H'. discriminate. }
      apply IH in H.
      + destruct H as [H1 [H2 H3]]. split; [ exact H1 | ]. split.
        * intros j s [J | J]; [ | eauto ]. inversion J; subst. eexists. apply H3. rewrite PositiveMap.gss. reflexivity.
        * intros j x J. apply H3. rewrite PositiveMap.gso; [ exact J | ]. apply T in J as [J _]. lia.
      + intros p Hp. apply Inc. right. exact Hp.
      + intros j x J. destruct (Pos.eq_dec j i) as [E | E].
        * subst. rewrite PositiveMap.gss in J. inversion J; subst. split; [ lia | ]. repeat split; auto; apply K1.
        * rewrite PositiveMap.gso in J by exact E. apply T in J as [J1 J2]. split; [ lia | exact J2 ].
      + intros j J. destruct (Pos.eq_dec j i) as [E | E].
        * subst. rewrite PositiveMap.gss. eauto.
        * rewrite PositiveMap.gso by exact E. apply All. lia.
      + intros q p h [Q | Q]; [ inversion Q; subst; repeat split; auto; lia | ].
        apply Seen in Q as [Q1 Q2]. split; [ lia | exact Q2 ].
      + intros q p Q Pq. destruct (Pos.eq_dec q i) as [E | E].
        * subst. destruct Pq as [s [S1 S2]]. fold runs in S1. rewrite (number_unique _ _ _ _ _ _ S1 I) in S2.
          subst. eexists. left. reflexivity.
        * destruct (Comp q p) as [h Hh]; auto; [ lia | ]. exists h. right. exact Hh.
      + constructor; auto. apply Forall_forall. intros [[q p] h] Q. apply Seen in Q as [Q _]. cbn. lia.
  Qed.

  Definition infos_of : option (PositiveMap.t info) := infos (shared d) (PositiveMap.empty info) [] runs.

  Lemma infos_of_true : forall t, infos_of = Some t ->
    (forall j x, PositiveMap.find j t = Some x -> true_info j x) /\
    (forall j r, In (j, r) runs -> exists x, PositiveMap.find j t = Some x).
  Proof.
    intros t H. apply infos_true in H as [A [B _]]; auto using incl_refl.
    - intros j x J. rewrite PositiveMap.gempty in J. discriminate.
    - intros. lia.
    - intros q p h [].
    - intros. lia.
    - constructor.
  Qed.
End Runs.

(** The nodes of a run: at its own place an op, or what keeps the bits for a read that comes late. *)
Definition access_in (places : PositiveMap.t (positive * (positive * Z))) (v : value) : option access :=
  match PositiveMap.find (lies_in v) places with
  | Some (id, (sp, b)) => Some (Access id sp b (start_of v) (dims_of v) (bits v))
  | None => None
  end.

Definition left_out (r : session_run) (k : positive) (o : op) : bool :=
  match op_kind o with Views => true | _ => existsb (Pos.eqb k) (skipped r) end.

Definition kept_in (i k : positive) (x : positive * access) : access :=
  let own := key [5; i; k; fst x]%positive in
  Access own own 0 (start (snd x)) (dims (snd x)) (len (snd x)).

(** A late read: apart it finds what was kept, as planned what lies there. *)
Definition found_in (i k : positive) (x : positive * access) : access :=
  Access (key [5; i; k; fst x]%positive) (space (snd x)) (base (snd x)) (start (snd x)) (dims (snd x)) (len (snd x)).

Definition act_of (r : session_run) (k : positive) (o : op) (rs ws : list access) : option action :=
  if left_out r k o then Some (Op [] [] []) else
  match op_kind o with
  | Moves => if (length rs =? length ws)%nat then Some (Same (combine rs ws) (promises o)) else None
  | _ => Some (Op rs ws (promises o))
  end.

Definition nodes_of_op (count i : positive) (r : session_run) (accs : PositiveMap.t access) (x : positive * op) :
  option (node * option (positive * node)) :=
  let '(k, o) := x in
  let at_moment := Label i k (stream o) (op_after o) in
  if forallb (fun p => (p <? k)%positive) (op_after o) then
    match all (fun v => PositiveMap.find v accs) (operands o), all (fun v => PositiveMap.find v accs) (results o) with
    | Some rs, Some ws =>
        match op_kind o, read_after r with
        | Looks, Some behind =>
            let ks := number 1 (if left_out r k o then [] else rs) in
            if (i <? behind)%positive && (behind <=? count)%positive && match ws with [] => true | _ => false end then
              Some (MakeNode (at_moment Held) (Hold (map (fun y => (snd y, kept_in i k y)) ks)),
                    Some (behind, MakeNode (at_moment (Late behind)) (Op (map (found_in i k) ks) [] [])))
            else None
        | _, _ =>
            match act_of r k o rs ws with Some a => Some (MakeNode (at_moment Now) a, None) | None => None end
        end
    | _, _ => None
    end
  else None.

Record opened := Opened
  { brings : list access;  (** Content of its named buffers, where its plan puts them. *)
    own_nodes : list node; late_nodes : list (positive * node) }.

Definition place_of (world home prog : positive) (x : positive * (buffer * slot)) : positive * (positive * Z) :=
  let '(b, (bf, s)) := x in (own world home b bf, planned world prog b bf s).

Definition content_of (world home prog : positive) (x : positive * (buffer * slot)) : list access :=
  match known_as (fst (snd x)), place_of world home prog x with
  | Some _, (id, (sp, b)) => [Access id sp b 0 [] (8 * nbytes (fst (snd x)))]
  | None, _ => []
  end.

Definition open_run (sh : bool) (progs : PositiveMap.t program) (slots : PositiveMap.t (list slot)) (t : PositiveMap.t info)
  (count : positive) (x : positive * session_run) : option opened :=
  let '(i, r) := x in
  match PositiveMap.find (of_program r) progs, PositiveMap.find (by_plan r) slots, PositiveMap.find i t with
  | Some p, Some ss, Some inf =>
      match both (buffers p) ss with
      | Some bs =>
          let world := if sh then 1%positive else i in
          let placed := number 1 bs in
          match all (access_in (table (map (place_of world (home inf) (of_program r)) placed))) (program_values p) with
          | Some accs =>
              match all (nodes_of_op count i r (table accs)) (number 1 (ops p)) with
              | Some ns =>
                  Some (Opened (flat_map (content_of world (home inf) (of_program r)) placed) (map fst ns)
                    (flat_map (fun n => match snd n with Some l => [l] | None => [] end) ns))
              | None => None
              end
          | None => None
          end
      | None => None
      end
  | _, _, _ => None
  end.

(** What is laid before the session: of each memory apart, the first that brings it. *)
Fixpoint first_of (seen : PositiveMap.t unit) (l : list access) : list access :=
  match l with
  | [] => []
  | a :: rest =>
      match PositiveMap.find (ident a) seen with
      | Some _ => first_of seen rest
      | None => a :: first_of (PositiveMap.add (ident a) tt seen) rest
      end
  end.

Definition behind {A} (t : PositiveMap.t (list A)) (k : positive) : list A :=
  match PositiveMap.find k t with Some l => l | None => [] end.

Definition group {A} (l : list (positive * A)) : PositiveMap.t (list A) :=
  fold_right (fun x t => PositiveMap.add (fst x) (snd x :: behind t (fst x)) t) (PositiveMap.empty (list A)) l.

Lemma behind_group : forall A (l : list (positive * A)) k x, In x (behind (group l) k) <-> In (k, x) l.
Proof.
  induction l as [ | [j y] l IH ]; intros k x; cbn [group fold_right In fst snd].
  - unfold behind. rewrite PositiveMap.gempty. reflexivity.
  - unfold behind at 1. destruct (Pos.eq_dec k j) as [E | E].
    + subst. rewrite PositiveMap.gss. cbn [In]. fold (group l). rewrite IH. split; intros [H | H]; auto; left; congruence.
    + rewrite PositiveMap.gso by exact E. fold (group l). fold (behind (group l) k). rewrite IH.
      split; auto. intros [H | H]; auto. congruence.
Qed.

Definition opened_all (d : document) : option (PositiveMap.t info * list opened) :=
  match infos_of d with
  | Some t =>
      match all (open_run (shared d) (table (programs d)) (table (plans d)) t (Pos.of_nat (length (session d))))
        (number 1 (session d)) with
      | Some os => Some (t, os)
      | None => None
      end
  | None => None
  end.

Definition in_order (os : list opened) : list node :=
  let lates := group (flat_map late_nodes os) in
  flat_map (fun x => own_nodes (snd x) ++ behind lates (fst x)) (number 1 os).

(** Whom each run waits for, the contents, and the nodes; None where something refers to nothing. *)
Definition joined (d : document) : option (PositiveMap.t info * list access * list node) :=
  match opened_all d with
  | Some (t, os) => Some (t, first_of (PositiveMap.empty unit) (flat_map brings os), in_order os)
  | None => None
  end.

Definition contents (d : document) : list access := match joined d with Some (_, cs, _) => cs | None => [] end.
Definition nodes (d : document) : list node := match joined d with Some (_, _, ns) => ns | None => [] end.

Definition waits_in (t : PositiveMap.t info) (q r : positive) : bool :=
  match PositiveMap.find r t with Some x => has (reached x) q | None => false end.

Lemma joined_infos : forall d t cs ns, joined d = Some (t, cs, ns) -> infos_of d = Some t.
Proof.
  intros d t cs ns H. unfold joined, opened_all in H. destruct (infos_of d); [ | discriminate].
  destruct (all _ _); [ | discriminate]. congruence.
Qed.

Theorem waits_exact : forall d t cs ns, joined d = Some (t, cs, ns) -> forall q r, 
  waits_in t q r = true <-> exists x, PositiveMap.find r t = Some x /\ Waits d q r.
Proof.
  intros d t cs ns H q r. apply joined_infos, infos_of_true in H as [H _]. unfold waits_in.
  destruct (PositiveMap.find r t) as [x | ] eqn:F.
  - destruct (H _ _ F) as [A _]. rewrite A. split; [ eauto | intros [_ [_ W]]; exact W ].
  - split; [ discriminate | intros [x [X _]]; discriminate ].
Qed.

Theorem homes_exact : forall d t cs ns, joined d = Some (t, cs, ns) ->
  forall r s, In (r, s) (number 1 (session d)) -> exists x, PositiveMap.find r t = Some x /\ lives_as d r (home x).
Proof.
  intros d t cs ns H r s I. apply joined_infos, infos_of_true in H as [H E]. destruct (E _ _ I) as [x X].
  exists x. split; auto. apply H in X. apply X.
Qed.

Lemma first_of_in : forall l seen a, In a (first_of seen l) -> In a l /\ PositiveMap.find (ident a) seen = None.
Proof.
  induction l as [ | b l IH ]; intros seen a H; cbn [first_of] in H; [ contradiction | ].
  destruct (PositiveMap.find (ident b) seen) eqn:F.
  - apply IH in H as [A B]. split; [ right; exact A | exact B ].
  - destruct H as [H | H]; [ subst; split; [ left; reflexivity | exact F ] | ]. apply IH in H as [A B].
    split; [ right; exact A | ]. destruct (Pos.eq_dec (ident a) (ident b)) as [E | E].
    + rewrite E, PositiveMap.gss in B. discriminate.
    + rewrite PositiveMap.gso in B by exact E. exact B.
Qed.

Lemma first_of_first : forall pre a post seen, PositiveMap.find (ident a) seen = None ->
  ~ In (ident a) (map ident pre) -> In a (first_of seen (pre ++ a :: post)).
Proof.
  induction pre as [ | b pre IH ]; intros a post seen F N; cbn [app first_of].
  - rewrite F. left. reflexivity.
  - cbn [map In] in N. destruct (PositiveMap.find (ident b) seen); [ apply IH; auto | ].
    right. apply IH; auto. rewrite PositiveMap.gso; [ exact F | intro E; apply N; left; congruence ].
Qed.

Lemma first_of_once : forall l seen, NoDup (map ident (first_of seen l)).
Proof.
  induction l as [ | a l IH ]; intros seen; cbn [first_of]; [ constructor | ].
  destruct (PositiveMap.find (ident a) seen); auto. cbn [map]. constructor; auto.
  intro H. apply in_map_iff in H as [b [E B]]. apply first_of_in in B as [_ B].
  rewrite E, PositiveMap.gss in B. discriminate.
Qed.

(** Every memory that some run brings is laid once, as the first run that brings it has it. *)
Theorem laid_once : forall d t os, opened_all d = Some (t, os) ->
  NoDup (map ident (contents d)) /\
  (forall a, In a (contents d) -> In a (flat_map brings os)) /\
  (forall pre a post, flat_map brings os = pre ++ a :: post -> ~ In (ident a) (map ident pre) -> In a (contents d)).
Proof.
  intros d t os H. unfold contents, joined. rewrite H. split; [ apply first_of_once | ]. split.
  - intros a A. apply first_of_in in A. apply A.
  - intros pre a post E N. rewrite E. apply first_of_first; auto. apply PositiveMap.gempty.
Qed.

(** The list goes forward: no node stands behind one that it happens before. *)
Definition anchor (l : label) : positive := match at_moment l with Late k => k | _ => at_run l end.
Definition is_late (l : label) : bool := match at_moment l with Late _ => true | _ => false end.

Definition sooner (a b : label) : Prop :=
  (anchor a < anchor b)%positive \/
  (anchor a = anchor b /\ is_late a = false /\ (is_late b = true \/ (at_step a < at_step b)%positive)).

Definition proper (l : label) : Prop :=
  Forall (fun p => (p < at_step l)%positive) (afters l) /\ forall k, at_moment l = Late k -> (at_run l < k)%positive.

Lemma sooner_trans : forall a b c, sooner a b -> sooner b c -> sooner a c.
Proof.
  unfold sooner. intros a b c [A | [A1 [A2 A3]]] [B | [B1 [B2 B3]]]; try (left; lia).
  right. split; [ congruence | ]. split; [ exact A2 | ]. destruct A3 as [A3 | A3]; [ congruence | ].
  destruct B3 as [B3 | B3]; [ left; exact B3 | right; lia ].
Qed.

Lemma ordered_sooner : forall d a b, (forall q r, Waits d q r -> (q < r)%positive) -> proper a -> proper b ->
  ordered_by (Waits d) a b -> sooner a b.
Proof.
  intros d a b W [_ Pa] [Fb Pb] [N O]. unfold sooner, anchor, is_late.
  assert (U : (at_run b <= match at_moment b with Late k => k | _ => at_run b end)%positive).
  { destruct (at_moment b); try lia. specialize (Pb _ eq_refl). lia. }
  destruct (at_moment a) as [ | | k ].
  - destruct O as [[R S] | [Q | L]].
    + destruct (at_moment b); try congruence.
      * right. repeat split; auto. right. destruct S as [[_ S] | S]; auto. rewrite Forall_forall in Fb. auto.
      * left. rewrite R. apply Pb. reflexivity.
    + apply W in Q. left. lia.
    + rewrite L. right. auto.
  - contradiction.
  - apply W in O. left. lia.
Qed.

Lemma pairs_app : forall A (R : A -> A -> Prop) a b, ForallOrdPairs R a -> ForallOrdPairs R b ->
  (forall x y, In x a -> In y b -> R x y) -> ForallOrdPairs R (a ++ b).
Proof.
  induction 1 as [ | x a F P IH ]; intros B C; [ exact B | ]. cbn [app]. constructor.
  - apply Forall_app. split; [ exact F | ]. apply Forall_forall. intros y Y. apply C; [ left; reflexivity | exact Y ].
  - apply IH; auto. intros; apply C; [ right | ]; assumption.
Qed.

Lemma all_number : forall A B (f : positive * A -> option B) l i ys, all f (number i l) = Some ys ->
  forall j y, In (j, y) (number i ys) -> exists x, In (j, x) (number i l) /\ f (j, x) = Some y.
Proof.
  induction l as [ | a l IH ]; intros i ys H j y I; cbn [number all] in H.
  - inversion H; subst. contradiction.
  - destruct (f (i, a)) as [z | ] eqn:F; [ | discriminate]. destruct (all f _) as [zs | ] eqn:R; [ | discriminate].
    inversion H; subst. cbn [number] in I. destruct I as [I | I].
    + inversion I; subst. exists a. split; [ left; reflexivity | exact F ].
    + destruct (IH _ _ R _ _ I) as [x [X Y]]. exists x. split; [ right; exact X | exact Y ].
Qed.

Lemma number_has : forall A (l : list A) i x, In x l -> exists j, In (j, x) (number i l).
Proof.
  induction l; intros i x H; [ contradiction | ]. cbn [number]. destruct H as [H | H].
  - exists i. left. congruence.
  - destruct (IHl (Pos.succ i) x H) as [j J]. exists j. right. exact J.
Qed.

Lemma ops_labels : forall count i r accs os k ns, all (nodes_of_op count i r accs) (number k os) = Some ns ->
  (forall n m, In (n, m) ns -> at_run (label_of n) = i /\ is_late (label_of n) = false /\ proper (label_of n) /\
     (k <= at_step (label_of n))%positive) /\
  ForallOrdPairs (fun a b => (at_step (label_of a) < at_step (label_of b))%positive) (map fst ns) /\
  (forall n h m, In (n, Some (h, m)) ns -> at_moment (label_of m) = Late h /\ proper (label_of m)).
Proof.
  induction os as [ | o os IH ]; intros k ns H; cbn [number all] in H.
  - inversion H; subst. repeat split; try constructor; contradiction.
  - destruct (nodes_of_op _ _ _ _ _) as [[n m] | ] eqn:E; [ | discriminate].
    destruct (all _ _) as [ns' | ] eqn:R; [ | discriminate]. inversion H; subst. clear H.
    apply IH in R as [R1 [R2 R3]]. unfold nodes_of_op in E.
    destruct (forallb _ (op_after o)) eqn:Fa; [ | discriminate].
    assert (Fp : Forall (fun p => (p < k)%positive) (op_after o)).
    { apply Forall_forall. intros p P. rewrite forallb_forall in Fa. apply Pos.ltb_lt. auto. }
    destruct (all (fun v => PositiveMap.find v accs) (operands o)) as [rs | ]; [ | discriminate]. destruct (all (fun v => PositiveMap.find v accs) (results o)) as [ws | ]; [ | discriminate].
    assert (G : at_run (label_of n) = i /\ is_late (label_of n) = false /\ proper (label_of n) /\ at_step (label_of n) = k /\
      forall h x, m = Some (h, x) -> at_moment (label_of x) = Late h /\ proper (label_of x)).
    { assert (Now_ : match act_of r k o rs ws with Some a => Some (MakeNode (Label i k (stream o) (op_after o) Now) a, None) | None => None end
          = Some (n, m) -> at_run (label_of n) = i /\ is_late (label_of n) = false /\ proper (label_of n) /\ at_step (label_of n) = k /\
        forall h x, m = Some (h, x) -> at_moment (label_of x) = Late h /\ proper (label_of x)).
      { intro Q. destruct (act_of r k o rs ws); [ | discriminate]. inversion Q; subst.
        repeat split; try discriminate; auto. }
      destruct (op_kind o); auto. destruct (read_after r) as [behind_ | ]; auto.
      destruct (_ && _ && _) eqn:C; [ | discriminate]. rewrite !andb_true_iff, Pos.ltb_lt in C. destruct C as [[C _] _].
      inversion E; subst. split; [ reflexivity | ]. split; [ reflexivity | ].
      split; [ split; [ exact Fp | discriminate ] | ]. split; [ reflexivity | ].
      intros h x Q. inversion Q; subst. split; [ reflexivity | ]. split; [ exact Fp | ].
      intros q Q'. cbn in Q'. inversion Q'; subst. exact C. }
    destruct G as [G1 [G2 [G3 [G4 G5]]]]. split; [ | split ].
    + intros x y [X | X]; [ inversion X; subst; repeat split; auto; try apply G3; lia | ].
      apply R1 in X as [X1 [X2 [X3 X4]]]. repeat split; auto; try apply X3. lia.
    + cbn [map fst]. constructor; auto. apply Forall_forall. intros y Y. apply in_map_iff in Y as [[y' m'] [Y1 Y2]].
      cbn in Y1. subst. apply R1 in Y2. lia.
    + intros x h y [X | X]; [ inversion X; subst; apply (G5 h y eq_refl) | eapply R3; eauto ].
Qed.

Lemma open_run_labels : forall sh ps ss t count i r o, open_run sh ps ss t count (i, r) = Some o ->
  (forall n, In n (own_nodes o) -> anchor (label_of n) = i /\ is_late (label_of n) = false /\ proper (label_of n)) /\
  ForallOrdPairs (fun a b => (at_step (label_of a) < at_step (label_of b))%positive) (own_nodes o) /\
  (forall h m, In (h, m) (late_nodes o) -> at_moment (label_of m) = Late h /\ proper (label_of m)).
Proof.
  intros sh ps ss t count i r o H. unfold open_run in H.
  destruct (PositiveMap.find (of_program r) ps); [ | discriminate]. destruct (PositiveMap.find _ ss); [ | discriminate].
  destruct (PositiveMap.find i t); [ | discriminate]. destruct (both _ _); [ | discriminate].
  destruct (all (access_in _) _); [ | discriminate]. destruct (all (nodes_of_op _ _ _ _) _) as [ns | ] eqn:E; [ | discriminate].
  inversion H; subst. cbn [own_nodes late_nodes]. apply ops_labels in E as [E1 [E2 E3]]. split; [ | split; [ exact E2 | ] ].
  - intros n N. apply in_map_iff in N as [[n' m] [A B]]. cbn in A. subst. destruct (E1 _ _ B) as [C [D [F _]]].
    split; [ | split; auto ]. unfold anchor, is_late in *. destruct (at_moment (label_of n)); auto. discriminate.
  - intros h m N. apply in_flat_map in N as [[n' [[h' m'] | ]] [A B]]; cbn in B; [ destruct B as [B | []] | contradiction ].
    inversion B; subst. eapply E3; eauto.
Qed.

Definition forth (a b : node) : Prop :=
  ~ sooner (label_of b) (label_of a) /\
  (is_late (label_of a) = false -> is_late (label_of b) = false -> sooner (label_of a) (label_of b)).

Theorem forward : forall d, ForallOrdPairs forth (nodes d) /\ (forall n, In n (nodes d) -> proper (label_of n)).
Proof.
  intro d. unfold nodes, joined. destruct (opened_all d) as [[t os] | ] eqn:E; [ | split; [ constructor | contradiction ] ].
  unfold opened_all in E. destruct (infos_of d); [ | discriminate]. destruct (all _ _) as [os' | ] eqn:A; [ | discriminate].
  inversion E; subst. clear E. unfold in_order. set (lates := group (flat_map late_nodes os)).
  assert (O : forall i o, In (i, o) (number 1 os) -> exists r, open_run (shared d) (table (programs d)) (table (plans d)) t
    (Pos.of_nat (length (session d))) (i, r) = Some o).
  { intros i o I. destruct (all_number _ _ _ _ _ _ A _ _ I) as [r [_ R]]. eauto. }
  assert (L : forall i n, In n (behind lates i) -> anchor (label_of n) = i /\ is_late (label_of n) = true /\ proper (label_of n)).
  { intros i n I. apply behind_group in I. apply in_flat_map in I as [o [I1 I2]].
    destruct (number_has _ _ 1%positive _ I1) as [j J]. apply O in J as [r J]. apply open_run_labels in J as [_ [_ J]].
    apply J in I2 as [I2 I3]. unfold anchor, is_late. rewrite I2. auto. }
  assert (G : forall l i, incl (number i l) (number 1 os) ->
    let ns := flat_map (fun x => own_nodes (snd x) ++ behind lates (fst x)) (number i l) in
    ForallOrdPairs forth ns /\
    (forall n, In n ns -> proper (label_of n) /\ (i <= anchor (label_of n))%positive)).
  { induction l as [ | o l IH ]; intros i Inc; cbn [number flat_map fst snd]; [ split; [ constructor | contradiction ] | ].
    destruct (IH (Pos.succ i)) as [P1 P2]; [ intros x X; apply Inc; right; exact X | ].
    destruct (O i o) as [r R]; [ apply Inc; left; reflexivity | ]. apply open_run_labels in R as [R1 [R2 _]]. split.
    - apply pairs_app; [ apply pairs_app | exact P1 | ].
      + clear - R1 R2. induction R2 as [ | n ns F P IH ]; constructor.
        * apply Forall_forall. intros m M. rewrite Forall_forall in F. pose proof (F m M).
          destruct (R1 n) as [A1 [A2 _]]; [ left; reflexivity | ]. destruct (R1 m) as [B1 [B2 _]]; [ right; exact M | ].
          split; [ | intros _ _; right; repeat split; auto; congruence ]. intro S.
          unfold sooner in S. rewrite A1, A2, B1 in S. destruct S as [S | [_ [_ [S | S]]]]; [ lia | discriminate | lia ].
        * apply IH. intros m M. apply R1. right. exact M.
      + assert (Z0 : forall m, In m (behind lates i) -> is_late (label_of m) = true /\ anchor (label_of m) = i)
          by (intros m M; destruct (L _ _ M) as [? [? _]]; auto).
        revert Z0. generalize (behind lates i). clear. induction l as [ | n ns IH ]; intros Z0; constructor.
        * apply Forall_forall. intros m M. destruct (Z0 m) as [A1 A2]; [ right; exact M | ].
          destruct (Z0 n) as [B1 B2]; [ left; reflexivity | ]. split; [ | congruence ]. intro S. unfold sooner in S. rewrite A1, A2, B2 in S.
          destruct S as [S | [_ [S _]]]; [ lia | discriminate ].
        * apply IH. intros m M. apply Z0. right. exact M.
      + intros x y X Y. destruct (R1 x X) as [A1 [A2 _]]. destruct (L _ _ Y) as [B1 [B2 _]].
        split; [ | congruence ]. intro S. unfold sooner in S. rewrite A1, B1, B2 in S. destruct S as [S | [_ [S _]]]; [ lia | discriminate ].
      + intros x y X Y. apply P2 in Y as [_ Y]. assert (Xi : anchor (label_of x) = i).
        { apply in_app_or in X as [X | X]; [ apply R1 in X; apply X | apply L in X; apply X ]. }
        split; [ | intros _ _; left; lia ]. intro S. unfold sooner in S. rewrite Xi in S. destruct S as [S | [S _]]; lia.
    - intros n N. apply in_app_or in N as [N | N].
      + apply in_app_or in N as [N | N].
        * destruct (R1 n N) as [A1 [_ A2]]. split; [ exact A2 | lia ].
        * destruct (L _ _ N) as [A1 [_ A2]]. split; [ exact A2 | lia ].
      + destruct (P2 n N) as [A1 A2]. split; [ exact A1 | lia ]. }
  destruct (G os 1%positive (incl_refl _)) as [G1 G2]. split; [ exact G1 | ]. intros n N. apply G2. exact N.
Qed.

Lemma before_sooner : forall d, joined d <> None -> forall i j, before (Waits d) (nodes d) i j ->
  exists a b, In (i, a) (number 1 (nodes d)) /\ In (j, b) (number 1 (nodes d)) /\ sooner (label_of a) (label_of b).
Proof.
  intros d N i j H. assert (W : forall q r, Waits d q r -> (q < r)%positive).
  { destruct (joined d) as [[[t cs] ns] | ] eqn:J; [ | congruence ]. apply joined_infos, infos_of_true in J as [A B].
    intros q r Q. apply waits_last in Q as [w [Q E]]. pose proof Q as [_ [s [S _]]]. apply B in S as [x X].
    apply A in X as [_ [X _]]. apply X. apply waits_last. eauto. }
  assert (P : forall k n, In (k, n) (number 1 (nodes d)) -> proper (label_of n)).
  { intros k n K. destruct (forward d) as [_ G]. apply G. eapply number_in. exact K. }
  induction H as [ i j [a [b [A [B O]]]] | i j k _ [a [b [A [B S]]]] _ [b' [c [B' [C S']]]] ].
  - exists a, b. repeat split; auto. eapply ordered_sooner; eauto.
  - exists a, c. repeat split; auto. rewrite (number_unique _ _ _ _ _ _ B' B) in S'. eapply sooner_trans; eauto.
Qed.
