// Unicode Normalization Form C (Unicode standard, annex 15) as the Rust tokenizers library computes
// it: with the data of Unicode 9, so that characters that are newer stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace lagoon::text {

// `text` is valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace lagoon::text
