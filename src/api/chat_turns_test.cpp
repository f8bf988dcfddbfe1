#include "api/chat_turns.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lagoon::api {
namespace {

// "role: text" of each message, with "<reasoning>" before and "name(arguments)" after the text.
std::string described(const ChatTurns& turns) {
  std::string text;
  for (const Json& message : turns.to_json()) {
    text += message["role"].get<std::string>() + ":";
    if (message.contains("reasoning_content")) {
      text += " <" + message["reasoning_content"].get<std::string>() + ">";
    }
    if (message["content"] != "") text += " " + message["content"].get<std::string>();
    for (const Json& call : message.value("tool_calls", Json::array())) {
      text += " " + call["function"]["name"].get<std::string>() + "(" +
              call["function"]["arguments"].get<std::string>() + ")";
    }
    if (message.contains("tool_call_id")) {
      text += " #" + message["tool_call_id"].get<std::string>();
    }
    text += "\n";
  }
  return text;
}

TEST(ChatTurns, PiecesOfOneTurnAreOneMessage) {
  ChatTurns turns;
  EXPECT_TRUE(turns.empty());
  turns.add("user", "Go");
  turns.reason("Hm.");
  turns.reason("Well.");
  turns.say("One");
  turns.say("two");
  turns.call("a", "f", "{}");
  turns.call("b", "g", R"({"x":1})");
  turns.result("a", "ok");
  turns.say("Done");
  EXPECT_EQ(described(turns),
            "user: Go\nassistant: <Hm.\nWell.> One\ntwo f({}) g({\"x\":1})\ntool: ok #a\n"
            "assistant: Done\n");
}

TEST(ChatTurns, AnOrderThatNoTurnHasBeginsANewOne) {
  ChatTurns turns;
  turns.say("One");
  turns.reason("Hm.");
  turns.call("a", "f", "{}");
  turns.say("Two");
  turns.end_turn();
  turns.say("Three");
  EXPECT_EQ(described(turns),
            "assistant: One\nassistant: <Hm.> f({})\nassistant: Two\nassistant: Three\n");
}

TEST(ChatTurns, MessagesJoinWhereTheyAreToldTo) {
  ChatTurns turns;
  turns.add("user", "One", true);
  turns.add("user", "two", true);
  turns.add("user", "Three");
  turns.add("system", "Four", true);
  EXPECT_EQ(described(turns), "user: One\ntwo\nuser: Three\nsystem: Four\n");
}

TEST(ChatTurns, WhatAnAnswerCanGoOnWith) {
  ChatTurns turns;
  EXPECT_FALSE(turns.ends_with_text());
  turns.add("user", "Go");
  EXPECT_FALSE(turns.ends_with_text());
  turns.say("");
  EXPECT_FALSE(turns.ends_with_text());
  turns.say("One");
  EXPECT_TRUE(turns.ends_with_text());
  turns.call("a", "f", "{}");
  EXPECT_FALSE(turns.ends_with_text());
}

}  // namespace
}  // namespace lagoon::api
