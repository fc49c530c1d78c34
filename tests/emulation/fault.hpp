// Which of the faults that plant_faults.py has planted into the kernels is switched on; 0: none.
#pragma once

namespace emulation {
inline int fault = 0;
}
