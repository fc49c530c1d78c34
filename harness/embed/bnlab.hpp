// All of bnlab's library. Each header stands by itself.
#pragma once

#include <bnlab/batch_norm.hpp>
#include <bnlab/checkpoint.hpp>
#include <bnlab/data_parallel.hpp>
#include <bnlab/ranks.hpp>
