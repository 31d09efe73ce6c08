/* Floats by their bits, for kernels that compute in integers. */
#ifndef DOVETAIL_FLOAT_H
#define DOVETAIL_FLOAT_H

#include <stdint.h>

#define DOVETAIL_MANTISSA 23 /* bits of a float below its exponent */

union dovetail_float {
    float value;
    uint32_t bits;
};

#endif
