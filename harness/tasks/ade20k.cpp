// ADE20K in the form of its scene parsing challenge: 150 classes of things and stuff (Zhou et al., "Scene
// parsing through ADE20K dataset", CVPR 2017). Below the root:
//   images/{training,validation}/ADE_{train,val}_%08d.jpg
//   annotations/{training,validation}/ADE_{train,val}_%08d.png
// Label files are grey PNGs: 0, which belongs to none of the classes, becomes void, 1 to 150 become 0 to 149.
#include "harness/components/registry.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::ade20k {

// In the order of the ids from 1.
const std::vector<std::string> kClasses = split_names(
    "wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, cabinet, sidewalk, "
    "person, earth, door, table, mountain, plant, curtain, chair, car, water, painting, sofa, shelf, "
    "house, sea, mirror, rug, field, armchair, seat, fence, desk, rock, wardrobe, lamp, bathtub, "
    "railing, cushion, base, box, column, signboard, chest of drawers, counter, sand, sink, "
    "skyscraper, fireplace, refrigerator, grandstand, path, stairs, runway, case, pool table, "
    "pillow, screen door, stairway, river, bridge, bookcase, blind, coffee table, toilet, flower, "
    "book, hill, bench, countertop, stove, palm, kitchen island, computer, swivel chair, boat, bar, "
    "arcade machine, hovel, bus, towel, light, truck, tower, chandelier, awning, streetlight, booth, "
    "television receiver, airplane, dirt track, apparel, pole, land, bannister, escalator, ottoman, "
    "bottle, buffet, poster, stage, van, ship, fountain, conveyer belt, canopy, washer, plaything, "
    "swimming pool, stool, barrel, basket, waterfall, tent, bag, minibike, cradle, oven, ball, food, "
    "step, tank, trade name, microwave, pot, animal, bicycle, lake, dishwasher, screen, blanket, "
    "sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan, pier, crt screen, plate, "
    "monitor, bulletin board, shower, radiator, glass, clock, flag");
constexpr const char* kCure = "; unpack ADEChallengeData2016.zip here";

LabelMap labels() {
  LabelMap map = label_map(0, {0});
  for (size_t c = 0; c < kClasses.size(); ++c) map.class_of[c + 1] = static_cast<int16_t>(c);
  map.cure = "the annotations of the challenge have these ids; those of the full ADE20K are colour images";
  return map;
}

struct Options : PhotographOptions {
  Options() { crop = {473, 473}; }

  std::string root = "ADEChallengeData2016";
  std::string train_split = "training", test_split = "validation";

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty();
    option("train_split", train_split, "folder of the training split").not_empty();
    option("test_split", test_split, "folder of the split that is evaluated").not_empty();
    PhotographOptions::describe(option);
  }

  PhotographSet photographs(const std::string& data_dir) const {
    const std::filesystem::path folder = data_root(data_dir, "ade20k", root);
    const auto split = [&](const std::string& name, const std::string& key) {
      return pair_files({below(folder / "images", name, key)}, {below(folder / "annotations", name, key)},
                        kCure);
    };
    return {.training = split(train_split, "train_split"),
            .test = split(test_split, "test_split"),
            .classes = kClasses,
            .labels = labels()};
  }
  Paths files(const std::string& data_dir) const { return paths_of(photographs(data_dir)); }
};

const Registered<Task> entry{{.name = "ade20k",
                              .summary = "ADE20K photographs of scenes, 150 classes, from its own folders",
                              .source = "Zhou et al., CVPR 2017"},
                             make<Task, PhotographTaskOf<Options>>};

}  // namespace bnlab::ade20k
