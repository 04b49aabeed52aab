// A planner in C++ for `--allocator "cmd:./first_fit"`: first fit in order of birth.
// One line of JSON in, one line out, until the input ends (docs/allocators.md).
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
using Int = long long;

struct Json {  // numbers, strings, lists and objects; true, false and null count as 0
  Int number = 0;
  bool null = false;
  std::string text;
  std::vector<Json> list;
  std::map<std::string, Json> object;
  const Json& operator[](const std::string& key) const { return object.at(key); }
  const Json& operator[](size_t place) const { return list.at(place); }
};

struct Reader {
  const std::string& line;
  size_t at = 0;
  char next() { while (line[at] == ' ') ++at; return line[at]; }
  std::string text() {
    std::string found;
    for (++at; line[at] != '"'; ++at) found += line[at] == '\\' ? line[++at] : line[at];
    ++at;
    return found;
  }
  Json value() {
    Json made;
    const char first = next();
    if (first == '"') { made.text = text(); }
    else if (first == '[' || first == '{') {
      const char last = first == '[' ? ']' : '}';
      for (++at; next() != last;) {
        if (line[at] == ',') { ++at; continue; }
        if (first == '[') { made.list.push_back(value()); continue; }
        const std::string key = text();
        next();
        ++at;  // the colon
        made.object[key] = value();
      }
      ++at;
    } else if (std::isalpha(first)) {
      made.null = first == 'n';
      while (std::isalpha(line[at])) ++at;
    } else {
      made.number = std::stoll(line.substr(at, 20));
      while (line[at] == '-' || std::isdigit(line[at])) ++at;
    }
    return made;
  }
};

std::string planned(const Json& document) {
  const Json &buffers = document["programs"][0]["buffers"], &told = document["problems"][0];
  const size_t count = buffers.list.size();
  std::vector<Int> offset(count, -1), start(count), stop(count), nbytes(count), order(count);
  std::vector<bool> own(count, false), pinned(count, false);
  for (const Json& buffer : told["own"].list) own[buffer.number] = true;
  for (const Json& buffer : told["pinned"].list) pinned[buffer.number] = true;
  std::vector<size_t> placed;
  for (size_t b = 0; b < count; ++b) {
    start[b] = told["start"][b].number;
    stop[b] = pinned[b] ? 1LL << 62 : told["stop"][b].number;
    nbytes[b] = told["nbytes"][b].number;
    order[b] = told["order"][b].number;
  }
  for (const auto& [buffer, at] : told["fixed"].object) {
    placed.push_back(std::stoul(buffer));
    offset[placed.back()] = at.number;
  }
  for (const Int b : order) {
    if (own[b] || offset[b] >= 0) continue;
    const Int arena = buffers[b]["arena"].number, unit = buffers[b]["alignment"].number;
    std::vector<std::pair<Int, Int>> taken;
    for (const size_t o : placed)
      if (buffers[o]["arena"].number == arena && start[o] < stop[b] && start[b] < stop[o] && nbytes[o] > 0)
        taken.push_back({offset[o], offset[o] + nbytes[o]});
    std::sort(taken.begin(), taken.end());
    Int at = 0;
    for (const auto& [low, high] : taken) {
      if (at + nbytes[b] <= low) break;
      at = std::max(at, (high + unit - 1) / unit * unit);
    }
    const Json& capacity = document["arenas"][arena]["capacity"];
    if (!capacity.null && at + nbytes[b] > capacity.number) return "{\"refused\": \"no room\"}";
    offset[b] = at;
    placed.push_back(b);
  }
  std::string slots;
  for (size_t b = 0; b < count; ++b) slots += (b ? ", " : "") + (own[b] ? "\"own\"" : std::to_string(offset[b]));
  return "{\"slots\": [" + slots + "]}";
}

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << planned(Reader{line}.value()) << std::endl;
}
