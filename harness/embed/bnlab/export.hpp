// What programs see of bnlab's shared library. Its other names are hidden, so that they meet no name of the
// program or of its other libraries.
#pragma once

#define BNLAB_API __attribute__((visibility("default")))
