#include "harness/embed/pickled.hpp"

#include <caffe2/serialize/inline_container.h>
#include <torch/types.h>

#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

constexpr size_t kMostValues = 4'000'000;  // in one pickle

// What the line of Python below can make readable.
struct Unreadable {
  std::string why;
};
struct Damaged {
  std::string why;
};

// A value of a pickle. Values are named by their places, so that lists may hold themselves.
struct Value {
  enum class Kind { other, number, text, global, list, dict, tensor };
  Kind kind = Kind::other;
  int64_t number = 0;
  std::string text = {};  // a text, or a global's name: "torch FloatStorage"
  // The items of a list or tuple; keys and values of a dictionary in turn; storage and arguments of a tensor.
  std::vector<size_t> items = {};

  bool is(const std::string& global) const { return kind == Kind::global && text == global; }
};

// Runs the part of the pickle machine that torch.save uses. Functions are not called: what they would make is
// a value of no kind, but for tensors.
class Pickle {
 public:
  Pickle(std::istream& in, uint64_t size) : in_(in), size_(size) {}

  // The next pickle of the stream.
  size_t read() {
    stack_.clear();
    marks_.clear();
    memo_.clear();
    for (;;) {
      const auto code = static_cast<unsigned char>(bytes(1)[0]);
      if (code == '.') return pop();
      step(code);
      if (values_.size() > kMostValues) throw Unreadable{"it holds more than tensors"};
    }
  }
  const Value& operator[](size_t place) const { return values_[place]; }
  const std::vector<size_t>& storages() const { return storages_; }

  std::string bytes(uint64_t count) {
    if (count > size_ - read_) throw Damaged{"it ends too early"};
    std::string text(count, '\0');
    in_.read(text.data(), static_cast<std::streamsize>(count));
    if (!in_) throw Damaged{"it ends too early"};
    read_ += count;
    return text;
  }
  uint64_t number(size_t count) {  // little-endian
    uint64_t value = 0;
    const std::string text = bytes(count);
    for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
    return value;
  }
  uint64_t place() const { return read_; }
  void skip(uint64_t count) {
    if (count > size_ - read_) throw Damaged{"it ends too early"};
    in_.seekg(static_cast<std::streamoff>(count), std::ios::cur);
    read_ += count;
  }

 private:
  using Kind = Value::Kind;

  size_t make(Value value) {
    values_.push_back(std::move(value));
    return values_.size() - 1;
  }
  void push(Value value) { stack_.push_back(make(std::move(value))); }
  void push_number(int64_t number) { push({.kind = Kind::number, .number = number}); }
  size_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw Damaged{"it is no pickle"};
    const size_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<size_t> pop(size_t count) {
    std::vector<size_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<size_t> pop_to_mark() {
    if (marks_.empty()) throw Damaged{"it is no pickle"};
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<size_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  void extend(const std::vector<size_t>& items) {
    const size_t top = pop();
    stack_.push_back(top);
    values_[top].items.insert(values_[top].items.end(), items.begin(), items.end());
  }
  std::string line() {
    std::string text;
    for (char c = bytes(1)[0]; c != '\n'; c = bytes(1)[0]) text += c;
    return text;
  }
  void get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) throw Damaged{"it is no pickle"};
    stack_.push_back(found->second);
  }
  void put(uint64_t index) {
    const size_t top = pop();
    stack_.push_back(top);
    memo_[index] = top;
  }

  // What a function makes of its arguments.
  size_t made(size_t function, size_t arguments) {
    const Value &global = values_[function], &given = values_[arguments];
    if (global.is("collections OrderedDict")) {
      Value dict{.kind = Kind::dict};
      if (given.items.size() == 1)  // Python 2 writes a list of pairs
        for (const size_t pair : values_[given.items[0]].items)
          if (values_[pair].items.size() == 2)
            dict.items.insert(dict.items.end(), values_[pair].items.begin(), values_[pair].items.end());
      return make(std::move(dict));
    }
    if (global.kind != Kind::global || given.items.empty()) return make({});
    if (global.text.starts_with("torch._utils _rebuild_tensor"))
      return make({.kind = Kind::tensor, .items = given.items});
    if (global.text.starts_with("torch._utils _rebuild_parameter")) return given.items[0];
    return make({});
  }

  // clang-format off
  void step(unsigned char code) {
    switch (code) {
      case 0x80: bytes(1); break;  // PROTO
      case 0x95: bytes(8); break;  // FRAME
      case '(': marks_.push_back(stack_.size()); break;  // MARK
      case '0': pop(); break;  // POP
      case 'N': push({}); break;  // NONE
      case 0x88: push_number(1); break;  // NEWTRUE
      case 0x89: push_number(0); break;  // NEWFALSE
      case 'K': push_number(static_cast<int64_t>(number(1))); break;  // BININT1
      case 'M': push_number(static_cast<int64_t>(number(2))); break;  // BININT2
      case 'J': push_number(static_cast<int32_t>(static_cast<uint32_t>(number(4)))); break;  // BININT
      case 'G': bytes(8); push({}); break;  // BINFLOAT
      case 0x8a: {  // LONG1
        const std::string digits = bytes(number(1));
        uint64_t value = !digits.empty() && digits.back() < 0 ? ~uint64_t{0} : 0;
        for (size_t i = 0; i < std::min<size_t>(digits.size(), 8); ++i)
          value = (value & ~(uint64_t{0xff} << (8 * i))) | uint64_t{static_cast<unsigned char>(digits[i])}
                                                               << (8 * i);
        push({.kind = digits.size() <= 8 ? Kind::number : Kind::other,
              .number = static_cast<int64_t>(value),
              .text = digits});
        break;
      }
      case 'X': push({.kind = Kind::text, .text = bytes(number(4))}); break;  // BINUNICODE
      case 0x8c: case 'U': push({.kind = Kind::text, .text = bytes(number(1))}); break;  // SHORT_*
      case 'T': push({.kind = Kind::text, .text = bytes(number(4))}); break;  // BINSTRING
      case 'C': bytes(number(1)); push({}); break;  // SHORT_BINBYTES
      case 'B': bytes(number(4)); push({}); break;  // BINBYTES
      case '}': push({.kind = Kind::dict}); break;  // EMPTY_DICT
      case ']': case ')': case 0x8f: push({.kind = Kind::list}); break;  // EMPTY_LIST, EMPTY_TUPLE, EMPTY_SET
      case 't': case 'l': push({.kind = Kind::list, .items = pop_to_mark()}); break;  // TUPLE, LIST
      case 'd': push({.kind = Kind::dict, .items = pop_to_mark()}); break;  // DICT
      case 0x85:
      case 0x86:
      case 0x87:  // TUPLE1, TUPLE2, TUPLE3
        push({.kind = Kind::list, .items = pop(code - 0x84)});
        break;
      case 'a': extend(pop(1)); break;  // APPEND
      case 's': extend(pop(2)); break;  // SETITEM
      case 'e': case 'u': case 0x90: extend(pop_to_mark()); break;  // APPENDS, SETITEMS, ADDITEMS
      case 'q': put(number(1)); break;  // BINPUT
      case 'r': put(number(4)); break;  // LONG_BINPUT
      case 0x94: put(memo_.size()); break;  // MEMOIZE
      case 'h': get(number(1)); break;  // BINGET
      case 'j': get(number(4)); break;  // LONG_BINGET
      case 'c': {  // GLOBAL
        const std::string module = line();
        push({.kind = Kind::global, .text = module + " " + line()});
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<size_t> names = pop(2);
        push({.kind = Kind::global, .text = values_[names[0]].text + " " + values_[names[1]].text});
        break;
      }
      case 'Q': {  // BINPERSID: a storage stays the tuple that tells it
        const size_t top = pop();
        stack_.push_back(top);
        storages_.push_back(top);
        break;
      }
      case 'R':
      case 0x81: {  // REDUCE, NEWOBJ
        const std::vector<size_t> call = pop(2);
        stack_.push_back(made(call[0], call[1]));
        break;
      }
      case 'b': pop(); break;  // BUILD
      default:
        throw Unreadable{"it holds more than tensors (code " + std::to_string(code) + " of its pickle)"};
    }
  }
  // clang-format on

  std::istream& in_;
  uint64_t size_, read_ = 0;
  std::deque<Value> values_;
  std::vector<size_t> stack_, marks_, storages_;
  std::map<uint64_t, size_t> memo_;
};

constexpr int64_t kMostElements = int64_t{1} << 40;

struct Storage {
  at::ScalarType type;
  std::string key;
  uint64_t bytes;
};
using ReadBytes = std::function<std::string(const std::string& key, uint64_t begin, uint64_t count)>;

std::optional<at::ScalarType> type_of(const std::string& global) {
  static const std::map<std::string, at::ScalarType> all = {
      {"torch FloatStorage", at::kFloat}, {"torch DoubleStorage", at::kDouble},
      {"torch HalfStorage", at::kHalf},   {"torch BFloat16Storage", at::kBFloat16},
      {"torch LongStorage", at::kLong},   {"torch IntStorage", at::kInt},
      {"torch ShortStorage", at::kShort}, {"torch CharStorage", at::kChar},
      {"torch ByteStorage", at::kByte},   {"torch BoolStorage", at::kBool}};
  const auto found = all.find(global);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

// ("storage", its type, its key, its device, its elements), or nothing of a kind that is not read here.
std::optional<Storage> storage_of(const Pickle& pickle, const Value& told) {
  if (told.items.size() < 5) return std::nullopt;
  const auto type = type_of(pickle[told.items[1]].text);
  const int64_t elements = pickle[told.items[4]].number;
  if (!type || elements < 0 || elements > kMostElements) return std::nullopt;
  return Storage{*type, pickle[told.items[2]].text,
                 static_cast<uint64_t>(elements) * c10::elementSize(*type)};
}

std::vector<int64_t> numbers_of(const Pickle& pickle, const Value& list) {
  std::vector<int64_t> numbers;
  for (const size_t item : list.items) numbers.push_back(pickle[item].number);
  return numbers;
}

// Of the arguments of _rebuild_tensor: storage, first element, sizes, strides.
PickledTensor tensor_of(const Pickle& pickle, const std::string& name, const Value& told,
                        const ReadBytes& read) {
  if (told.items.size() < 4) throw Damaged{name + " is not whole"};
  const auto storage = storage_of(pickle, pickle[told.items[0]]);
  const std::vector<int64_t> sizes = numbers_of(pickle, pickle[told.items[2]]);
  const std::vector<int64_t> strides = numbers_of(pickle, pickle[told.items[3]]);
  if (!storage)
    return {name, sizes,
            [name]() -> at::Tensor { throw Unreadable{name + " is of a type that is not read here"}; }};
  const int64_t first = pickle[told.items[1]].number;
  long double last = first;  // exact as far as storages reach
  bool sound = first >= 0 && sizes.size() == strides.size(), empty = false;
  for (size_t d = 0; sound && d < sizes.size(); ++d) {
    sound = sizes[d] >= 0 && strides[d] >= 0;
    empty = empty || sizes[d] == 0;
    last += static_cast<long double>(sizes[d] - 1) * static_cast<long double>(strides[d]);
  }
  const uint64_t item = c10::elementSize(storage->type);
  if (!sound || (!empty && last >= static_cast<long double>(storage->bytes / item)))
    throw Damaged{name + " does not lie in its storage"};
  return {name, sizes, [=] {
            if (empty) return at::empty(sizes, storage->type);
            const auto count = static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
            const std::string bytes = read(storage->key, static_cast<uint64_t>(first) * item, count * item);
            const at::Tensor flat = at::empty({static_cast<int64_t>(count)}, storage->type);
            std::memcpy(flat.mutable_data_ptr(), bytes.data(), bytes.size());
            return flat.as_strided(sizes, strides);
          }};
}

// The dictionary that holds the tensors, in the file's own or under one of the usual keys.
std::vector<PickledTensor> tensors_of(const Pickle& pickle, size_t root, const ReadBytes& read) {
  const Value* dict = &pickle[root];
  if (dict->kind != Value::Kind::dict) throw Unreadable{"it holds no dictionary of tensors"};
  for (const char* key : {"state_dict", "model_state_dict", "model", "weights"}) {
    for (size_t i = 0; i + 1 < dict->items.size(); i += 2) {
      const Value& under = pickle[dict->items[i + 1]];
      if (pickle[dict->items[i]].text == key && under.kind == Value::Kind::dict) {
        dict = &under;
        break;
      }
    }
  }
  std::vector<PickledTensor> tensors;
  for (size_t i = 0; i + 1 < dict->items.size(); i += 2)
    if (const Value& value = pickle[dict->items[i + 1]]; value.kind == Value::Kind::tensor)
      tensors.push_back(tensor_of(pickle, pickle[dict->items[i]].text, value, read));
  if (tensors.empty()) throw Unreadable{"it holds no dictionary of tensors"};
  return tensors;
}

std::vector<PickledTensor> read_archive(const std::string& file) {
  const auto archive = std::make_shared<caffe2::serialize::PyTorchStreamReader>(file);
  if (archive->hasRecord("constants.pkl"))
    throw Unreadable{"it is a module of TorchScript or of torch::save in C++"};
  const auto record = [archive, limit = std::filesystem::file_size(file)](const std::string& name) {
    if (!archive->hasRecord(name)) throw Damaged{"it has no part " + name};
    if (archive->getRecordSize(name) > limit) throw Damaged{name + " is larger than the file"};
    const auto [data, size] = archive->getRecord(name);
    return std::string(static_cast<const char*>(data.get()), size);
  };
  if (archive->hasRecord("byteorder") && record("byteorder") != "little")
    throw Unreadable{"it is of a machine with the other order of bytes"};
  const std::string text = record("data.pkl");
  std::istringstream in(text);
  Pickle pickle(in, text.size());
  const size_t root = pickle.read();
  const auto last = std::make_shared<std::pair<std::string, std::string>>();  // several tensors may share one
  return tensors_of(pickle, root, [=](const std::string& key, uint64_t begin, uint64_t count) {
    if (last->first != key) *last = {key, record("data/" + key)};
    if (begin + count > last->second.size()) throw Damaged{"data/" + key + " is too short"};
    return last->second.substr(begin, count);
  });
}

// Three pickles about the format, one of the dictionary, one of the keys of the storages, which follow.
std::vector<PickledTensor> read_stream(const std::string& file) {
  constexpr int kProtocol = 0x80;  // the first byte of a pickle
  const std::string magic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  std::ifstream in(file, std::ios::binary);
  Pickle pickle(in, std::filesystem::file_size(file));
  if (in.peek() != kProtocol || pickle[pickle.read()].text != magic)
    throw Unreadable{"it is no file of torch.save, or a very old one"};
  pickle.read();
  const Value machine = pickle[pickle.read()];
  for (size_t i = 0; i + 1 < machine.items.size(); i += 2)
    if (pickle[machine.items[i]].text == "little_endian" && pickle[machine.items[i + 1]].number == 0)
      throw Unreadable{"it is of a machine with the other order of bytes"};
  const size_t root = pickle.read();
  std::map<std::string, uint64_t> sizes, places;
  for (const size_t told : pickle.storages())
    if (const auto storage = storage_of(pickle, pickle[told])) sizes[storage->key] = storage->bytes;
  for (const size_t key : std::vector<size_t>(pickle[pickle.read()].items)) {
    const auto size = sizes.find(pickle[key].text);
    if (size == sizes.end()) throw Unreadable{"it holds more than tensors"};
    pickle.number(8);  // its elements
    places[size->first] = pickle.place();
    pickle.skip(size->second);
  }
  return tensors_of(pickle, root, [=](const std::string& key, uint64_t begin, uint64_t count) {
    const auto place = places.find(key);
    if (place == places.end()) throw Damaged{"a storage is missing"};
    std::ifstream data(file, std::ios::binary);
    data.seekg(static_cast<std::streamoff>(place->second + begin));
    std::string bytes(count, '\0');
    data.read(bytes.data(), static_cast<std::streamsize>(count));
    if (!data) throw Damaged{"it ends too early"};
    return bytes;
  });
}

// Calls `work`, whose errors get the file's name and what helps.
template <class Work>
auto named(const std::string& file, const Work& work) {
  try {
    return work();
  } catch (const Unreadable& error) {
    throw Error(Error::Kind::data,
                file + ": " + error.why + "; if you trust it, Python makes a dictionary of tensors of it: " +
                    shell_command("python -c",
                                  {"import sys, torch; m = torch.load(sys.argv[1], map_location=\"cpu\", "
                                   "weights_only=False); torch.save(dict(m.state_dict() if hasattr(m, "
                                   "\"state_dict\") else m), sys.argv[2])",
                                   file, file + ".plain.pt"}));
  } catch (const Damaged& error) {
    throw Error(Error::Kind::data, file + ": is damaged, " + error.why + "; fetch it again");
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(Error::Kind::data, file + ": is damaged, the archive cannot be opened; fetch it again");
  }
}

}  // namespace

std::vector<PickledTensor> pickled_tensors(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || !std::ifstream(file))
    throw Error(Error::Kind::data, file + ": cannot be read; is it there, and a file?");
  std::array<char, 4> start{};
  std::ifstream(file, std::ios::binary).read(start.data(), start.size());
  const bool archive = std::string(start.data(), start.size()) == "PK\3\4";
  auto tensors = named(file, [&] { return archive ? read_archive(file) : read_stream(file); });
  for (PickledTensor& tensor : tensors)
    tensor.read = [file, read = std::move(tensor.read)] { return named(file, read); };
  return tensors;
}

}  // namespace bnlab
