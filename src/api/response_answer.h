// How /v1/responses writes an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "api/block_answer.h"
#include "api/response_store.h"
#include "api/response_tools.h"

namespace lagoon::api {

// What the answer's form depends on.
struct ResponseForm {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  // Fields that say again what was asked for, as JSON text without braces; begins with a comma.
  std::string echo;
  ResponseTools tools;
  bool seal_reasoning = false;           // reasoning items have encrypted_content
  std::shared_ptr<ResponseStore> store;  // where the answer is kept; null: nowhere
  std::string items;                     // what is kept before the answer's own items
};

class ResponseAnswer : public BlockAnswer {
 public:
  ResponseAnswer(ResponseForm form, AnswerParts parts)
      : BlockAnswer(std::move(parts)), form_(std::move(form)) {}

  std::string stream_begin() override;
  std::string stream_end(const engine::Usage& total) override;
  std::string stream_error(const ApiError& error) override;
  // An event, not a comment: Codex gives a stream up that has no events for 300 s.
  std::string stream_alive() override;
  std::string body(const engine::Usage& total) override;

 protected:
  std::string begin_block(size_t index, const Block& block) override;
  std::string block_piece(size_t index, const Block& block, const std::string& piece) override;
  std::string end_block(size_t index, const Block& block) override;

 private:
  // What a block is told as.
  enum class Item { kReasoning, kMessage, kFunctionCall, kCustomCall, kShellCall };

  // Null: a tool that nobody has offered.
  const ResponseTool* tool_of(const Block& block) const;
  Item item_of(const Block& block) const;
  std::string item_id(size_t index, const Block& block) const;
  std::string call_fields(const Block& block) const;
  std::string item_json(size_t index, const Block& block) const;
  std::string items_json() const;
  // The whole object, with fields that say what became of it.
  std::string response_json(std::string_view status, const std::string& error,
                            const std::string& usage) const;
  std::string finished_json(const engine::Usage& total);

  // Events of a stream, which are numbered in the order of these calls.
  void add_event(std::string& out, std::string_view type, const std::string& fields);
  std::string event_of_response(std::string_view type, const std::string& response);
  // "item_id", "output_index" and, of what has parts, "content_index".
  std::string place(size_t index, const Block& block) const;

  const ResponseForm form_;
  uint64_t next_ = 0;  // sequence number
};

}  // namespace lagoon::api
