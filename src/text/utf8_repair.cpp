#include "text/utf8_repair.h"

#include "base/utf8.h"

namespace lagoon::text {

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  pending_ += bytes;
  size_t at = 0;
  size_t good = 0;  // pending_[good, at) is valid and not given out yet
  while (at < pending_.size()) {
    if (static_cast<unsigned char>(pending_[at]) < 0x80) {
      ++at;
      continue;
    }
    const DecodedChar c = decode_char(pending_, at);
    if (c.state == Utf8::kTruncated) break;
    if (c.state == Utf8::kInvalid) {
      out.append(pending_, good, at - good);
      out += kReplacement;
      good = at + c.length;
    }
    at += c.length;
  }
  out.append(pending_, good, at - good);
  pending_.erase(0, at);
}

void Utf8Repair::finish(std::string& out) {
  if (!pending_.empty()) out += kReplacement;
  pending_.clear();
}

}  // namespace lagoon::text
