// Says which part of an expression was null or undefined, where that made it fail: what a template
// does with a client's data is understood by the data's names, not by Python's types alone.
#pragma once

#include <initializer_list>
#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

struct Operand {
  const Expression* expression;  // may be null
  const Value* value;
};

// " (message.content is null)" of the first operand that has no value, or "": a name or a path of
// attributes and constant items. A name that is undefined has a message that says so already.
std::string null_note(std::initializer_list<Operand> operands);

// The failure with the note of its operands, unless one stands there already.
Failure with_null_note(const Failure& failure, std::initializer_list<Operand> operands);

// Runs `work`, and adds the note to what it throws.
template <typename Work>
auto naming_null(std::initializer_list<Operand> operands, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const RaisedByTemplate&) {
    throw;
  } catch (const Failure& failure) {
    throw with_null_note(failure, operands);
  }
}

}  // namespace lagoon::text::jinja
