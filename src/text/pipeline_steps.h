// What the readers of a tokenizer.json's sections share: a section is one step or a Sequence.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json_reader.h"
#include "text/normalizer.h"

namespace lagoon::text {

// Reads a step of the type, an object of the file, whose keys are "`where`key".
using StepReader = std::function<Result<void>(const simdjson::dom::object& step,
                                              std::string_view type, const std::string& where)>;

// Calls `read` for the section `name` of a tokenizer.json, or, where its type is Sequence, for each
// step of its list `list`, Sequences among them too. null: no step.
Result<void> for_each_step(const JsonReader& reader, const simdjson::dom::element& value,
                           const std::string& name, std::string_view list, const StepReader& read);

// Replace of a string, as a normalizer and as a decoder.
Result<ReplaceStep> read_replace(const JsonReader& reader, const simdjson::dom::object& step,
                                 const std::string& where);

}  // namespace lagoon::text
