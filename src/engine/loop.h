// The engine's thread: queue, running sequences, pages, slots and the model are its own, so none of
// them is locked. README.md says what one step does.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/adaptive_proposals.h"
#include "engine/counters.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/mailbox.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/speculate.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace lagoon::engine {

struct LoopOptions {
  int max_running = 1;
  StepLimits limits;
  int most_adaptive_proposals = 0;  // limits.proposals is -1: most that are chosen
  double max_prefill_stall = 0;
  double log_interval = 0;
  std::vector<double> synthetic_acceptance;
  Now now;
};

class Loop {
 public:
  // All arguments but the options outlive the loop.
  Loop(model::Model& model, const text::Tokenizer& tokenizer, Counters& counters, Mailbox& mailbox,
       LoopOptions options, Proposer proposer);

  // Serves the mailbox until it is stopped, then ends what is left with kAborted and returns.
  void run();

 private:
  // How long to sleep where nothing comes; none: until something does.
  std::optional<Clock::duration> patience() const;
  void cancel(uint64_t id);
  void end_all(FinishReason reason, const std::string& error);
  // Gives waiting requests slots and pages while there are any, in order of arrival.
  void start_waiting();
  void step();
  // Pages for one more row of every answer, the oldest first: the youngest sequences give up theirs
  // where there are none.
  void find_pages();
  void preempt_youngest();
  // How many proposals the requests get that name no number, where that is chosen as it goes.
  void choose_proposals();
  // Tells what has chosen them what the step took.
  struct Times {
    Clock::time_point begin, draft_begin, draft_end, end;
  };
  void measure_proposals(std::span<const Work> plan, const Times& times);
  // Pages for the proposals of the plan; fewer proposals where there are none.
  void fit_proposals(std::span<Work> plan);
  model::Segment segment(const Work& work) const;
  // Takes what a step computed for a sequence into it; an event, if it gained tokens.
  std::optional<Event> absorb(const Work& work, model::SegmentResult& result,
                              Clock::time_point now);
  void absorb_prompt_logprobs(Sequence& sequence, model::SegmentResult& result);
  // Counts what the last step read, if it computed answers only.
  void count_experts(std::span<const Work> plan);
  // Sends an event; a sequence that has finished gives everything back first.
  void deliver(Sequence& sequence, Event event);
  void remove_ended();

  model::Model& model_;
  const text::Tokenizer& tokenizer_;
  Counters& counters_;
  Mailbox& mailbox_;
  StepLimits limits_;
  const Now now_;
  const SyntheticAcceptance synthetic_;
  PrefillPace pace_;
  std::optional<AdaptiveProposals> adaptive_;
  ThroughputLog log_;
  Speculator speculator_;
  KvCache cache_;
  std::vector<int> free_slots_;
  // In order of arrival: those who wait came after those who run.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::optional<std::string> failure_;  // of the model
};

}  // namespace lagoon::engine
