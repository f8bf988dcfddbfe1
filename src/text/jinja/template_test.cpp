// Messages, limits and hostile input. What Jinja2 itself gives is held in cases_test.cpp.
#include "text/jinja/template.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <thread>

#include "text/jinja/budget.h"

namespace lagoon::text::jinja {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

Dict variables() {
  Dict message;
  message.set("role", "user");
  message.set("content", "hi");
  Dict all;
  all.set("messages", List{Value(std::move(message))});
  all.set("text", std::string(1000, 'a'));
  all.set("big", Value::integer_text("1000000000000000019884624838656"));
  return all;
}

constexpr Limits kSmall = {100000, size_t{1} << 20};

// The output, or "error: " and the message.
std::string run(const std::string& source, const Dict& given = variables(),
                const Limits& limits = Limits()) {
  const auto parsed = Template::parse(source, "t.jinja");
  if (!parsed.ok()) return "error: " + parsed.error().message;
  const auto text = parsed->render(given, limits);
  return text.ok() ? *text : "error: " + text.error().message;
}

std::string run_small(const std::string& source) {
  return run(source, variables(), kSmall);
}

std::string repeated(const std::string& piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(Template, RefusesAtParseTimeWithLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n\n{% if %}", "t.jinja:3: expected an expression, got '%}'"},
      {"{{ x }}\n{% endif %}", "t.jinja:2: misplaced tag 'endif'"},
      {"\n{% nosuch %}", "t.jinja:2: unknown tag 'nosuch'"},
      {"{{ 'a\nb' | nosuch }}", "t.jinja:2: there is no filter named 'nosuch'"},
      {"{{ x | urlize }}",
       "t.jinja:1: the filter 'urlize' is not supported by this version of Lagoon"},
      {"{{ x is nosuch }}", "t.jinja:1: there is no test named 'nosuch'"},
      {"a\n{% break %}", "t.jinja:2: 'break' outside of a loop"},
      {"{{ 99999999999999999999 }}",
       "t.jinja:1: the number 99999999999999999999 is beyond the 64 bits that integers have here"},
      {"{{ '\\N{DASH}' }}", "t.jinja:1: characters by name (\\N) are not supported in strings"},
      {"{{ '\\ud800' }}", "t.jinja:1: \\ud800 is no character"},
      {"{{ x[1, 2] }}", "t.jinja:1: several indices in one pair of brackets are not supported"},
      {"{% autoescape true %}",
       "t.jinja:1: the tag 'autoescape' is not supported by this version of Lagoon: take it out of "
       "the template"},
      {"a\n\xff", "t.jinja:1: the template is not valid UTF-8"},
      {"\n{# open", "t.jinja:2: Missing end of comment tag"},
      {"{% for x in y %}\n\n", "t.jinja:1: the block that starts here lacks its 'endfor'"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_EQ(run(source), std::string("error: ") + message) << source;
  }
}

TEST(Template, RefusesAtRunTimeWithLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb\n{{ missing.x }}", "chat template line 3: 'missing' is undefined"},
      {"{{ messages[0].tool.x }}",
       "chat template line 1: 'dict object' has no attribute 'tool' (messages[0].tool is "
       "undefined)"},
      {"\n{{ text.nosuch() }}",
       "chat template line 2: 'str object' has no attribute 'nosuch' (text.nosuch is undefined)"},
      {"{{ text.encode() }}",
       "chat template line 1: 'encode' of a 'str' is not supported by this version of Lagoon"},
      {"{{ {1: 2} }}",
       "chat template line 1: the keys of a dict have to be strings here, not 'int'"},
      {"{{ 2 ** 64 }}",
       "chat template line 1: the number is beyond the 64 bits that integers have here"},
      {"{{ 9223372036854775807 + 1 }}",
       "chat template line 1: the number is beyond the 64 bits that integers have here"},
      {"{{ (-9223372036854775807 - 1) // -1 }}",
       "chat template line 1: the number is beyond the 64 bits that integers have here"},
      {"{{ lipsum() }}",
       "chat template line 1: the function 'lipsum' is not supported by this version of Lagoon"},
      {"{{ {}.a.b }}", "chat template line 1: 'dict object' has no attribute 'a'"},
      {"{{ big + 1 }}",
       "chat template line 1: the number is beyond the 64 bits that integers have here"},
      {"{% macro f() %}\n{{ missing.x }}\n{% endmacro %}\n\n{{ f() }}",
       "chat template line 2: 'missing' is undefined"},
      {"{{ [1,\n2] + 3 }}",
       "chat template line 2: unsupported operand type(s) for +: 'list' and 'int'"},
      {"{% for x in 5 %}{% endfor %}", "chat template line 1: 'int' object is not iterable"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_EQ(run(source), std::string("error: ") + message) << source;
  }
}

TEST(Template, RefusesTagsThatNeedOtherFiles) {
  for (const auto& [source, tag] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\n{% include 'x' %}", "include"},
           {"\n{% extends 'x' %}", "extends"},
           {"\n{% import 'x' as y %}", "import"},
           {"\n{% from 'x' import y %}", "from"},
           {"\n{% block x %}{% endblock %}", "block"}}) {
    EXPECT_EQ(run(source),
              fmt::format("error: t.jinja:2: the tag '{}' is not supported, since it takes other "
                          "files to make sense of: use the resolved template, with what they hold "
                          "put in its place",
                          tag));
  }
}

// What a client's message lacks is named, not only Python's type of it.
TEST(Template, NamesWhatIsNull) {
  Dict message;
  message.set("content", Null{});
  Dict given;
  given.set("message", message);
  given.set("messages", List{Value(message)});
  given.set("nothing", Null{});
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'a' + message.content }}",
       "can only concatenate str (not \"NoneType\") to str (message.content is null)"},
      {"{{ message.content + 'a' }}",
       "unsupported operand type(s) for +: 'NoneType' and 'str' (message.content is null)"},
      {"{{ 'a' + messages[0]['content'] }}",
       "can only concatenate str (not \"NoneType\") to str (messages[0]['content'] is null)"},
      {"{{ message.content.strip() }}",
       "'None' has no attribute 'strip' (message.content is null)"},
      {"{{ message.content[1:] }}", "'NoneType' object cannot be sliced (message.content is null)"},
      {"{{ message.name.strip() }}",
       "'dict object' has no attribute 'name' (message.name is undefined)"},
      {"{{ 'a' + message.name }}",
       "'dict object' has no attribute 'name' (message.name is undefined)"},
      {"{{ 'a' in message.content }}",
       "argument of type 'NoneType' is not iterable (message.content is null)"},
      {"{% for c in message.content %}{% endfor %}",
       "'NoneType' object is not iterable (message.content is null)"},
      {"{{ message.content | length }}",
       "object of type 'NoneType' has no len() (message.content is null)"},
      {"{{ message.name | tojson }}",
       "Object of type Undefined is not JSON serializable (message.name is undefined)"},
      {"{{ nothing < 1 }}",
       "'<' not supported between instances of 'NoneType' and 'int' (nothing is null)"},
      {"{{ 'a' + (message.content or none) }}",
       "can only concatenate str (not \"NoneType\") to str"},
  };
  for (const auto& [source, text] : cases) {
    EXPECT_EQ(run(source, given), std::string("error: chat template line 1: ") + text) << source;
  }
}

TEST(Template, RaisedMessageStandsAlone) {
  EXPECT_EQ(run("\n{{ raise_exception('Bad: ' ~ 1) }}"), "error: Bad: 1");
}

TEST(Template, PrintsCallables) {
  EXPECT_EQ(run("{{ range }} {{ text.upper }}"),
            "<function range> <built-in method upper of str object>");
  EXPECT_EQ(run("{% macro m() %}{% endmacro %}{{ m }} {{ [1] | map('string') }}"),
            "<Macro 'm'> <generator object>");
}

TEST(Template, FormatsTheTime) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  EXPECT_EQ(run("{{ strftime_now('%Y') }}"), std::to_string(1900 + local.tm_year));
  EXPECT_EQ(run("{{ strftime_now('%d %b %Y') | length }}"), "11");
}

TEST(Template, ArgumentsCanBeUnpacked) {
  EXPECT_EQ(run("{{ range(*[1, 4]) | join(',', **{'attribute': none}) }}"), "1,2,3");
}

TEST(TemplateLimits, Steps) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}";
  EXPECT_EQ(run_small(loops + "{% endfor %}{% endfor %}"),
            fmt::format("error: chat template line 1: the template takes more than {} steps",
                        kSmall.steps));
}

TEST(TemplateLimits, Time) {
  Limits limits;
  limits.seconds = 0.02;
  EXPECT_EQ(run("{% set s = 'aB ' * 300000 %}{% for a in range(100000) %}{% set x = s | title %}"
                "{% endfor %}",
                variables(), limits),
            "error: chat template line 1: the template takes more than 0.02 s");
}

TEST(TemplateLimits, Output) {
  const std::string message =
      fmt::format("the template makes a text of more than {} bytes", kSmall.text_bytes);
  EXPECT_THAT(run_small("{% for a in range(3000) %}{{ text }}{% endfor %}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ text * 100000000 }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ 'a' * 9223372036854775807 }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ 'a'.ljust(9223372036854775807) }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ 'a' | center(9223372036854775807) }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ 'a' | indent(9223372036854775807) }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ [1] | tojson(indent=9223372036854775807) }}"), EndsWith(message));
  EXPECT_THAT(run_small("{{ 'a'.zfill(9223372036854775807) }}"), EndsWith(message));
  EXPECT_THAT(run_small("{% set n = namespace(s=text) %}{% for a in range(60) %}"
                        "{% set n.s = n.s + n.s %}{% endfor %}"),
              EndsWith(message));
  EXPECT_THAT(run_small("{% set n = namespace(s=text) %}{% for a in range(60) %}"
                        "{% set n.s = n.s.replace('a', 'aa') %}{% endfor %}"),
              EndsWith(message));
}

TEST(TemplateLimits, Lists) {
  EXPECT_THAT(run_small("{{ [1] * 9223372036854775807 }}"), HasSubstr("more than"));
  EXPECT_THAT(run_small("{% set n = namespace(l=[1]) %}{% for a in range(60) %}"
                        "{% set n.l = n.l + n.l %}{% endfor %}"),
              HasSubstr("more than"));
  EXPECT_THAT(run_small("{{ range(3) | batch(9223372036854775807, 'x') | list }}"),
              HasSubstr("more than"));
}

// A value with few parts whose text would have 2^60: each use has to be paid for.
TEST(TemplateLimits, SharedParts) {
  const std::string doubled =
      "{% set n = namespace(l=['x']) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% endfor %}{% set m = namespace(l=['x']) %}{% for a in range(60) %}"
      "{% set m.l = [m.l, m.l] %}{% endfor %}";
  for (const char* use : {"{{ n.l }}", "{{ n.l | tojson }}", "{{ n.l == m.l }}", "{{ n.l < m.l }}",
                          "{{ n.l | string | length }}"}) {
    EXPECT_THAT(run_small(doubled + use), HasSubstr("more than")) << use;
  }
}

TEST(TemplateLimits, DeepValues) {
  EXPECT_THAT(run("{% set n = namespace(l=[]) %}{% for a in range(100000) %}"
                  "{% set n.l = [n.l] %}{% endfor %}"),
              EndsWith(fmt::format("a value is nested more than {} levels deep", kMaxValueDepth)));
  Value deep = 1;
  for (int i = 0; i <= kMaxValueDepth; ++i) deep = List{deep};
  Dict given;
  given.set("deep", deep);
  EXPECT_EQ(run("x", given),
            fmt::format("error: chat template: the variable 'deep' nests more than {} levels deep",
                        kMaxValueDepth));
}

TEST(TemplateLimits, Recursion) {
  const std::string message =
      fmt::format("calls and blocks nest more than {} levels deep", kMaxCallDepth);
  EXPECT_THAT(run("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), EndsWith(message));
  EXPECT_THAT(run("{% macro f(x) %}{% if x %}{% call f([x]) %}{{ caller() }}{% endcall %}"
                  "{% endif %}{% endmacro %}{{ f(1) }}"),
              EndsWith(message));
  EXPECT_THAT(run("{% set n = namespace() %}{% set n.self = [n] %}{{ n }}"), EndsWith(message));
}

TEST(TemplateLimits, RecursiveLoops) {
  Value tree = List{};
  for (int i = 0; i < 100; ++i) tree = List{tree, tree};
  Dict given;
  given.set("tree", tree);
  EXPECT_THAT(run("{% for t in tree recursive %}{{ loop(t) }}{% endfor %}", given, kSmall),
              HasSubstr("more than"));
  EXPECT_THAT(
      run("{% for t in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
      EndsWith(fmt::format("calls and blocks nest more than {} levels deep", kMaxCallDepth)));
  EXPECT_EQ(run("{% set n = namespace() %}{% for t in [1] recursive %}{% set n.l = loop %}"
                "{% endfor %}{{ n.l is defined }}"),
            "True");
}

TEST(TemplateLimits, Formats) {
  for (const char* use :
       {"{{ '%99999999999d' % 1 }}", "{{ '%.99999999999f' % 1.5 }}", "{{ '%*d' % (2 ** 40, 1) }}",
        "{{ '{:99999999999}'.format(1) }}", "{{ '{:.99999999999f}'.format(1.5) }}",
        "{{ '{:0999999999,}'.format(1) }}", "{{ '{:999999999}'.format('a') }}",
        "{{ '{:{}}'.format('a', 2 ** 40) }}", "{{ strftime_now('%999999999Y') }}",
        "{{ '%999999999s' % 'a' }}"}) {
    EXPECT_THAT(run_small(use), HasSubstr("error: ")) << use;
  }
  EXPECT_EQ(run("{{ '{:01000000,}'.format(1) | length }}"), "1000001");
}

TEST(TemplateLimits, DeepSource) {
  for (const auto& [open, close] :
       std::initializer_list<std::pair<const char*, const char*>>{{"(", ")"},
                                                                  {"[", "]"},
                                                                  {"not ", ""},
                                                                  {"-", ""},
                                                                  {"{'a': ", "}"},
                                                                  {"a if b else ", ""}}) {
    const std::string source = "{{ " + repeated(open, 5000) + "1" + repeated(close, 5000) + " }}";
    EXPECT_THAT(run(source), HasSubstr("levels deep")) << open;
  }
  for (const char* chain :
       {" + 1", " or 1", " ** 1", ".a", "[0]", "()", " | list", " if 1", " * 1"}) {
    EXPECT_THAT(run("{{ 1" + repeated(chain, 5000) + " }}"), HasSubstr("levels deep")) << chain;
  }
  for (const char* open :
       {"{% if 1 %}", "{% for a in [1] %}", "{% set a %}", "{% with %}", "{% macro f() %}",
        "{% filter upper %}", "{% generation %}", "{% call f() %}"}) {
    EXPECT_THAT(run(repeated(open, 5000)), HasSubstr("levels deep")) << open;
  }
  EXPECT_THAT(
      run("{% for " + repeated("(", 5000) + "a" + repeated(")", 5000) + " in x %}{% endfor %}"),
      HasSubstr("levels deep"));
  EXPECT_THAT(run(std::string((size_t{1} << 20) + 1, 'a')), HasSubstr("is longer than"));
}

// Depths that are allowed must fit the stack, also that of a thread and with sanitizers.
TEST(TemplateLimits, AllowedDepthFitsTheStack) {
  const std::string sum = repeated("(1 + ", 100) + "0" + repeated(")", 100);
  const std::string source = "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% else %}{{ " + sum +
                             " }}{% endif %}{% endmacro %}{{ f(100) }}";
  std::string got;
  std::thread([&] { got = run(source); }).join();
  EXPECT_EQ(got, "100");
}

TEST(TemplateLimits, WideSourceIsFine) {
  EXPECT_EQ(run("{{ 'a'" + repeated(" ~ 'b'", 5000) + " }}").size(), 5001U);
  EXPECT_EQ(run("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(run("{{ [" + repeated("1,", 5000) + "] | length }}"), "5000");
}

// Values that refer to themselves or to each other in a long chain go away without recursion and
// without leaks (the sanitizer build would tell).
TEST(TemplateLimits, CyclesAndChains) {
  EXPECT_EQ(run("{% set n = namespace() %}{% set n.self = n %}{{ n.self.self is defined }}"),
            "True");
  EXPECT_EQ(run("{% set n = namespace(m=none) %}{% macro f() %}{% set before = n.m %}"
                "{% macro g() %}{{ before }}{% endmacro %}{% set n.m = g %}{% endmacro %}"
                "{% for a in range(20000) %}{{ f() }}{% endfor %}done"),
            "done");
  EXPECT_EQ(run("{% for a in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"), "TrueFalse");
  EXPECT_EQ(run("{% set n = namespace() %}{% for a in range(20000) %}"
                "{% set n.x = namespace(x=n.x) %}{% endfor %}done"),
            "done");
}

TEST(Template, RendersOnManyThreads) {
  const auto parsed = Template::parse(
      "{% set n = namespace(c=0) %}{% for a in range(1000) %}{% set n.c = n.c + a %}{% endfor %}"
      "{{ n.c }}{{ messages[0].content }}",
      "t.jinja");
  ASSERT_TRUE(parsed.ok());
  const Dict given = variables();
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::vector<std::string> texts(4);
  for (std::string& text : texts) {
    threads.emplace_back([&] { text = parsed->render(given).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(texts, testing::Each("499500hi"));
}

TEST(Template, InvalidUtf8InValuesIsKept) {
  Dict given;
  given.set("bad", std::string("a\xff\xc3(\xe2\x82"));
  EXPECT_EQ(run("{{ bad }}|{{ bad | length }}|{{ bad[1:2] }}", given), "a\xff\xc3(\xe2\x82|6|\xff");
  EXPECT_EQ(run("{{ [bad] }}", given), "['a\\udcff\\udcc3(\\udce2\\udc82']");
}

}  // namespace
}  // namespace lagoon::text::jinja
