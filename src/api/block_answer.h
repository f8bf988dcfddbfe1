// An answer as a list of blocks, each of one kind, of which the next begins where the one before
// ends: what the interfaces of Anthropic and OpenAI's responses send. A whole answer is the blocks
// of a stream.
#pragma once

#include <string>
#include <vector>

#include "api/answer_parts.h"
#include "api/generation.h"

namespace lagoon::api {

struct Block {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string id;         // random, for its names in a dialect
  std::string name = {};  // of the tool
  std::string text = {};  // so far; of a call JSON text, an object once it has ended
  bool ended = false;
  bool cut = false;  // a limit, or in a call a stop string, ended it in the middle
};

class BlockAnswer : public Answer {
 public:
  explicit BlockAnswer(AnswerParts parts) : parts_(std::move(parts)) {}

  std::string stream_event(size_t choice, const engine::Event& event) final;
  void add(size_t choice, const engine::Event& event) final;

 protected:
  // Events of a stream: a block has begun; `piece` was added to its text; it has ended.
  virtual std::string begin_block(size_t index, const Block& block) = 0;
  virtual std::string block_piece(size_t index, const Block& block, const std::string& piece) = 0;
  virtual std::string end_block(size_t index, const Block& block) = 0;

  const std::vector<Block>& blocks() const { return blocks_; }
  const AnswerParts& parts() const { return parts_; }
  // The last event, once it has come.
  const engine::Event& last() const { return last_; }

 private:
  // `out`: where the events of a stream go, null for none.
  void take(const engine::Event& event, std::string* out);
  void begin(Block::Kind kind, const std::string& name, std::string* out);
  void add_text(Block::Kind kind, const std::string& text, std::string* out);
  void end(bool cut, std::string* out);

  AnswerParts parts_;
  std::vector<Block> blocks_;
  engine::Event last_;
};

}  // namespace lagoon::api
