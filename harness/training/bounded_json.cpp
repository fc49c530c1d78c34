#include "harness/training/bounded_json.hpp"

#include <utility>
#include <vector>

#include "harness/error.hpp"

namespace bnlab {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(size_t deepest) : deepest_(deepest) {}

  nlohmann::json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(value); }
  bool start_object(size_t) override { return open(nlohmann::json::object()); }
  bool start_array(size_t) override { return open(nlohmann::json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      throw Error(Error::Kind::data, "it has the key " + nlohmann::json(name).dump() + " twice");
    }
    key_ = name;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw Error(Error::Kind::data, "it is no JSON at byte " + std::to_string(position));
  }

 private:
  nlohmann::json& placed(nlohmann::json value) {
    if (open_.empty()) {
      return root_ = std::move(value);
    }
    nlohmann::json& around = *open_.back();
    if (around.is_array()) {
      around.push_back(std::move(value));
      return around.back();
    }
    return around[key_] = std::move(value);
  }
  bool put(nlohmann::json value) {
    placed(std::move(value));
    return true;
  }
  // What is around an open value does not grow before it is closed, so that the pointers hold.
  bool open(nlohmann::json empty) {
    if (open_.size() == deepest_) {
      throw Error(Error::Kind::data, "it is nested deeper than " + std::to_string(deepest_) + " levels");
    }
    open_.push_back(&placed(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  size_t deepest_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // from the outermost to the one that is being read
  std::string key_;                    // of the next value of an object
};

}  // namespace

nlohmann::json parse_bounded_json(const std::string& text, size_t deepest) {
  Builder builder(deepest);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace bnlab
