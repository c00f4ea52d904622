/* weights.c - see weights.h. */
#include "weights.h"

#include <math.h>

#include "../train/scenario.h"

double weights_difference(const uni_value *a, const uni_value *b)
{
    double worst = 0;
    const uni_value *wa = uni_dict_get(a, "weights"), *wb = uni_dict_get(b, "weights");
    CHECK(uni_list_size(wa) > 0 && uni_list_size(wa) == uni_list_size(wb));
    for (size_t i = 0; i < uni_list_size(wa); i++) {
        uni_array *x = uni_value_as_array(uni_list_get(wa, i)),
                  *y = uni_value_as_array(uni_list_get(wb, i));
        CHECK(x && y && uni_array_count(x) == uni_array_count(y));
        for (size_t j = 0; j < uni_array_count(x); j++)
            worst = fmax(worst, fabs((double)((float *)uni_array_data(x))[j] -
                                     (double)((float *)uni_array_data(y))[j]));
    }
    return worst;
}
