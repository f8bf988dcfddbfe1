// Which names a template's blocks read and assign, as Jinja2's compiler sees them before it runs
// anything. A name that a block assigns, and that neither it nor a block around it has read or
// assigned before, belongs to the block and has no value when it starts: a variable of that name
// given from outside is not seen in it.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace lagoon::text::jinja {

// Fills every `unset` in the tree.
void find_unset_names(TemplateTree& tree);

// Whether the name is read, or assigned to, anywhere in the block, inner blocks included.
bool reads_name(const Block& block, std::string_view name);
bool assigns_name(const Block& block, std::string_view name);
bool assigns_name(const Target& target, std::string_view name);

}  // namespace lagoon::text::jinja
