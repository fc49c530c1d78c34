// bnlab vectors: conformance cases of batch normalisation, as files that judge any implementation.
#include "harness/vectors/vectors.hpp"

#include <iostream>

#include "harness/cli/more/more.hpp"
#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

struct VectorsRequest {
  std::string out;

  void describe(Arguments& option) {
    option("--out DIR", out,
           "Folder for vectors.json and vectors.safetensors: inputs of every rank, expected outputs, "
           "gradients and running statistics in float64, with the error that each may have")
        .needed();
  }
};

int write_and_say(const VectorsRequest& request) {
  const WrittenVectors written = write_vectors(request.out);
  std::cout << written.cases << " cases in " << request.out << "/" << kVectorsFile << " and " << request.out
            << "/" << kVectorTensorsFile << ", " << written.bytes_of_both << " bytes\n";
  return exit_code::kOk;
}

const Command vectors_command(more::named("vectors"),
                              "  bnlab vectors --out vectors\n"
                              "  python3 scripts/vectors/judge.py vectors torch_whole_batch  judges PyTorch",
                              write_and_say);

}  // namespace
}  // namespace bnlab
