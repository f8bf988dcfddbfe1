// Jinja templates as chat templates use them, rendered as Jinja2 does with trim_blocks and
// lstrip_blocks (what transformers and vLLM set). What is not understood is refused when the
// template is parsed, with its line. Immutable after parse; render() may run on any thread.
//
// Of Jinja2 3.1 these are refused: the tags autoescape, block, debug, extends, from, import,
// include and trans; the filters filesizeformat, pprint, random, striptags, urlize, wordwrap and
// xmlattr; the function lipsum; integers beyond 64 bits; dict keys that are not strings; \N{...} in
// strings. Of Python's methods: casefold, encode, expandtabs, isidentifier, isprintable, maketrans,
// translate of strings, fromkeys of dicts, and all of numbers. Those that change lists and dicts
// are forbidden by the sandbox that transformers uses. (Methods and lipsum are known only when they
// are called.)
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

class Template {
 public:
  // `name`, such as the file's path, stands in the errors of parsing: "chat_template.jinja:12:
  // ...".
  static Result<Template> parse(std::string_view source, const std::string& name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // Errors go to clients, so they name line and reason and no file of the server: "chat template
  // line 12: can only concatenate str (not "NoneType") to str (message.content is null)". What
  // raise_exception() was given is the whole message. Steps, depth and the length of texts are
  // limited, so a template cannot hang the server.
  Result<std::string> render(const Dict& variables, const Limits& limits = Limits()) const;

 private:
  Template();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lagoon::text::jinja
