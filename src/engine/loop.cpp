#include "engine/loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace lagoon::engine {

Loop::Loop(model::Model& model, const text::Tokenizer& tokenizer, Counters& counters,
           Mailbox& mailbox, LoopOptions options, Proposer proposer)
    : model_(model),
      tokenizer_(tokenizer),
      counters_(counters),
      mailbox_(mailbox),
      limits_(options.limits),
      now_(std::move(options.now)),
      synthetic_(std::move(options.synthetic_acceptance)),
      pace_(options.max_prefill_stall, options.limits.prefill_rows),
      log_(counters, options.log_interval, now_()),
      speculator_(model, std::move(proposer)),
      cache_(model.info().pages, model.info().page_tokens) {
  for (int slot = options.max_running - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  if (limits_.proposals < 0) adaptive_.emplace(options.most_adaptive_proposals);
}

void Loop::run() {
  while (true) {
    const bool had_none = running_.empty() && waiting_.empty();
    Mailbox::Letters letters = mailbox_.take(patience());
    if (had_none && !letters.arrived.empty()) log_.resume(now_());
    for (Job& job : letters.arrived) {
      waiting_.push_back(std::make_unique<Sequence>(std::move(job), tokenizer_, model_.info().eos));
    }
    for (const uint64_t id : letters.cancelled) cancel(id);
    if (letters.stopping) {
      end_all(FinishReason::kAborted, "");
      return;
    }
    if (failure_) end_all(FinishReason::kError, *failure_);  // what came before it was known
    start_waiting();
    if (!running_.empty()) step();
    log_.write_if_due(now_());
  }
}

std::optional<Clock::duration> Loop::patience() const {
  if (!running_.empty() || !waiting_.empty()) return Clock::duration::zero();
  return log_.due_in(now_());
}

void Loop::cancel(uint64_t id) {
  const auto is_it = [id](const auto& sequence) { return sequence->job().id == id; };
  if (const auto found = std::ranges::find_if(waiting_, is_it); found != waiting_.end()) {
    const std::unique_ptr<Sequence> sequence = std::move(*found);
    waiting_.erase(found);
    deliver(*sequence, sequence->abort());
    return;
  }
  if (const auto found = std::ranges::find_if(running_, is_it); found != running_.end()) {
    deliver(**found, (*found)->abort());
    remove_ended();
  }
}

void Loop::end_all(FinishReason reason, const std::string& error) {
  for (const auto& sequence : running_) deliver(*sequence, sequence->abort(reason, error));
  for (const auto& sequence : waiting_) deliver(*sequence, sequence->abort(reason, error));
  running_.clear();
  waiting_.clear();
}

void Loop::start_waiting() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& next = *waiting_.front();
    // A page more for each of those who run, or they would take them back soon.
    const auto spare = static_cast<int64_t>(running_.size());
    const auto positions = static_cast<int64_t>(next.tokens().size());
    if (cache_.pages_for(positions) + spare > cache_.free()) {
      CHECK(!running_.empty());  // submit() takes nothing that a whole cache cannot hold
      return;
    }
    CHECK(cache_.grow(next.pages(), positions));
    next.start(free_slots_.back(), now_());
    if (next.committed() > 0) model_.take_as_computed(next.slot(), next.committed());
    free_slots_.pop_back();
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    mailbox_.count_start();
  }
}

void Loop::find_pages() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.in_prefill()) continue;  // has had them since it started
    while (i < running_.size() &&
           !cache_.grow(sequence.pages(), int64_t{sequence.committed()} + 1)) {
      preempt_youngest();  // perhaps the sequence itself
    }
  }
  CHECK(!running_.empty());  // the oldest fits alone
}

void Loop::preempt_youngest() {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  cache_.release(sequence->pages());
  free_slots_.push_back(sequence->slot());
  sequence->preempt();
  counters_.count_preemption();
  mailbox_.count_preemption();
  waiting_.push_front(std::move(sequence));
}

void Loop::choose_proposals() {
  if (!adaptive_) return;
  std::vector<Drafting*> requests;
  AdaptiveProposals::Fixed fixed;
  for (const auto& sequence : running_) {
    if (sequence->in_prefill()) continue;
    if (sequence->request().proposals < 0) {
      requests.push_back(&sequence->drafting());
      continue;
    }
    const int k = std::min(sequence->request().proposals, limits_.max_proposals);
    ++fixed.answers;
    fixed.rows += k + 1;
    if (k > 0) ++fixed.anchors;
    fixed.most_proposals = std::max(fixed.most_proposals, k);
  }
  const int answers = fixed.rows + static_cast<int>(requests.size());
  adaptive_->choose(requests, fixed, std::max(0, limits_.max_rows - answers));
}

void Loop::measure_proposals(std::span<const Work> plan, const Times& times) {
  if (!adaptive_) return;
  int rows = 0;
  int anchors = 0;
  int most = 0;
  for (const Work& work : plan) {
    if (work.prefill_rows > 0) return;
    rows += work.rows();
    if (work.proposals > 0) ++anchors;
    most = std::max(most, work.proposals);
  }
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const Clock::duration draft = times.draft_end - times.draft_begin;
  adaptive_->measure({.draft_rows = anchors * (most + 1),
                      .draft_seconds = seconds(draft),
                      .target_rows = rows,
                      .target_seconds = seconds(times.end - times.begin - draft)});
}

void Loop::fit_proposals(std::span<Work> plan) {
  for (Work& work : plan) {
    if (work.proposals == 0) continue;
    Sequence& sequence = *work.sequence;
    const int64_t rows = cache_.reach(sequence.pages()) - sequence.committed();
    work.proposals = static_cast<int>(std::min<int64_t>(work.proposals, rows - 1));
    CHECK(cache_.grow(sequence.pages(), int64_t{sequence.committed()} + work.rows()));
  }
}

void Loop::step() {
  const Clock::time_point begin = now_();
  find_pages();
  const bool answering =
      std::ranges::any_of(running_, [](const auto& s) { return !s->in_prefill(); });
  limits_.prefill_rows = pace_.rows(answering);
  choose_proposals();
  std::vector<Work> plan = plan_step(running_, limits_);
  fit_proposals(plan);
  const Clock::time_point draft_begin = now_();
  speculator_.propose(plan);
  const Clock::time_point draft_end = now_();
  std::vector<model::Segment> segments;
  segments.reserve(plan.size());
  for (const Work& work : plan) segments.push_back(segment(work));
  counters_.set_kv_usage(cache_.used(), cache_.pages());

  std::vector<model::SegmentResult> results = model_.step(segments);
  if (const Error* failure = model_.failure()) {
    failure_ = failure->message;
    LOG(error, "the model has failed: {}", *failure_);
    mailbox_.fail(*failure_);
    end_all(FinishReason::kError, *failure_);
    return;
  }
  CHECK(results.size() == plan.size());
  count_experts(plan);
  const Clock::time_point now = now_();
  std::vector<std::optional<Event>> events;
  std::vector<model::Commit> commits;
  int prefill_rows = 0;
  int gained = 0;
  int proposals = 0;
  int answers = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    events.push_back(absorb(plan[i], results[i], now));
    commits.push_back({plan[i].sequence->slot(), plan[i].sequence->committed()});
    prefill_rows += plan[i].prefill_rows;
    proposals += plan[i].proposals;
    if (plan[i].prefill_rows == 0) ++answers;
    if (events.back()) gained += static_cast<int>(events.back()->pieces.size());
  }
  model_.commit(commits);
  counters_.count_iteration(prefill_rows + gained);
  counters_.set_proposals(proposals, answers);
  const Clock::time_point end = now_();
  pace_.measure(prefill_rows, limits_.prefill_rows,
                std::chrono::duration<double>(end - begin).count());
  measure_proposals(plan, {begin, draft_begin, draft_end, end});
  mailbox_.count_progress();
  for (size_t i = 0; i < plan.size(); ++i) {
    if (events[i]) deliver(*plan[i].sequence, *std::move(events[i]));
  }
  remove_ended();
}

void Loop::count_experts(std::span<const Work> plan) {
  // Prompts read nearly all experts; what an answer's step reads would drown in them.
  int rows = 0;
  for (const Work& work : plan) {
    if (work.prefill_rows > 0) return;
    rows += work.rows();
  }
  counters_.count_experts(model_.expert_use(), rows);
}

model::Segment Loop::segment(const Work& work) const {
  Sequence& sequence = *work.sequence;
  const Request& request = sequence.request();
  const std::span<const int32_t> tokens = sequence.tokens();
  const auto position = static_cast<size_t>(sequence.committed());
  model::Segment segment;
  segment.slot = sequence.slot();
  segment.position = sequence.committed();
  segment.page_table = sequence.pages().pages();
  segment.sampling = request.sampling;
  segment.rules = sequence.rules();
  segment.logprobs = request.logprobs;
  segment.row_class = sequence.in_prompt() ? model::RowClass::kPrompt : model::RowClass::kGenerated;
  if (work.prefill_rows > 0) {
    const auto rows = static_cast<size_t>(work.prefill_rows);
    const bool draws = !sequence.answering() && work.prefill_rows == sequence.prefill_rows();
    segment.tokens = tokens.subspan(position, rows);
    segment.sample = draws ? model::Sample::kLast : model::Sample::kNone;
    if (sequence.scores_prompt()) {
      segment.sample = model::Sample::kAll;
      segment.given = tokens.subspan(position + 1, draws ? rows - 1 : rows);
      segment.given_logprobs = request.prompt_logprobs;
    }
    return segment;
  }
  segment.sample = model::Sample::kAll;
  if (work.explicit_tokens.empty()) {
    segment.tokens = tokens.last(1);
    segment.proposals = work.proposals;
  } else {
    segment.tokens = work.explicit_tokens;
  }
  return segment;
}

std::optional<Event> Loop::absorb(const Work& work, model::SegmentResult& result,
                                  Clock::time_point now) {
  Sequence& sequence = *work.sequence;
  Sequence::Drawn drawn;
  std::vector<int32_t> gained;
  if (work.prefill_rows > 0) {
    if (sequence.scores_prompt()) absorb_prompt_logprobs(sequence, result);
    counters_.count_prompt(sequence.commit_prefill(work.prefill_rows));
    if (sequence.in_prefill() || sequence.answering()) return std::nullopt;
    CHECK(!result.sampled.empty());
    drawn.tokens = std::span(result.sampled).last(1);
  } else {
    drawn.proposed = work.proposals;
    drawn.accepted = synthetic_.enabled() ? synthetic_.draw(sequence.request().sampling.seed,
                                                            sequence.committed(), work.proposals)
                                          : count_accepted(result.tokens, result.sampled);
    gained = gained_tokens(result.tokens, result.sampled, drawn.accepted);
    drawn.tokens = gained;
  }
  if (sequence.request().logprobs >= 0) {
    const std::span<const std::vector<TokenLogprob>> all = result.logprobs;
    drawn.logprobs = work.prefill_rows > 0 ? all.last(1) : all.first(drawn.tokens.size());
  }
  if (adaptive_) {
    adaptive_->observe(sequence.request().proposals < 0 ? &sequence.drafting() : nullptr,
                       drawn.proposed, drawn.accepted);
  }
  Event event = sequence.append(drawn);
  counters_.count_step(sequence, drawn, event, now);
  sequence.set_newest_token_at(now);
  return event;
}

void Loop::absorb_prompt_logprobs(Sequence& sequence, model::SegmentResult& result) {
  for (size_t row = 0; row < result.logprobs.size(); ++row) {
    const int position = sequence.committed() + 1 + static_cast<int>(row);
    if (position >= sequence.prompt_tokens()) break;  // the first token of the answer
    sequence.add_prompt_logprobs(position, std::move(result.logprobs[row]));
  }
}

void Loop::deliver(Sequence& sequence, Event event) {
  // Before the sink is called, so that who hears of the end finds the room and the counts.
  if (event.finished) {
    const bool ran = sequence.slot() >= 0;
    cache_.release(sequence.pages());
    counters_.set_kv_usage(cache_.used(), cache_.pages());
    if (ran) free_slots_.push_back(sequence.slot());
    counters_.count_end(sequence, event.reason, now_());
    mailbox_.count_end(ran);
  }
  sequence.job().sink(std::move(event));
}

void Loop::remove_ended() {
  std::erase_if(running_, [](const auto& sequence) { return sequence->ended(); });
}

}  // namespace lagoon::engine
