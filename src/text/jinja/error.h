// How the inside of this folder reports what a template does wrong: by exception, caught in
// Template::parse and Template::render, where it becomes an Error. It never leaves the folder.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace lagoon::text::jinja {

class Failure : public std::exception {
 public:
  // `line` 0: the line being worked on, which parser and interpreter know.
  explicit Failure(std::string message, int line = 0) : message_(std::move(message)), line_(line) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  int line() const { return line_; }

 private:
  std::string message_;
  int line_;
};

// What raise_exception() throws: its message goes to the user as it is.
class RaisedByTemplate : public Failure {
  using Failure::Failure;
};

}  // namespace lagoon::text::jinja
