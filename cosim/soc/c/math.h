/* What generated C uses of <math.h>; the compiler's runtime has the functions. */
#ifndef SOC_MATH_H
#define SOC_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

double exp(double value);
double sqrt(double value);

#endif
