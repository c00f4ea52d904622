/* search.c - grid and random search, and choosing a searcher by its name. Owner's thread. */
#include "tune/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/shared.h"

int uni__check_keys(const char *what, const uni_value *options, const char *const *known,
                    uni_error *err)
{
    char list[400] = "";
    for (const char *const *name = known; *name; name++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "",
                 *name);
    for (size_t i = 0; i < uni_dict_size(options); i++) {
        const char *key = uni_dict_key_at(options, i);
        const char *const *name = known;
        while (*name && strcmp(*name, key) != 0)
            name++;
        if (!*name && strcmp(key, "type") != 0)
            return uni_error_set(err, UNI_EINVAL, "%s has no option \"%s\"; there are: %s", what,
                                 key, list[0] ? list : "none");
    }
    return 0;
}

typedef struct variants {
    uni__search_setting setting;
} variants;

static int variants_ask(void *self, int64_t trial, uni_value **config, uni_error *err)
{
    variants *search = self;
    if (search->setting.total >= 0 && trial >= search->setting.total)
        return UNI_EEND;
    int status = uni__tune_space_config(search->setting.space, search->setting.samplers,
                                        search->setting.seed, trial, config, err);
    return status < 0 ? status : 1;
}

static int variants_tell(void *self, int64_t trial, const uni_value *config, double value,
                         uni_error *err)
{
    return 0;
}

static int variants_new(uni__searcher *out, const uni__search_setting *setting, uni_error *err)
{
    static const char *const none[] = { NULL };
    UNI_TRY(uni__check_keys("the random searcher", setting->options, none, err));
    variants *search = malloc(sizeof *search);
    if (!search)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a searcher");
    search->setting = *setting;
    *out = (uni__searcher){
        .methods = { .name = "random", .self = search, .ask = variants_ask, .tell = variants_tell },
        .free = free
    };
    return 0;
}

int uni__searcher_new(uni__searcher *out, const uni__search_setting *setting, uni_error *err)
{
    const uni_value *options = setting->options;
    const char *type = uni_value_type_of(options) == UNI_TYPE_STRING
                           ? uni_value_as_string(options, "")
                           : uni_dict_get_string(options, "type", "random");
    if (strcmp(type, "random") == 0 || strcmp(type, "grid") == 0)
        return variants_new(out, setting, err);
    if (strcmp(type, "tpe") == 0)
        return uni__tpe_new(out, setting, err);
    if (strcmp(type, "own") == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "this experiment has a searcher of its program: resume it there, with "
                             "own_searcher");
    return uni_error_set(err, UNI_EINVAL, "there is no searcher \"%s\"; there are: random, tpe",
                         type);
}

void uni__searcher_clear(uni__searcher *searcher)
{
    if (searcher->free)
        searcher->free(searcher->methods.self);
    *searcher = (uni__searcher){ 0 };
}
