/*
 * svhn_mat.h - SVHN's own files (train_32x32.mat): MATLAB 5 with zlib, of which exactly what these
 * files have is read: X, uint8 (32, 32, 3, n), and y, numbers (n, 1) in which 10 stands for the
 * digit 0. Everything in the file is checked before it is used.
 */
#ifndef EXAMPLES_ENGINE_SVHN_MAT_H
#define EXAMPLES_ENGINE_SVHN_MAT_H

#include "common.h"

/* Every fifth image is held out in `test`. limit: images at most; 0: all. */
UNI_MUST_USE int svhn_load_mat(image_set *train, image_set *test, const char *path, int64_t limit,
                               uni_error *err);

#endif
