// Takes the output of a Laguna model apart as it comes: reasoning, content, and tool calls with
// their arguments as JSON (the formats poolside_v1 of vLLM's reasoning and tool parsers).
//
//   [reasoning</think>]content<tool_call>NAME
//   <arg_key>KEY</arg_key>
//   <arg_value>VALUE</arg_value>
//   </tool_call>
//
// Line breaks between tags may be missing. What comes out does not depend on how the output was cut
// into pieces. The rules:
//
// - Reasoning ends at </think>, and at <tool_call> where the name of a tool that is known follows.
//   <think> and </think> are tags at the beginning of a part (white space apart) and at the end of
//   reasoning; elsewhere they are text that the model writes about.
// - A call's name ends at the first line break, <arg_key> or </tool_call>, white space around it
//   does not count. A block without a name is no call but text. In content any name makes a call.
// - A value ends at </arg_value>; other tags inside it are text. Where that tag is missing, the
//   value ends at a </tool_call> that only white space separates from the end or the next
//   <tool_call>. How values become JSON: argument_writer.h.
// - In a call, text where a tag is due is dropped; a key without a value too; a <tool_call> there
//   ends the call and begins the next.
// - White space between calls, after the last and before the first is no content where there is
//   no other text there. All other white space stands as it came.
// - The end of the output ends what is open: values and calls are closed as if their tags had come
//   (so arguments are always a JSON object), a name that had not ended is text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/parse/argument_writer.h"
#include "text/parse/tag.h"
#include "text/parse/tool_types.h"
#include "text/utf8_repair.h"

namespace lagoon::text::parse {

struct Event {
  enum class Kind {
    kReasoning,  // text
    kContent,    // text
    kCallBegin,  // the tool's name
    kArguments,  // JSON text; all of one call's together are an object
    kCallEnd,
  };
  Kind kind = Kind::kContent;
  int call = -1;     // calls: which, from 0
  std::string text;  // whole characters, never half an escape

  bool operator==(const Event&) const = default;
};

// What the end of the output says.
struct Ending {
  enum class Open { kNothing, kReasoning, kCall };
  int calls = 0;
  Open open = Open::kNothing;  // what the output ended in the middle of

  bool operator==(const Ending&) const = default;
};

class OutputParser {
 public:
  struct Options {
    bool in_reasoning = false;  // the output begins there
    // The tools of the request; none: calls are not looked for, their tags are text.
    std::shared_ptr<const ToolTypes> tools;
    // Tags that are tokens of the vocabulary. They come through tag() alone, and where they are
    // spelled in text they are text; the others are found in text.
    TagSet tokens;
  };

  explicit OutputParser(Options options);

  // Adds text, cut anywhere (inside a character too; what is not UTF-8 becomes U+FFFD). Events are
  // appended to `events`; one that only goes on with the last of them is joined to it. Time is
  // linear in all of the text.
  void text(std::string_view text, std::vector<Event>& events);
  // Adds a tag that is a token. `own_text` is what it stands for where it turns out to be text.
  void tag(Tag tag, std::string_view own_text, std::vector<Event>& events);
  // The output has ended: nothing may be added any more.
  Ending finish(std::vector<Event>& events);

  // Whether the next text is reasoning, as far as is known: after a <tool_call> in it, whose name
  // has not ended, it still is.
  bool in_reasoning() const;

 private:
  enum class State {
    kReasoning,
    kContent,
    kName,
    kArguments,
    kKey,
    kAfterKey,
    kValue,
    kAfterValue
  };

  // Tags that mean something in the present state.
  TagSet wanted() const;

  // Text of whole characters, in which tags are looked for.
  void scan(std::string_view text);
  // Text without wanted tags.
  void plain(std::string_view text);
  void on_tag(Tag tag, std::string_view own_text);
  void on_tag_in_part(Tag tag, std::string_view own_text);
  void on_tag_in_call(Tag tag, std::string_view own_text);
  void on_tag_in_value(Tag tag, std::string_view own_text);

  void begin_part(State part);
  void part_text(std::string_view text);
  void flush_space();

  void begin_name(std::string_view own_text);
  std::string_view name_text(std::string_view text);
  void end_name(bool complete);
  std::string_view after_value_text(std::string_view text);
  void resume_value();
  void end_value();
  void end_call();

  void emit(Event::Kind kind, std::string_view text);
  void emit_arguments();

  const Options options_;
  State state_;
  Utf8Repair utf8_;
  std::string pending_;  // the beginning of what may become a wanted tag
  std::vector<Event>* events_ = nullptr;

  // Reasoning and content:
  bool part_begun_ = false;  // it has text that is not white space
  std::string space_;        // the white space it begins with

  // A call:
  State name_in_ = State::kContent;  // the part that <tool_call> came in
  std::string tool_call_text_;       // what the tag is as text
  std::string name_;
  bool name_begun_ = false;  // name_ has other than white space
  std::string key_;
  std::string after_value_;  // </tool_call> and white space after it, in a value
  ArgumentWriter arguments_;
  std::string json_;  // of arguments, on its way to an event
  int calls_ = 0;
};

}  // namespace lagoon::text::parse
