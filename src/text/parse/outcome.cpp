#include "text/parse/outcome.h"

#include <algorithm>
#include <optional>

#include "base/json_escape.h"
#include "base/utf8.h"
#include "text/parse/literal.h"

namespace lagoon::text::parse {
namespace {

std::string as_json(std::string_view text) {
  std::string json = "\"";
  append_json_escaped(json, text);
  return json + '"';
}

std::optional<Tag> tag_at(std::string_view text, TagSet tags) {
  for (int i = 0; i < kTagCount; ++i) {
    const auto tag = static_cast<Tag>(i);
    if (tags.has(tag) && text.starts_with(tag_text(tag))) return tag;
  }
  return {};
}

class Run {
 public:
  Run(const Output& output, std::string_view sizes)
      : tokens_(output.tokens),
        sizes_(sizes),
        parser_(
            {.in_reasoning = output.in_reasoning, .tools = output.tools, .tokens = output.tokens}) {
  }

  Outcome run(std::string_view text) {
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const auto tag = text[at] == '<' ? tag_at(text.substr(at), tokens_) : std::nullopt;
      if (!tag) {
        ++at;
        continue;
      }
      push_text(text.substr(begin, at - begin));
      begin = at + tag_text(*tag).size();
      parser_.tag(*tag, tag_text(*tag), events_);
      take_events();
      at = begin;
    }
    push_text(text.substr(begin));
    outcome_.ending = parser_.finish(events_);
    take_events();
    return std::move(outcome_);
  }

 private:
  void push_text(std::string_view text) {
    while (!text.empty()) {
      size_t size = text.size();
      if (!sizes_.empty()) {
        const auto asked = static_cast<unsigned char>(sizes_[next_size_++ % sizes_.size()]);
        size = std::clamp<size_t>(asked, 1, text.size());
      }
      parser_.text(text.substr(0, size), events_);
      take_events();
      text.remove_prefix(size);
    }
  }

  void take_events() {
    add_events(outcome_, events_);
    events_.clear();
  }

  const TagSet tokens_;
  const std::string_view sizes_;
  size_t next_size_ = 0;
  OutputParser parser_;
  std::vector<Event> events_;
  Outcome outcome_;
};

std::string find_problem(const Outcome& outcome) {
  int calls = 0;
  std::optional<std::string> arguments;
  for (const Event& event : outcome.events) {
    if (!is_valid_utf8(event.text)) return "an event is not UTF-8: " + event.text;
    const bool of_call =
        event.kind == Event::Kind::kArguments || event.kind == Event::Kind::kCallEnd;
    if (of_call != arguments.has_value()) return "a call's events are out of order";
    if (event.kind == Event::Kind::kCallBegin) {
      if (event.text.empty()) return "a call without a name";
      arguments = "";
    }
    if (arguments && event.call != calls) return "a call has the wrong index";
    if (event.kind == Event::Kind::kArguments) *arguments += event.text;
    if (event.kind != Event::Kind::kCallEnd) continue;
    const auto object = read_json(*arguments);
    // Keys and values are written as read_json() writes them, so nothing changes.
    if (!object || object->type != TypeSet(TypeSet::kObject) || object->json != *arguments) {
      return "arguments are no JSON object: " + *arguments;
    }
    arguments.reset();
    ++calls;
  }
  if (arguments) return "a call does not end";
  return calls == outcome.ending.calls ? "" : "calls are not counted";
}

}  // namespace

void add_events(Outcome& outcome, const std::vector<Event>& events) {
  for (const Event& event : events) {
    const bool joins = event.kind != Event::Kind::kCallBegin &&
                       event.kind != Event::Kind::kCallEnd && !outcome.events.empty() &&
                       outcome.events.back().kind == event.kind &&
                       outcome.events.back().call == event.call;
    if (joins) {
      outcome.events.back().text += event.text;
    } else {
      outcome.events.push_back(event);
    }
  }
}

std::string describe(const Outcome& outcome) {
  std::string text;
  for (const Event& event : outcome.events) {
    switch (event.kind) {
      case Event::Kind::kReasoning:
        text += "reasoning " + as_json(event.text) + "\n";
        break;
      case Event::Kind::kContent:
        text += "content " + as_json(event.text) + "\n";
        break;
      case Event::Kind::kCallBegin:
        text += "call " + event.text + "\n";
        break;
      case Event::Kind::kArguments:
        text += "  " + event.text + "\n";
        break;
      case Event::Kind::kCallEnd:
        break;
    }
  }
  if (outcome.ending.open == Ending::Open::kReasoning) text += "open reasoning\n";
  if (outcome.ending.open == Ending::Open::kCall) text += "open call\n";
  return text;
}

Outcome outcome_of(const Output& output, std::string_view sizes) {
  return Run(output, sizes).run(output.text);
}

std::string find_problem(const Output& output, std::string_view sizes) {
  const Outcome whole = outcome_of(output, "");
  std::string problem = find_problem(whole);
  if (!problem.empty()) return problem;
  const Outcome pieces = outcome_of(output, sizes);
  problem = find_problem(pieces);
  if (!problem.empty()) return "in pieces, " + problem;
  if (pieces == whole) return "";
  return "in pieces:\n" + describe(pieces) + "as a whole:\n" + describe(whole);
}

}  // namespace lagoon::text::parse
