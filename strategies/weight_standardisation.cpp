// weight_standardisation: the weight of every convolution that a norm follows is standardised per output
// channel, and the norm sites are those of another strategy (Qiao et al. 2019). With group_norm, the default,
// nothing depends on the batch or is exchanged: the paper's rival of synchronising at one image per device.
// Its public code divides by the unbiased deviation plus eps, where the paper has eps under the root; option
// `form` has both.
#include "harness/support/error.hpp"
#include "strategies/engine/standardised_convolution.hpp"
#include "strategies/engine/wrapper.hpp"

namespace bnlab::weight_standardisation {

BNLAB_CHOICE(Form, paper, code)

class WeightStandardisation : public Wrapper {
 public:
  struct Options : WrapperOptions {
    Options() { base = "group_norm"; }

    Form form = Form::paper;
    double eps = 1e-5;

    void describe(OptionVisitor& option) {
      option("form", form,
             "eps under the root beside the biased variance, or added to the unbiased deviation as the "
             "authors' code has it");
      option("eps", eps, "of the convolutions' weights").above(0);
      WrapperOptions::describe(option);
    }

    void check(const RunOutline&, Problems& problems) const {
      if (facts_of<StrategyFacts>(base).makes_convolutions(base)) {
        problems.add("base", "expected a strategy that leaves convolutions as they are; with these options " +
                                 base.at("name").get<std::string>() + " makes its own");
      }
    }

    bool has_running_statistics() const { return facts_of<StrategyFacts>(base).has_running_statistics(base); }
    bool makes_convolutions() const { return true; }
  };

  WeightStandardisation(const Options& options, const Context& context)
      : Wrapper(options, context), options_(options) {
    if (Wrapper::normalises_weights())
      throw Error(Error::Kind::refused, "weight_standardisation: the base normalises weights itself");
  }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    if (!site.norm_follows) return Wrapper::conv(site);
    const auto options = at::TensorOptions().device(context_.device).dtype(context_.dtype);
    return std::make_shared<StandardisedConvolution>(
        site, initial_weights(site, context_.seed).to(options),
        options_.form == Form::paper ? WeightRule::paper : WeightRule::code, options_.eps);
  }

  bool normalises_weights() const override { return true; }

 private:
  Options options_;
};

const Registered<Strategy> entry{
    {.name = "weight_standardisation",
     .summary = "convolutions with standardised weights, under the norm sites of another strategy",
     .source = "Qiao et al. 2019 (with group_norm; BiT and many since)",
     .formula = "w = (v - m) / sqrt(var + eps) per output channel, m and var (biased) over its filter\n"
                "form code: w = (v - m) / (std + eps), std unbiased, as the authors' PyTorch code has it\n"
                "y = conv(x, w), for every convolution that a norm follows; norm sites as the base",
     .exchanges = "as the base: none with group_norm",
     .use = "as the rival of synchronising where a device holds one or two images",
     .limits = "the scale of the weights has no effect, so weight decay acts as a learning rate; measured "
               "results disagree on what it adds to group_norm"},
    make<Strategy, WeightStandardisation>};

}  // namespace bnlab::weight_standardisation
