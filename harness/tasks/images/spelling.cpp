#include "harness/tasks/images/spelling.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// The characters that are another one with a mark behind it: the mark, and then in turn the other one and the
// character (UnicodeData.txt of Unicode 15; Hangul follows a rule).
struct Marked {
  char32_t mark;
  std::u32string_view pairs;
};
// clang-format off
constexpr Marked kMarked[] = {
    {0x0300, U"AÀEÈIÌOÒUÙaàeèiìoòuùÜǛüǜNǸnǹЕЀИЍеѐиѝĒḔēḕŌṐōṑWẀwẁÂẦâầĂẰăằÊỀêềÔỒôồƠỜơờƯỪưừYỲyỳἀἂἁἃἈἊἉἋἐἒἑἓ"
             U"ἘἚἙἛἠἢἡἣἨἪἩἫἰἲἱἳἸἺἹἻὀὂὁὃὈὊὉὋὐὒὑὓὙὛὠὢὡὣὨὪὩὫαὰεὲηὴιὶοὸυὺωὼΑᾺΕῈΗῊ᾿῍ϊῒΙῚ῾῝ϋῢΥῪ¨῭ΟῸΩῺ"},
    {0x0301, U"AÁEÉIÍOÓUÚYÝaáeéiíoóuúyýCĆcćLĹlĺNŃnńRŔrŕSŚsśZŹzźÜǗüǘGǴgǵÅǺåǻÆǼæǽØǾøǿ¨΅ΑΆΕΈΗΉΙΊΟΌΥΎΩΏϊΐαά"
             U"εέηήιίϋΰοόυύωώϒϓГЃКЌгѓкќÇḈçḉĒḖēḗÏḮïḯKḰkḱMḾmḿÕṌõṍŌṒōṓPṔpṕŨṸũṹWẂwẃÂẤâấĂẮăắÊẾêếÔỐôốƠỚơớƯỨưứ"
             U"ἀἄἁἅἈἌἉἍἐἔἑἕἘἜἙἝἠἤἡἥἨἬἩἭἰἴἱἵἸἼἹἽὀὄὁὅὈὌὉὍὐὔὑὕὙὝὠὤὡὥὨὬὩὭ᾿῎῾῞"},
    {0x0302, U"AÂEÊIÎOÔUÛaâeêiîoôuûCĈcĉGĜgĝHĤhĥJĴjĵSŜsŝWŴwŵYŶyŷZẐzẑẠẬạậẸỆẹệỌỘọộ"},
    {0x0303, U"AÃNÑOÕaãnñoõIĨiĩUŨuũVṼvṽÂẪâẫĂẴăẵEẼeẽÊỄêễÔỖôỗƠỠơỡƯỮưữYỸyỹ"},
    {0x0304, U"AĀaāEĒeēIĪiīOŌoōUŪuūÜǕüǖÄǞäǟȦǠȧǡÆǢæǣǪǬǫǭÖȪöȫÕȬõȭȮȰȯȱYȲyȳИӢиӣУӮуӯGḠgḡḶḸḷḹṚṜṛṝαᾱΑᾹιῑΙῙυῡΥῩ"},
    {0x0306, U"AĂaăEĔeĕGĞgğIĬiĭOŎoŏUŬuŭУЎИЙийуўЖӁжӂАӐаӑЕӖеӗȨḜȩḝẠẶạặαᾰΑᾸιῐΙῘυῠΥῨ"},
    {0x0307, U"CĊcċEĖeėGĠgġIİZŻzżAȦaȧOȮoȯBḂbḃDḊdḋFḞfḟHḢhḣMṀmṁNṄnṅPṖpṗRṘrṙSṠsṡŚṤśṥŠṦšṧṢṨṣṩTṪtṫWẆwẇXẊxẋYẎ"
             U"yẏſẛ"},
    {0x0308, U"AÄEËIÏOÖUÜaäeëiïoöuüyÿYŸΙΪΥΫιϊυϋϒϔЕЁІЇеёіїАӒаӓӘӚәӛЖӜжӝЗӞзӟИӤиӥОӦоӧӨӪөӫЭӬэӭУӰуӱЧӴчӵЫӸыӹHḦ"
             U"hḧÕṎõṏŪṺūṻWẄwẅXẌxẍtẗ"},
    {0x0309, U"AẢaảÂẨâẩĂẲăẳEẺeẻÊỂêểIỈiỉOỎoỏÔỔôổƠỞơởUỦuủƯỬưửYỶyỷ"},
    {0x030a, U"AÅaåUŮuůwẘyẙ"},
    {0x030b, U"OŐoőUŰuűУӲуӳ"},
    {0x030c, U"CČcčDĎdďEĚeěLĽlľNŇnňRŘrřSŠsšTŤtťZŽzžAǍaǎIǏiǐOǑoǒUǓuǔÜǙüǚGǦgǧKǨkǩƷǮʒǯjǰHȞhȟ"},
    {0x030f, U"AȀaȁEȄeȅIȈiȉOȌoȍRȐrȑUȔuȕѴѶѵѷ"},
    {0x0311, U"AȂaȃEȆeȇIȊiȋOȎoȏRȒrȓUȖuȗ"},
    {0x0313, U"αἀΑἈεἐΕἘηἠΗἨιἰΙἸοὀΟὈυὐωὠΩὨρῤ"},
    {0x0314, U"αἁΑἉεἑΕἙηἡΗἩιἱΙἹοὁΟὉυὑΥὙωὡΩὩρῥΡῬ"},
    {0x031b, U"OƠoơUƯuư"},
    {0x0323, U"BḄbḅDḌdḍHḤhḥKḲkḳLḶlḷMṂmṃNṆnṇRṚrṛSṢsṣTṬtṭVṾvṿWẈwẉZẒzẓAẠaạEẸeẹIỊiịOỌoọƠỢơợUỤuụƯỰưựYỴyỵ"},
    {0x0324, U"UṲuṳ"},
    {0x0325, U"AḀaḁ"},
    {0x0326, U"SȘsșTȚtț"},
    {0x0327, U"CÇcçGĢgģKĶkķLĻlļNŅnņRŖrŗSŞsşTŢtţEȨeȩDḐdḑHḨhḩ"},
    {0x0328, U"AĄaąEĘeęIĮiįUŲuųOǪoǫ"},
    {0x032d, U"DḒdḓEḘeḙLḼlḽNṊnṋTṰtṱUṶuṷ"},
    {0x032e, U"HḪhḫ"},
    {0x0330, U"EḚeḛIḬiḭUṴuṵ"},
    {0x0331, U"BḆbḇDḎdḏKḴkḵLḺlḻNṈnṉRṞrṟTṮtṯZẔzẕhẖ"},
    {0x0338, U"←↚→↛↔↮⇐⇍⇔⇎⇒⇏∃∄∈∉∋∌∣∤∥∦∼≁≃≄≅≇≈≉=≠≡≢≍≭<≮>≯≤≰≥≱≲≴≳≵≶≸≷≹≺⊀≻⊁⊂⊄⊃⊅⊆⊈⊇⊉⊢⊬⊨⊭⊩⊮⊫⊯≼⋠≽⋡⊑⋢⊒⋣⊲⋪⊳⋫⊴⋬⊵⋭"},
    {0x0342, U"ἀἆἁἇἈἎἉἏἠἦἡἧἨἮἩἯἰἶἱἷἸἾἹἿὐὖὑὗὙὟὠὦὡὧὨὮὩὯαᾶ¨῁ηῆ᾿῏ιῖϊῗ῾῟υῦϋῧωῶ"},
    {0x0345, U"ἀᾀἁᾁἂᾂἃᾃἄᾄἅᾅἆᾆἇᾇἈᾈἉᾉἊᾊἋᾋἌᾌἍᾍἎᾎἏᾏἠᾐἡᾑἢᾒἣᾓἤᾔἥᾕἦᾖἧᾗἨᾘἩᾙἪᾚἫᾛἬᾜἭᾝἮᾞἯᾟὠᾠὡᾡὢᾢὣᾣὤᾤὥᾥὦᾦὧᾧὨᾨὩᾩὪᾪὫᾫ"
             U"ὬᾬὭᾭὮᾮὯᾯὰᾲαᾳάᾴᾶᾷΑᾼὴῂηῃήῄῆῇΗῌὼῲωῳώῴῶῷΩῼ"},
    {0x0653, U"اآ"},
    {0x0654, U"اأوؤيئەۀہۂےۓ"},
    {0x0655, U"اإ"},
    {0x093c, U"नऩरऱळऴ"},
    {0x09be, U"েো"},
    {0x09d7, U"েৌ"},
    {0x0b3e, U"େୋ"},
    {0x0b56, U"େୈ"},
    {0x0b57, U"େୌ"},
    {0x0bbe, U"ெொேோ"},
    {0x0bd7, U"ஒஔெௌ"},
    {0x0c56, U"ెై"},
    {0x0cc2, U"ೆೊ"},
    {0x0cd5, U"ಿೀೆೇೊೋ"},
    {0x0cd6, U"ೆೈ"},
    {0x0d3e, U"െൊേോ"},
    {0x0d57, U"െൌ"},
    {0x0dca, U"ෙේොෝ"},
    {0x0dcf, U"ෙො"},
    {0x0ddf, U"ෙෞ"},
    {0x102e, U"ဥဦ"},
    {0x1b35, U"ᬅᬆᬇᬈᬉᬊᬋᬌᬍᬎᬑᬒᬺᬻᬼᬽᬾᭀᬿᭁᭂᭃ"},
    {0x3099, U"かがきぎくぐけげこごさざしじすずせぜそぞただちぢつづてでとどはばひびふぶへべほぼうゔゝゞ"
             U"カガキギクグケゲコゴサザシジスズセゼソゾタダチヂツヅテデトドハバヒビフブヘベホボウヴワヷ"
             U"ヰヸヱヹヲヺヽヾ"},
    {0x309a, U"はぱひぴふぷへぺほぽハパヒピフプヘペホポ"},
};
// clang-format on

struct Pair {
  char32_t first, mark;
};

const std::map<char32_t, Pair>& pairs() {
  static const std::map<char32_t, Pair> all = [] {
    std::map<char32_t, Pair> pairs;
    for (const Marked& marked : kMarked)
      for (size_t i = 0; i < marked.pairs.size(); i += 2)
        pairs[marked.pairs[i + 1]] = {marked.pairs[i], marked.mark};
    return pairs;
  }();
  return all;
}

bool is_mark(char32_t c) {
  return std::ranges::any_of(kMarked, [&](const Marked& marked) { return marked.mark == c; });
}

void decompose(char32_t c, std::u32string& to) {
  constexpr char32_t kSyllables = 0xac00, kFirst = 0x1100, kMiddle = 0x1161, kLast = 0x11a7;  // Unicode 3.12
  if (c >= kSyllables && c <= 0xd7a3) {
    const char32_t syllable = c - kSyllables;
    to += {static_cast<char32_t>(kFirst + syllable / 588),
           static_cast<char32_t>(kMiddle + syllable % 588 / 28)};
    if (syllable % 28 > 0) to += kLast + syllable % 28;
  } else if (const auto found = pairs().find(c); found != pairs().end()) {
    decompose(found->second.first, to);
    to += found->second.mark;
  } else {
    to += c;
  }
}

// Nothing where the bytes are no UTF-8.
std::optional<std::u32string> characters(const std::string& utf8) {
  std::u32string all;
  for (size_t i = 0; i < utf8.size();) {
    const auto byte = static_cast<unsigned char>(utf8[i++]);
    int more = byte < 0x80 ? 0 : byte >= 0xc2 && byte < 0xe0 ? 1 : byte >= 0xe0 && byte < 0xf0 ? 2 : 3;
    if ((byte >= 0x80 && byte < 0xc2) || byte > 0xf4) return std::nullopt;
    char32_t c = more == 0 ? byte : byte & (0x3f >> more);
    for (; more > 0; --more, ++i) {
      if (i == utf8.size() || (utf8[i] & 0xc0) != 0x80) return std::nullopt;
      c = c << 6 | (utf8[i] & 0x3f);
    }
    all += c;
  }
  return all;
}

}  // namespace

std::u32string canonical(const std::string& name) {
  const auto given = characters(name);
  std::u32string all;
  if (given)
    for (const char32_t c : *given) decompose(c, all);
  else
    for (const char byte : name) all += 0x110000 + static_cast<unsigned char>(byte);  // beyond all characters
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if_not(begin, all.end(), is_mark);
    std::sort(begin, end);  // the order of marks on one character tells nothing
    begin = end == all.end() ? end : end + 1;
  }
  return all;
}

fs::path Spellings::find(const fs::path& path) {
  std::error_code error;
  const auto has_one_spelling = [](unsigned char byte) { return byte < 0x80; };
  if (fs::exists(path, error) || std::ranges::all_of(path.native(), has_one_spelling)) return path;
  fs::path found;
  for (const fs::path& part : path) {
    if (fs::exists(found / part, error) || part.empty()) {
      found /= part;
      continue;
    }
    const auto [entry, is_new] = names_.try_emplace(found);
    for (fs::directory_iterator each(found.empty() ? "." : found, error), end;
         is_new && !error && each != end; each.increment(error)) {
      entry->second.emplace(canonical(each->path().filename().string()), each->path().filename());
    }
    const auto spelt = entry->second.find(canonical(part.string()));
    if (spelt == entry->second.end()) return path;
    found /= spelt->second;
  }
  return found;
}

}  // namespace bnlab
