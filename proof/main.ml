(* The checker's command: certify TERMS CLAIMS.  Both files are words and whole numbers, separated
   by blanks; allocsim/certificates writes them and its header has the grammar.  Prints "yes", or
   "no PART NODE", and ends with 0 or 1; with 2 where a file is not of the grammar.

   This file, the extraction of Coq and the compiler are trusted; the rest is proved. *)

open Checker

exception Malformed of string

let rec positive n = if n = 1 then XH else if n land 1 = 1 then XI (positive (n lsr 1)) else XO (positive (n lsr 1))
let to_positive n = if n < 1 then raise (Malformed "a number that must be positive is not") else positive n
let to_z n = if n = 0 then Z0 else if n > 0 then Zpos (positive n) else Zneg (positive (-n))
let rec to_nat n = if n <= 0 then O else S (to_nat (n - 1))
let rec of_positive = function XH -> 1 | XO p -> 2 * of_positive p | XI p -> 2 * of_positive p + 1

(* Words of a file, one after the other. *)
let word input =
  let buffer = Buffer.create 20 in
  let rec skip () = match input_char input with ' ' | '\n' -> skip () | c -> Buffer.add_char buffer c
  and fill () = match input_char input with ' ' | '\n' -> () | c -> Buffer.add_char buffer c; fill () in
  (try skip () with End_of_file -> raise (Malformed "the file ends too soon"));
  (try fill () with End_of_file -> ());
  Buffer.contents buffer

let limit = 1 lsl 61

let number input =
  let text = word input in
  match int_of_string_opt text with
  | Some n when abs n < limit && String.for_all (fun c -> c = '-' || ('0' <= c && c <= '9')) text -> n
  | _ -> raise (Malformed (text ^ " is no number of at most 61 bits"))

let expect input text =
  let found = word input in
  if found <> text then raise (Malformed (found ^ " stands where " ^ text ^ " must"))

(* Lists of any length without a deep stack, in the order of the file. *)
let many input read =
  let rec more n found = if n <= 0 then List.rev found else more (n - 1) (read input :: found) in
  more (number input) []

let z input = to_z (number input)
let p input = to_positive (number input)
let pair read read' input = let a = read input in let b = read' input in (a, b)

let strength input = match word input with
  | "exact" -> Exact | "bytes" -> Bytes | "whole" -> Whole
  | text -> raise (Malformed (text ^ " is no strength"))

let promise input = let ij = pair z z input in (ij, strength input)

(* A position, or 0 for none. *)
let maybe input = match number input with 0 -> None | n -> Some (to_positive n)

let buffer input = let nbytes = z input in { nbytes; known_as = maybe input }

let value input =
  let lies_in = p input in
  let bits = z input in
  let offset = z input in
  let bit_offset = z input in
  { lies_in; bits; offset; bit_offset; shape = many input (pair z z) }

let kind input = match word input with
  | "op" -> Computes | "same" -> Moves | "view" -> Views | "read" -> Looks
  | text -> raise (Malformed (text ^ " is no kind of op"))

let op input =
  let op_kind = kind input in
  let stream = p input in
  let op_after = many input p in
  let operands = many input p in
  let results = many input p in
  { op_kind; stream; op_after; operands; results; promises = many input promise }

let program input =
  let buffers = many input buffer in
  let program_values = many input value in
  { buffers; program_values; ops = many input op }

let slot input = match word input with
  | "at" -> let arena = p input in Within (arena, z input)
  | "own" -> Alone
  | text -> raise (Malformed (text ^ " is no slot"))

let waits input = match word input with
  | "all" -> None
  | "these" -> Some (many input p)
  | text -> raise (Malformed (text ^ " does not say for which runs"))

let session_run input =
  let of_program = p input in
  let by_plan = p input in
  let skipped = many input p in
  let waits_for = waits input in
  { of_program; by_plan; skipped; waits_for; read_after = maybe input }

let memory input = match word input with
  | "shared" -> true | "fresh" -> false
  | text -> raise (Malformed (text ^ " is no memory of a session"))

let document input =
  expect input "allocsim-terms"; expect input "2";
  expect input "programs"; let programs = many input program in
  expect input "plans"; let plans = many input (fun input -> many input slot) in
  expect input "session"; let shared = memory input in
  let session = many input session_run in
  expect input "end";
  { programs; plans; shared; session }

let piece input =
  let run = pair z z input in
  let write = pair z z input in
  (run, (write, z input))

let clock input =
  let chain = p input in
  let earlier = many input p in
  { chain; earlier; ends = many input (pair p p) }

let certificate input =
  expect input "allocsim-certificate"; expect input "2";
  expect input "depth"; let depth = to_nat (min (number input) 64) in
  expect input "claims"; let claims = many input (fun input -> many input (fun input -> many input piece)) in
  expect input "clocks"; let clocks = many input clock in
  expect input "end";
  { depth; claims; clocks }

let reading path read =
  let input = open_in_bin path in
  try let found = read input in close_in input; found
  with Malformed text -> raise (Malformed (path ^ ": " ^ text))

let name = function Reference -> "terms" | Reads -> "reads" | Promises -> "promises" | Order -> "order"

let () =
  try
    if Array.length Sys.argv <> 3 then raise (Malformed "usage: certify TERMS CERTIFICATE");
    let doc = reading Sys.argv.(1) document in
    let cert = reading Sys.argv.(2) certificate in
    match check doc cert with
    | None -> print_endline "yes"
    | Some (part, i) -> Printf.printf "no %s %d\n" (name part) (of_positive i); exit 1
  with
  | Malformed text -> prerr_endline text; exit 2
  | Sys_error text -> prerr_endline text; exit 2
  | Stack_overflow -> prerr_endline "the stack is too small (ulimit -s)"; exit 2
