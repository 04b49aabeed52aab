// A planner in Rust for `--allocator "cmd:./first_fit"`: first fit in order of birth.
// One line of JSON in, one line out, until the input ends (docs/allocators.md).
use std::collections::BTreeMap;
use std::io::{self, BufRead};

enum Json {
    Number(i64), // true, false and null are 0, -1 and -2
    Text,
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    fn number(&self) -> i64 { if let Json::Number(found) = self { *found } else { 0 } }
    fn list(&self) -> &[Json] { if let Json::List(found) = self { found } else { &[] } }
    fn get(&self, key: &str) -> &Json { if let Json::Object(found) = self { &found[key] } else { panic!("no object") } }
    fn numbers(&self) -> Vec<i64> { self.list().iter().map(Json::number).collect() }
}

struct Reader<'a> { line: &'a [u8], at: usize }

impl Reader<'_> {
    fn next(&mut self) -> u8 { while self.line[self.at] == b' ' { self.at += 1; } self.line[self.at] }
    fn text(&mut self) -> String {
        let mut found = Vec::new();
        self.at += 1;
        while self.line[self.at] != b'"' {
            if self.line[self.at] == b'\\' { self.at += 1; }
            found.push(self.line[self.at]);
            self.at += 1;
        }
        self.at += 1;
        String::from_utf8_lossy(&found).into_owned()
    }
    fn value(&mut self) -> Json {
        let first = self.next();
        let begin = self.at;
        match first {
            b'"' => { self.text(); Json::Text }
            b'[' | b'{' => {
                let (mut list, mut object) = (Vec::new(), BTreeMap::new());
                self.at += 1;
                while !matches!(self.next(), b']' | b'}') {
                    if self.line[self.at] == b',' { self.at += 1; continue; }
                    if first == b'[' { list.push(self.value()); continue; }
                    let key = self.text();
                    self.next();
                    self.at += 1; // the colon
                    let value = self.value();
                    object.insert(key, value);
                }
                self.at += 1;
                if first == b'[' { Json::List(list) } else { Json::Object(object) }
            }
            _ => {
                while self.line[self.at].is_ascii_alphanumeric() || self.line[self.at] == b'-' { self.at += 1; }
                match std::str::from_utf8(&self.line[begin..self.at]).unwrap() {
                    "true" => Json::Number(0),
                    "false" => Json::Number(-1),
                    "null" => Json::Number(-2),
                    digits => Json::Number(digits.parse().unwrap()),
                }
            }
        }
    }
}

fn planned(document: &Json) -> String {
    let (buffers, told) = (document.get("programs").list()[0].get("buffers").list(), &document.get("problems").list()[0]);
    let (own, start, mut stop) = (told.get("own").numbers(), told.get("start").numbers(), told.get("stop").numbers());
    for pinned in told.get("pinned").numbers() { stop[pinned as usize] = i64::MAX; }
    let (nbytes, mut offset, mut placed) = (told.get("nbytes").numbers(), vec![-1; buffers.len()], Vec::new());
    if let Json::Object(fixed) = told.get("fixed") {
        for (buffer, at) in fixed { placed.push(buffer.parse::<usize>().unwrap()); offset[placed[placed.len() - 1]] = at.number(); }
    }
    for b in told.get("order").numbers().into_iter().map(|b| b as usize) {
        if own.contains(&(b as i64)) || offset[b] >= 0 { continue; }
        let (arena, unit) = (buffers[b].get("arena").number(), buffers[b].get("alignment").number());
        let beside = |o: &&usize| buffers[**o].get("arena").number() == arena && start[**o] < stop[b] && start[b] < stop[**o];
        let mut taken: Vec<_> = placed.iter().filter(beside).map(|o| (offset[*o], offset[*o] + nbytes[*o])).collect();
        taken.sort();
        let mut at = 0;
        for (low, high) in taken.into_iter().filter(|(low, high)| low < high) {
            if at + nbytes[b] <= low { break; }
            at = at.max((high + unit - 1) / unit * unit);
        }
        let capacity = document.get("arenas").list()[arena as usize].get("capacity").number();
        if capacity >= 0 && at + nbytes[b] > capacity { return "{\"refused\": \"no room\"}".into(); }
        (offset[b], _) = (at, placed.push(b));
    }
    let slots: Vec<_> = (0..buffers.len()).map(|b| if offset[b] < 0 { "\"own\"".into() } else { offset[b].to_string() }).collect();
    format!("{{\"slots\": [{}]}}", slots.join(", "))
}

fn main() {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        println!("{}", planned(&Reader { line: line.as_bytes(), at: 0 }.value()));
    }
}
