#include "text/parse/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/parse/scanner.h"

namespace lagoon::text::parse {
namespace {

// No tools: what a call's writer is made of where there never is a call.
const ToolTypes& no_tools() {
  static const ToolTypes kNone;
  return kNone;
}

struct Match {
  std::optional<Tag> whole;
  bool beginning = false;  // of a longer tag
};

Match match(std::string_view text, TagSet tags) {
  Match result;
  for (int i = 0; i < kTagCount; ++i) {
    const auto tag = static_cast<Tag>(i);
    if (!tags.has(tag) || !tag_text(tag).starts_with(text)) continue;
    if (tag_text(tag).size() == text.size()) {
      result.whole = tag;
    } else {
      result.beginning = true;
    }
  }
  return result;
}

}  // namespace

OutputParser::OutputParser(Options options)
    : options_(std::move(options)),
      state_(options_.in_reasoning ? State::kReasoning : State::kContent),
      arguments_(options_.tools != nullptr ? *options_.tools : no_tools(), "") {}

bool OutputParser::in_reasoning() const {
  return state_ == State::kReasoning || (state_ == State::kName && name_in_ == State::kReasoning);
}

TagSet OutputParser::wanted() const {
  switch (state_) {
    case State::kReasoning:
    case State::kContent: {
      TagSet tags;
      if (!part_begun_) tags.add(Tag::kThink);
      if (!part_begun_ || state_ == State::kReasoning) tags.add(Tag::kEndThink);
      if (options_.tools != nullptr) tags.add(Tag::kToolCall);
      return tags;
    }
    case State::kName: {
      TagSet tags = TagSet::of(Tag::kArgKey, Tag::kToolCall, Tag::kEndToolCall);
      if (name_in_ == State::kReasoning) tags.add(Tag::kEndThink);
      return tags;
    }
    case State::kArguments:
      return TagSet::of(Tag::kArgKey, Tag::kToolCall, Tag::kEndToolCall);
    case State::kKey:
      return TagSet::of(Tag::kEndArgKey, Tag::kArgValue, Tag::kToolCall, Tag::kEndToolCall);
    case State::kAfterKey:
      return TagSet::of(Tag::kArgKey, Tag::kArgValue, Tag::kToolCall, Tag::kEndToolCall);
    case State::kValue:
      return TagSet::of(Tag::kEndArgValue, Tag::kEndToolCall);
    case State::kAfterValue:
      return TagSet::of(Tag::kEndArgValue, Tag::kToolCall, Tag::kEndToolCall);
  }
  return {};
}

void OutputParser::text(std::string_view text, std::vector<Event>& events) {
  events_ = &events;
  std::string whole;
  utf8_.push(text, whole);
  scan(whole);
}

void OutputParser::tag(Tag tag, std::string_view own_text, std::vector<Event>& events) {
  events_ = &events;
  std::string rest;
  utf8_.finish(rest);
  scan(rest);
  plain(std::exchange(pending_, {}));
  on_tag(tag, own_text);
}

void OutputParser::scan(std::string_view text) {
  while (!text.empty()) {
    if (pending_.empty()) {
      const size_t begin = std::min(text.find('<'), text.size());
      plain(text.substr(0, begin));
      text.remove_prefix(begin);
      if (text.empty()) return;
    }
    pending_ += text.front();
    const Match found = match(pending_, wanted().without(options_.tokens));
    if (found.whole || found.beginning) {
      text.remove_prefix(1);
      if (found.whole) on_tag(*found.whole, std::exchange(pending_, {}));
      continue;
    }
    // No tag. A tag has no '<' inside, so the next may begin with this character and no earlier.
    pending_.pop_back();
    if (pending_.empty()) {
      plain(text.substr(0, 1));
      text.remove_prefix(1);
    } else {
      plain(std::exchange(pending_, {}));
    }
  }
}

void OutputParser::plain(std::string_view text) {
  while (!text.empty()) {
    switch (state_) {
      case State::kReasoning:
      case State::kContent:
        part_text(text);
        return;
      case State::kName:
        text = name_text(text);
        break;
      case State::kArguments:
      case State::kAfterKey:
        return;
      case State::kKey:
        key_ += text;
        return;
      case State::kValue:
        arguments_.add(text, json_);
        emit_arguments();
        return;
      case State::kAfterValue:
        text = after_value_text(text);
        break;
    }
  }
}

void OutputParser::on_tag(Tag tag, std::string_view own_text) {
  if (!wanted().has(tag)) {
    plain(own_text);
    return;
  }
  switch (state_) {
    case State::kReasoning:
    case State::kContent:
      on_tag_in_part(tag, own_text);
      break;
    case State::kName:
      end_name(true);
      on_tag(tag, own_text);
      break;
    case State::kArguments:
    case State::kKey:
    case State::kAfterKey:
      on_tag_in_call(tag, own_text);
      break;
    case State::kValue:
    case State::kAfterValue:
      on_tag_in_value(tag, own_text);
      break;
  }
}

void OutputParser::on_tag_in_part(Tag tag, std::string_view own_text) {
  if (tag == Tag::kToolCall) {
    begin_name(own_text);
  } else if (tag == Tag::kThink) {
    begin_part(State::kReasoning);
  } else {
    if (state_ == State::kReasoning) flush_space();
    begin_part(State::kContent);
  }
}

void OutputParser::on_tag_in_call(Tag tag, std::string_view own_text) {
  switch (tag) {
    case Tag::kArgKey:
      key_.clear();
      state_ = State::kKey;
      break;
    case Tag::kEndArgKey:
      state_ = State::kAfterKey;
      break;
    case Tag::kArgValue:
      arguments_.begin_value(key_, json_);
      emit_arguments();
      state_ = State::kValue;
      break;
    case Tag::kEndToolCall:
      end_call();
      break;
    default:
      CHECK(tag == Tag::kToolCall);
      end_call();
      begin_name(own_text);
  }
}

void OutputParser::on_tag_in_value(Tag tag, std::string_view own_text) {
  if (tag == Tag::kEndArgValue) {
    resume_value();
    end_value();
    state_ = State::kArguments;
  } else if (tag == Tag::kEndToolCall) {
    resume_value();
    after_value_ = own_text;
    state_ = State::kAfterValue;
  } else {
    CHECK(tag == Tag::kToolCall);
    after_value_.clear();
    end_value();
    end_call();
    begin_name(own_text);
  }
}

void OutputParser::begin_part(State part) {
  state_ = part;
  part_begun_ = false;
  space_.clear();
}

void OutputParser::part_text(std::string_view text) {
  if (!part_begun_) {
    const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    space_ += text.substr(0, begin);
    text.remove_prefix(begin);
    if (text.empty()) return;
    part_begun_ = true;
    flush_space();
  }
  emit(state_ == State::kReasoning ? Event::Kind::kReasoning : Event::Kind::kContent, text);
}

void OutputParser::flush_space() {
  emit(state_ == State::kReasoning ? Event::Kind::kReasoning : Event::Kind::kContent, space_);
  space_.clear();
}

void OutputParser::begin_name(std::string_view own_text) {
  name_in_ = state_;
  state_ = State::kName;
  tool_call_text_ = own_text;
  name_.clear();
  name_begun_ = false;
}

// Returns the text after the name.
std::string_view OutputParser::name_text(std::string_view text) {
  if (!name_begun_) {
    const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    name_ += text.substr(0, begin);
    text.remove_prefix(begin);
    if (text.empty()) return text;
    name_begun_ = true;
  }
  const size_t end = std::min(text.find('\n'), text.size());
  name_ += text.substr(0, end);
  text.remove_prefix(end);
  if (!text.empty()) end_name(true);
  return text;
}

void OutputParser::end_name(bool complete) {
  const std::string name(trimmed(name_));
  state_ = name_in_;
  const bool is_call =
      complete && !name.empty() && (name_in_ == State::kContent || options_.tools->knows(name));
  if (!is_call) {
    part_text(tool_call_text_);
    part_text(name_);
    return;
  }
  if (name_in_ == State::kReasoning) flush_space();
  space_.clear();
  arguments_ = ArgumentWriter(*options_.tools, name);
  events_->push_back({Event::Kind::kCallBegin, calls_, name});
  state_ = State::kArguments;
}

// Returns the text that is not white space and what follows it.
std::string_view OutputParser::after_value_text(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  after_value_ += text.substr(0, begin);
  text.remove_prefix(begin);
  if (!text.empty()) resume_value();
  return text;
}

// What looked like the end of the call was part of the value.
void OutputParser::resume_value() {
  arguments_.add(after_value_, json_);
  emit_arguments();
  after_value_.clear();
  state_ = State::kValue;
}

void OutputParser::end_value() {
  arguments_.end_value(json_);
  emit_arguments();
}

void OutputParser::end_call() {
  arguments_.end(json_);
  emit_arguments();
  events_->push_back({Event::Kind::kCallEnd, calls_, ""});
  ++calls_;
  begin_part(State::kContent);
}

void OutputParser::emit(Event::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int call = kind == Event::Kind::kArguments ? calls_ : -1;
  if (!events_->empty() && events_->back().kind == kind && events_->back().call == call) {
    events_->back().text += text;
  } else {
    events_->push_back({kind, call, std::string(text)});
  }
}

void OutputParser::emit_arguments() {
  emit(Event::Kind::kArguments, json_);
  json_.clear();
}

Ending OutputParser::finish(std::vector<Event>& events) {
  events_ = &events;
  std::string rest;
  utf8_.finish(rest);
  scan(rest);
  plain(std::exchange(pending_, {}));
  if (state_ == State::kName) end_name(false);
  Ending ending;
  switch (state_) {
    case State::kReasoning:
      flush_space();
      ending.open = Ending::Open::kReasoning;
      break;
    case State::kContent:
      if (calls_ == 0) flush_space();
      break;
    case State::kAfterValue:
      after_value_.clear();
      end_value();
      end_call();
      break;
    case State::kValue:
      end_value();
      [[fallthrough]];
    default:
      end_call();
      ending.open = Ending::Open::kCall;
  }
  ending.calls = calls_;
  return ending;
}

}  // namespace lagoon::text::parse
