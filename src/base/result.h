// Result<T>: a value or an Error. Errors are for what users, files and the world do wrong; a bug in
// Lagoon is a CHECK (base/check.h). An error's message is one sentence for the user: it names the
// thing that is wrong and, where there is one, the remedy. No exception crosses a folder's border.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace lagoon {

enum class ErrorCode {
  kInvalidArgument,    // the caller's input is wrong; the same call will fail again
  kNotFound,           // a named thing does not exist
  kUnsupported,        // understood, but this version of Lagoon cannot do it
  kResourceExhausted,  // memory, queue or context is full
  kUnavailable,        // not now; trying again may work
  kCancelled,          // the client went away or asked to stop
  kInternal,           // the world broke (I/O error, driver), nothing the caller did
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value; a CHECK fails where there is none.
  T& value() & {
    CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    CHECK(!ok());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace lagoon

// Returns the error of `expression` (a Result) from the enclosing function, if there is one.
#define LAGOON_RETURN_IF_ERROR(expression)                                  \
  do {                                                                      \
    auto&& lagoon_result = (expression);                                    \
    if (!lagoon_result.ok()) return ::lagoon::Error(lagoon_result.error()); \
  } while (0)

#define LAGOON_CONCATENATE_EXPANDED(a, b) a##b
#define LAGOON_CONCATENATE(a, b) LAGOON_CONCATENATE_EXPANDED(a, b)

// LAGOON_ASSIGN(auto x, expression): the value of a Result, or a return of its error. A declaration
// cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define LAGOON_ASSIGN(declaration, expression) \
  LAGOON_ASSIGN_FROM(LAGOON_CONCATENATE(lagoon_result_, __LINE__), declaration, expression)
#define LAGOON_ASSIGN_FROM(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return ::lagoon::Error(result.error()); \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
