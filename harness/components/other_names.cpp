#include "harness/components/other_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <texts/other_names.hpp>

#include "harness/components/words.hpp"

namespace bnlab {
namespace {

using Table = std::map<std::string, std::vector<OtherName>>;

// The text with the number in the place of each #.
std::string with_number(const std::string& text, const std::string& number) {
  std::string result;
  for (const char c : text) result += c == '#' ? number : std::string(1, c);
  return result;
}

std::vector<OtherName> read_names(const Json& rows) {
  std::vector<OtherName> names;
  for (const Json& row : rows) {
    const std::string ours = row.value("ours", ""), remark = row.value("remark", "");
    for (const std::string number : row.value("numbers", Json::array({""})))
      for (const std::string theirs : row.at("theirs"))
        names.push_back({with_number(theirs, number), with_number(ours, number), remark});
  }
  return names;
}

const Table& tables() {
  static const Table all = [] {
    Table table;
    const Json file = Json::parse(kOtherNames);
    for (const auto& [family, rows] : file.items()) table[family] = read_names(rows);
    return table;
  }();
  return all;
}

const OtherName* find_other_name(const std::string& family, const std::string& name) {
  const std::vector<OtherName>& names = other_names(family);
  const std::string wanted = plain_name(name);
  const auto found =
      std::ranges::find_if(names, [&](const OtherName& each) { return plain_name(each.theirs) == wanted; });
  return found == names.end() ? nullptr : &*found;
}

std::string with_remark(const std::string& text, const std::string& remark) {
  return text + (remark.empty() ? "" : ": " + remark);
}

std::string quoted(const std::string& ours) {
  return ours.starts_with("{") ? ours : '"' + ours + '"';
}

// "optimizer" of "matrix.optimizer[1]".
std::string without_matrix(std::string path) {
  constexpr const char* kMatrix = "matrix.";
  if (path.starts_with(kMatrix)) path = path.substr(std::string(kMatrix).size());
  return path.substr(0, path.find('['));
}

// What tells networks apart beside their letters: "3plus" of "deeplab_v3+".
std::string digits_of(const std::string& plain) {
  std::string digits;
  std::ranges::copy_if(plain, std::back_inserter(digits),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits + (plain.find("plus") == std::string::npos ? "" : "plus");
}

}  // namespace

const std::vector<OtherName>& other_names(const std::string& family) {
  static const std::vector<OtherName> none;
  const auto found = tables().find(family);
  return found == tables().end() ? none : found->second;
}

std::string plain_name(const std::string& name) {
  std::string text;
  for (const unsigned char c : name.substr(name.rfind('.') + 1))
    if (c == '+')
      text += "plus";
    else if (std::isalnum(c) != 0)
      text += static_cast<char>(std::tolower(c));
  const size_t size = text.size();
  const bool dimensions =
      size > 2 && text[size - 1] == 'd' && std::isdigit(static_cast<unsigned char>(text[size - 2])) != 0;
  return dimensions ? text.substr(0, size - 2) : text;
}

std::string answer_from_table(const std::string& family, const std::string& name) {
  const OtherName* found = find_other_name(family, name);
  if (found == nullptr) return "";
  return found->ours.empty() ? "; " + found->remark
                             : with_remark("; bnlab calls it " + quoted(found->ours), found->remark);
}

std::string answer_to_encoder(const Json& model) {
  const auto text = [&](const char* key) {
    return model.contains(key) && model[key].is_string() ? model[key].get<std::string>() : std::string();
  };
  const std::string encoder = text("encoder_name").empty() ? text("encoder") : text("encoder_name");
  if (encoder.empty() && !model.contains("encoder_weights")) return "";
  const OtherName* ours = find_other_name("on_encoder", text("name"));
  if (ours == nullptr)
    return "has no such network on an encoder; there are backbone_unet, pspnet, fcn, deeplab_v3 and "
           "deeplab_v3_plus";
  const std::string name = encoder.empty() ? "resnet34" : encoder;  // its default there
  const OtherName* known = find_other_name("backbone", name);
  const std::string backbone = known != nullptr ? known->ours : plain_name(name) == "vgg16" ? "vgg16" : "";
  if (backbone.empty())
    return "has no encoder " + Json(name).dump() + "; there are resnet of depth 18, 34, 50 or 101, and vgg16";
  const bool pretrained = !model.contains("encoder_weights") || !model["encoder_weights"].is_null();
  return R"(calls it {"name": ")" + ours->ours + R"(", "backbone": )" + quoted(backbone) + "}" +
         (pretrained ? R"(, and weights to start from are a key of the whole spec: "init_from": {"file": )"
                       R"("encoder.safetensors", "part": "backbone"})"
                     : "");
}

std::string answer_to_other_key(const std::string& path, const std::string& key) {
  const OtherName* found = find_other_name(kKeys, key);
  if (found == nullptr) return "";
  const std::string around = without_matrix(path) + ".";
  const bool within = around != "." && found->ours.starts_with(around);
  const std::string ours = within ? found->ours.substr(around.size()) : found->ours;
  // Within a component a word may mean something else than at the top.
  const bool elsewhere = !within && !path.empty() && path != "matrix";
  return elsewhere ? "" : with_remark("; bnlab calls it \"" + ours + '"', found->remark);
}

std::string key_elsewhere(const std::string& name) {
  const OtherName* found = find_other_name(kKeys, name);
  return found == nullptr ? "" : found->ours;
}

std::string component_suggestion(const std::string& name, const std::vector<std::string>& known) {
  constexpr size_t kLongName = 8;  // a slip more is forgiven
  const std::string plain = plain_name(name);
  std::string near;
  size_t best = plain.size() < kLongName ? 2 : 3;  // slips that are too many
  for (const std::string& candidate :
       name.size() > kLongestComparedName ? std::vector<std::string>{} : known) {
    const std::string theirs = plain_name(candidate);
    const size_t slips = edit_distance(plain, theirs);
    if (slips < best && digits_of(plain) == digits_of(theirs)) {
      near = candidate;
      best = slips;
    }
  }
  return near.empty() ? "; known: " + (known.empty() ? "none" : joined(known))
                      : "; did you mean \"" + near + "\"?";
}

}  // namespace bnlab
