#include "harness/components/other_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "harness/components/words.hpp"

namespace bnlab {
namespace {

using Table = std::map<std::string, std::vector<OtherName>>;

const std::string kOnResnet = R"({"name": "resnet", "depth": )";

// Networks that are named with the depth of their backbone: resnet50, pspnet50, fcn_resnet101, ...
void add_depths(Table& table) {
  for (const char* depth : {"18", "34", "50", "101"}) {
    const std::string backbone = kOnResnet + depth + "}";
    const auto on = [&](const std::string& model) {
      return R"({"name": ")" + model + R"(", "backbone": )" + backbone + "}";
    };
    const auto add = [&](const std::string& theirs, const std::string& ours) {
      table["model"].push_back({theirs + depth, ours});
    };
    table["backbone"].push_back({std::string("resnet") + depth, backbone});
    add("resnet", on("classifier"));
    for (const auto& [theirs, ours] : {std::pair("fcn", "fcn"),
                                       {"pspnet", "pspnet"},
                                       {"psp", "pspnet"},
                                       {"deeplabv3", "deeplab_v3"},
                                       {"deeplabv3plus", "deeplab_v3_plus"}}) {
      add(std::string(theirs) + "_resnet", on(ours));
      add(std::string(theirs) + "_r", on(ours));
    }
    add("pspnet", on("pspnet"));
    add("unet_resnet", on("backbone_unet"));
  }
  for (const char* depth : {"20", "32", "44", "56", "110"}) {
    table["model"].push_back(
        {std::string("resnet") + depth, std::string(R"({"name": "cifar_resnet", "depth": )") + depth + "}"});
  }
}

void add_keys(std::vector<OtherName>& keys, const std::vector<std::string>& theirs, const std::string& ours,
              const std::string& remark = "") {
  for (const std::string& name : theirs) keys.push_back({name, ours, remark});
}

std::vector<OtherName> keys_elsewhere() {
  std::vector<OtherName> keys;
  const std::string of_a_tower = "the samples of one tower; the global batch is \"towers\" times that";
  add_keys(keys, {"learning_rate", "base_lr", "initial_lr", "init_lr", "lr0"}, "optimizer.lr");
  add_keys(keys, {"wd", "weight_decay", "l2"}, "optimizer.weight_decay");
  add_keys(keys, {"scheduler", "lr_scheduler", "lr_schedule", "lr_policy", "lr_config"},
           "optimizer.schedule");
  add_keys(keys, {"warmup", "warmup_iters", "num_warmup_steps", "warmup_iterations"},
           "optimizer.warmup_steps");
  add_keys(keys, {"grad_clip", "clip_grad", "clip_grad_norm", "max_grad_norm", "gradient_clip_val"},
           "optimizer.clip_gradient_norm");
  add_keys(keys, {"lr_steps", "step_size"}, "optimizer.milestones");
  add_keys(keys,
           {"batch_size", "batch", "samples_per_gpu", "images_per_gpu", "imgs_per_gpu", "batch_size_per_gpu",
            "batch_per_gpu", "per_device_batch_size", "per_device_train_batch_size", "micro_batch_size"},
           "batch_per_tower", of_a_tower);
  add_keys(
      keys,
      {"global_batch", "global_batch_size", "total_batch_size", "train_batch_size", "effective_batch_size"},
      "batch_per_tower", of_a_tower);
  add_keys(keys,
           {"gpus", "num_gpus", "n_gpus", "n_gpu", "devices", "num_devices", "world_size", "nproc_per_node",
            "num_processes"},
           "towers", "how many devices the question is about; on how many it runs is said by --ranks");
  add_keys(keys,
           {"max_iters", "max_iter", "iterations", "num_iterations", "iters", "num_steps", "max_steps",
            "total_steps", "training_steps", "train_steps"},
           "steps");
  add_keys(keys, {"max_epochs", "num_epochs", "n_epochs", "total_epochs", "max_epoch"}, "epochs");
  add_keys(keys, {"num_workers", "workers", "n_workers", "workers_per_gpu", "dataloader_num_workers"},
           "data_workers");
  add_keys(keys, {"random_seed", "manual_seed"}, "seed");
  add_keys(keys, {"dataset", "data"}, "task");
  add_keys(keys, {"net", "network", "arch", "architecture"}, "model");
  add_keys(keys, {"encoder", "encoder_name"}, "model.backbone");
  add_keys(keys,
           {"norm", "norm_layer", "norm_cfg", "norm_type", "normalization", "bn", "batch_norm", "sync_bn",
            "sync_batchnorm"},
           "strategy", "`bnlab list strategies` has their names");
  add_keys(keys, {"amp", "fp16", "bf16", "mixed_precision", "dtype"}, "precision",
           "\"float32\", \"bfloat16\" or \"float16\"");
  add_keys(keys, {"channels_last"}, "memory_format", "\"channels_last\" is what it is where nothing is said");
  add_keys(keys,
           {"pretrained", "weights", "load_from", "checkpoint", "pretrained_weights", "init_checkpoint",
            "resume_from"},
           "init_from", "{\"file\": \"weights.safetensors\"}");
  add_keys(keys, {"save_every", "save_interval", "save_steps", "checkpoint_interval", "save_freq"},
           "checkpoint_every");
  add_keys(keys, {"eval_interval", "val_interval", "eval_steps", "validate_every", "val_every", "eval_freq"},
           "eval_every");
  add_keys(keys, {"log_interval", "logging_steps", "print_freq", "log_freq", "print_every"}, "log_every");
  add_keys(keys, {"early_stopping", "early_stop", "patience"}, "stop_early",
           "for runs that fail to train; the best evaluation is kept by \"select\"");
  add_keys(keys,
           {"save_best", "keep_best", "best_checkpoint", "load_best_model_at_end", "validation", "val_split",
            "validation_split", "val_ratio", "val_fraction"},
           "select", "{\"validation_share\": 0.1}, a part of the training set");
  add_keys(keys, {"ema", "ema_decay", "model_ema"}, "weight_ema");
  add_keys(keys, {"criterion", "loss_fn", "loss_function"}, "task.loss");
  add_keys(keys, {"image_size", "img_size", "input_size"}, "task.size", "of photographs \"task.crop\"");
  add_keys(keys, {"crop_size"}, "task.crop");
  add_keys(keys, {"data_root", "data_dir", "dataset_root", "data_path"}, "task.root",
           "below the folder of --data");
  add_keys(keys, {"num_classes", "n_classes", "nc"}, "task.classes",
           "of the task \"folder\"; other tasks know theirs");
  add_keys(keys, {"grid", "sweep", "search_space", "param_grid"}, "matrix");
  return keys;
}

const Table& tables() {
  static const Table all = [] {
    Table table;
    table["model"] = {
        {"deeplab", "", "there are deeplab_v3 and deeplab_v3_plus"},
        {"deeplabv2", "", "there are deeplab_v3 and deeplab_v3_plus"},
        {"resnet", R"({"name": "classifier", "backbone": "resnet"})"},
        {"resnet152", "", "there is the backbone resnet of depth 18, 34, 50 or 101"},
        {"vgg16", "", "there is the backbone vgg16, without the fully connected layers behind it"},
        {"vgg16_bn", "", "there is the backbone vgg16, without the fully connected layers behind it"},
        {"segnet", "", "there is segnet_basic, the smaller network of the same paper"},
        {"lrcn", "frame_lstm"},
        {"cnn_lstm", "frame_lstm"}};
    table["backbone"] = {{"resnet152", "", "there is resnet of depth 18, 34, 50 or 101"},
                         {"vgg16_bn", "vgg16", "the strategy says which norm it has"},
                         {"vgg", "vgg16"},
                         {"vgg11", "", "of its kind there is vgg16 alone"},
                         {"vgg13", "", "of its kind there is vgg16 alone"},
                         {"vgg19", "", "of its kind there is vgg16 alone"}};
    add_depths(table);
    table["optimizer"] = {
        {"adam", R"({"name": "adamw", "weight_decay": 0})", "Adam is that; its decay is not decoupled"},
        {"momentum", "sgd"},
        {"sgdm", "sgd"},
        {"nesterov", R"({"name": "sgd", "nesterov": true})"}};
    table["loss"] = {{"ce", "cross_entropy"},           {"cross_entropy_loss", "cross_entropy"},
                     {"softmax", "cross_entropy"},      {"nll_loss", "cross_entropy"},
                     {"ohem_cross_entropy", "ohem"},    {"dice_loss", "dice"},
                     {"dice_ce", "cross_entropy_dice"}, {"dice_ce_loss", "cross_entropy_dice"}};
    table["task"] = {
        {"pascal_voc", "voc"},
        {"pascal", "voc"},
        {"voc2012", "voc"},
        {"voc_segmentation", "voc"},
        {"ade", "ade20k"},
        {"cityscape", "cityscapes"},
        {"imagenet", "image_folder", "with \"root\", its folder"},
        {"coco", "folder",
         "with \"root\", its folder, and \"classes\"; scripts/coco_labels.py draws the labels and "
         "prints the classes"},
        {"custom", "folder", "with \"root\", its folder, and \"classes\""}};
    table[kKeys] = keys_elsewhere();
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
  static const std::map<std::string, std::string> on_encoders = {
      {"unet", "backbone_unet"},   {"backboneunet", "backbone_unet"},   {"pspnet", "pspnet"}, {"fcn", "fcn"},
      {"deeplabv3", "deeplab_v3"}, {"deeplabv3plus", "deeplab_v3_plus"}};
  const auto ours = on_encoders.find(plain_name(text("name")));
  if (ours == on_encoders.end())
    return "has no such network on an encoder; there are backbone_unet, pspnet, fcn, deeplab_v3 and "
           "deeplab_v3_plus";
  const std::string name = encoder.empty() ? "resnet34" : encoder;  // its default there
  const OtherName* known = find_other_name("backbone", name);
  const std::string backbone = known != nullptr ? known->ours : plain_name(name) == "vgg16" ? "vgg16" : "";
  if (backbone.empty())
    return "has no encoder " + Json(name).dump() + "; there are resnet of depth 18, 34, 50 or 101, and vgg16";
  const bool pretrained = !model.contains("encoder_weights") || !model["encoder_weights"].is_null();
  return R"(calls it {"name": ")" + ours->second + R"(", "backbone": )" + quoted(backbone) + "}" +
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
