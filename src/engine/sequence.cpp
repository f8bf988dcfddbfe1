#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lagoon::engine {

Sequence::Sequence(Job job, const text::Tokenizer& tokenizer, std::span<const int32_t> eos)
    : job_(std::move(job)),
      eos_(eos),
      tokens_(std::move(job_.request.prompt)),
      detokenizer_(tokenizer, job_.request.skip_special_tokens),
      stops_(job_.request.stop) {
  usage_.prompt_tokens = static_cast<int>(tokens_.size());
  prompt_computed_ = request().computed;
  make_rules(eos);
}

void Sequence::make_rules(std::span<const int32_t> eos) {
  const Request& asked = request();
  for (auto bias = asked.logit_bias.rbegin(); bias != asked.logit_bias.rend(); ++bias) {
    const bool there = std::ranges::any_of(
        bias_, [&](const kernels::LogitBias& b) { return b.token == bias->first; });
    if (!there) bias_.push_back({bias->first, bias->second});
  }
  if (asked.min_tokens > 0) {
    banned_ = asked.stop_tokens;
    if (!asked.ignore_eos) banned_.insert(banned_.end(), eos.begin(), eos.end());
  }
  rules_.bias = bias_;
  rules_.banned = banned_;
  rules_.banned_before = prompt_tokens() + asked.min_tokens;
  rules_.repetition = asked.penalties.repetition;
  rules_.presence = asked.penalties.presence;
  rules_.frequency = asked.penalties.frequency;
  has_rules_ = !bias_.empty() || !banned_.empty() || rules_.penalizes();
  if (!rules_.penalizes()) return;
  for (const int32_t token : tokens_) count_seen(token, /*output=*/false);
  rules_.seen = seen_;
  rules_.seen_end = prompt_tokens();
}

void Sequence::count_seen(int32_t token, bool output) {
  const auto [at, is_new] = seen_at_.try_emplace(token, seen_.size());
  if (is_new) seen_.push_back({token, 0});
  if (output) ++seen_[at->second].outputs;
}

void Sequence::start(int slot, Clock::time_point now) {
  CHECK(slot_ < 0);
  slot_ = slot;
  committed_ = request().computed;
  if (!times_.started) times_.start = now;
  times_.started = true;
}

void Sequence::preempt() {
  slot_ = -1;
  committed_ = 0;
}

int Sequence::prefill_rows() const {
  return (in_prompt() ? prompt_tokens() : prefill_end()) - committed_;
}

int Sequence::commit_prefill(int rows) {
  CHECK(rows > 0 && rows <= prefill_rows());
  committed_ += rows;
  const int before = prompt_computed_;
  prompt_computed_ = std::max(before, std::min(committed_, prompt_tokens()));
  return prompt_computed_ - before;
}

void Sequence::add_prompt_logprobs(int position, std::vector<TokenLogprob> entries) {
  prompt_logprobs_.resize(static_cast<size_t>(prompt_tokens()));
  prompt_logprobs_[static_cast<size_t>(position)] = std::move(entries);
}

Event Sequence::append(const Drawn& drawn) {
  CHECK(!in_prefill() && !drawn.tokens.empty());
  Event event;
  if (scores_prompt()) {
    prompt_logprobs_.resize(static_cast<size_t>(prompt_tokens()));  // a prompt of one token
    event.prompt_logprobs = std::move(prompt_logprobs_);
  }
  for (size_t i = 0; i < drawn.tokens.size(); ++i) {
    const bool last = append_token(drawn.tokens[i], event);
    if (request().logprobs >= 0) {
      const std::vector<TokenLogprob>& entries = drawn.logprobs[i];
      event.pieces.back().logprob = entries[0];
      event.pieces.back().top.assign(entries.begin() + 1, entries.end());
    }
    if (last) break;
  }
  committed_ = static_cast<int>(tokens_.size()) - 1;
  if (rules_.penalizes()) {
    for (; rules_.seen_end < committed_; ++rules_.seen_end) {
      count_seen(tokens_[static_cast<size_t>(rules_.seen_end)], /*output=*/true);
    }
    rules_.seen = seen_;
  }
  ++usage_.steps;
  if (drawn.proposed > 0) ++usage_.drafts;
  usage_.drafted_tokens += drawn.proposed;
  usage_.accepted_tokens += std::min(drawn.accepted, static_cast<int>(event.pieces.size()));
  event.usage = usage_;
  ended_ = event.finished;
  return event;
}

bool Sequence::append_token(int32_t token, Event& event) {
  tokens_.push_back(token);
  ++usage_.completion_tokens;
  event.pieces.push_back({.token = token});
  if (is_end(token)) {
    event.finished = true;
    event.reason = FinishReason::kStop;
    event.stop_token = token;
    flush_text(event);
    return true;
  }
  std::string text = detokenizer_.push(token);
  const bool may_stop = usage_.completion_tokens > request().min_tokens;
  event.pieces.back().text = may_stop ? stops_.push(text) : std::move(text);
  if (stops_.matched()) {
    event.finished = true;
    event.reason = FinishReason::kStop;
    event.stop_string = stops_.match();
    return true;
  }
  if (remaining() == 0) {
    event.finished = true;
    event.reason = FinishReason::kLength;
    flush_text(event);
  }
  return event.finished;
}

bool Sequence::is_end(int32_t token) const {
  if (usage_.completion_tokens <= request().min_tokens) return false;
  const auto holds = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return holds(request().stop_tokens) || (!request().ignore_eos && holds(eos_));
}

void Sequence::flush_text(Event& event) {
  const std::string rest = detokenizer_.finish();
  const bool may_stop = usage_.completion_tokens > request().min_tokens;
  event.tail = may_stop ? stops_.push(rest) + stops_.finish() : rest;
  // By the U+FFFD that an unfinished character became, or by a stop string that had waited for a
  // longer one which began earlier.
  if (stops_.matched()) {
    event.reason = FinishReason::kStop;
    event.stop_string = stops_.match();
    event.stop_token = -1;
  }
}

Event Sequence::abort(FinishReason reason, const std::string& error) {
  Event event;
  flush_text(event);
  event.finished = true;
  event.reason = reason;
  event.error = error;
  event.stop_string.clear();
  event.usage = usage_;
  ended_ = true;
  return event;
}

void Sequence::set_newest_token_at(Clock::time_point when) {
  if (usage_.steps == 1) times_.first_token = when;
  times_.newest_token = when;
}

}  // namespace lagoon::engine
