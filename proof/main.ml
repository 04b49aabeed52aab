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

let access input =
  let ident = p input in
  let space = p input in
  let base = z input in
  let start = z input in
  let len = z input in
  let width = z input in
  let dims = many input (pair z z) in
  { ident; space; base; start; dims; len; width }

let strength input = match word input with
  | "exact" -> Exact | "bytes" -> Bytes | "whole" -> Whole
  | text -> raise (Malformed (text ^ " is no strength"))

let promise input = let ij = pair z z input in (ij, strength input)

let node input =
  let kind = word input in
  let chain = p input in
  let after = many input p in
  let act = match kind with
    | "op" ->
      let operands = many input access in
      let results = many input access in
      Op (operands, results, many input promise)
    | "same" -> Same (many input (pair access access))
    | "hold" -> Hold (many input (pair access access))
    | _ -> raise (Malformed (kind ^ " is no kind of node")) in
  { chain; after; act }

let document input =
  expect input "allocsim-terms"; expect input "1";
  expect input "depth"; let depth = to_nat (min (number input) 64) in
  expect input "grain"; let grain = z input in
  expect input "contents"; let contents = many input access in
  expect input "nodes"; let nodes = many input node in
  expect input "end";
  { depth; grain; contents; nodes }

let piece input =
  let run = pair z z input in
  let write = pair z z input in
  (run, (write, z input))

let certificate input =
  expect input "allocsim-certificate"; expect input "1";
  expect input "claims"; let claims = many input (fun input -> many input (fun input -> many input piece)) in
  expect input "clocks"; let clocks = many input (fun input -> many input (pair p p)) in
  expect input "end";
  { claims; clocks }

let reading path read =
  let input = open_in_bin path in
  try let found = read input in close_in input; found
  with Malformed text -> raise (Malformed (path ^ ": " ^ text))

let name = function Waits -> "waits" | Reads -> "reads" | Promises -> "promises" | Order -> "order"

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
