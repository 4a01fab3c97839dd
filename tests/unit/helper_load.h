/* Checkpoints for tests of loads: folders of shards with tensors of all sizes, whose bytes follow from their names. */
#ifndef HEFT_TESTS_HELPER_LOAD_H
#define HEFT_TESTS_HELPER_LOAD_H

#include "helper.h"

/* Writes a set of `nshards` files with `ntensors` each under test_dir()/name and returns its path. Tensors are called
 * "sN.layers.M.weight" and the like; every 7th has no elements, every 11th is F8_E4M3, one in each shard has `large`
 * bytes. */
const char *load_set(const char *name, uint32_t nshards, uint32_t ntensors, uint64_t large);
/* Opens it. */
heft_archive *load_open(const char *path);
/* The bytes of tensor `id` of an archive are these: read on their own and compared. */
void assert_tensor(const heft_archive *archive, uint64_t id, const void *data, uint64_t nbytes);
/* The same of a view. */
void assert_view(const heft_view *view, const void *data, uint64_t nbytes);
/* All of them, and nothing else, in file order. */
void assert_weights(const heft_archive *archive, const heft_weights *weights);

#endif
