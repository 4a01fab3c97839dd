/* cli: the tree of tensor names: sums of bytes and parameters by segment, numbered branches of one form folded. */
#include "cli.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Levels that are printed at most, whatever a name holds. */
#define TREE_DEEPEST 64
#define TREE_DIGITS 18
/* Segments of one row at most: names of millions of segments are hostile. */
#define TREE_SEGMENTS 1000

typedef struct tree_leaf { /* one tensor, in the order of its segments */
    const char *name;
    size_t len;
    uint64_t id;
    uint64_t nbytes, nelems; /* sums over all leaves before this one */
} tree_leaf;

typedef struct tree_child { /* leaves [begin, end) that share one more segment */
    uint64_t begin, end, leader, hash, number;
    size_t len;    /* of the segment */
    size_t prefix; /* of the segment before its number; SIZE_MAX: it has none */
    bool leaf;     /* the name ends with it */
} tree_child;

typedef struct tree_children {
    tree_child *items;
    uint64_t count, capacity, ngroups;
} tree_children;

typedef struct tree_state {
    const heft_archive *archive;
    const cli_tree_options *options;
    tree_leaf *leaves; /* one more than there are tensors: the totals */
    uint64_t nleaves;
    cli_text line, branch, label;
    size_t nbytes_width, nelems_width, count_width;
    bool failed, closed;
} tree_state;

typedef struct tree_node {
    uint64_t begin, end;
    size_t at;       /* bytes of the names that are behind it */
    uint64_t copies; /* how many such nodes stand behind the row */
    bool leaf, folded;
} tree_node;

static size_t tree_segment(const char *name, size_t len, size_t at) {
    size_t n = at;
    while (n < len && name[n] != '.' && name[n] != '/') n++;
    return n - at;
}

/* Segment by segment in natural order, so that what shares segments stands together. */
static int tree_compare(const void *a, const void *b) {
    const tree_leaf *x = a, *y = b;
    size_t least = x->len < y->len ? x->len : y->len, same = 0;
    while (same < least && x->name[same] == y->name[same]) same++;
    if (same == least) return x->len < y->len ? -1 : x->len > y->len;
    while (same > 0 && x->name[same - 1] != '.' && x->name[same - 1] != '/') same--;
    size_t nx = tree_segment(x->name, x->len, same), ny = tree_segment(y->name, y->len, same);
    int order = heft__natural_compare(x->name + same, nx, y->name + same, ny);
    return order ? order : heft__bytes_compare(x->name + same, x->len - same, y->name + same, y->len - same);
}

/* ---- the children of a range ------------------------------------------------------------------------------------- */

/* "layers_12" has the number 12 behind the prefix "layers_". */
static void tree_number(const char *segment, tree_child *child) {
    size_t digits = child->len;
    child->prefix = SIZE_MAX;
    while (digits > 0 && segment[digits - 1] >= '0' && segment[digits - 1] <= '9') digits--;
    size_t n = child->len - digits;
    if (n == 0 || n > TREE_DIGITS || (n > 1 && segment[digits] == '0')) return;
    if (digits && segment[digits - 1] != '_' && segment[digits - 1] != '-') return;
    child->prefix = digits;
    child->number = 0;
    for (size_t i = digits; i < child->len; i++) child->number = child->number * 10 + (uint64_t)(segment[i] - '0');
}

static uint64_t tree_mix(uint64_t hash, const void *data, size_t len) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

/* A number for the form of a numbered child: prefix, and names, dtypes and sizes below it. */
static uint64_t tree_form(const tree_state *s, const tree_child *child, size_t at) {
    uint64_t hash = tree_mix(0xCBF29CE484222325u, s->leaves[child->begin].name + at, child->prefix);
    for (uint64_t i = child->begin; i < child->end; i++) {
        const tree_leaf *leaf = &s->leaves[i];
        uint64_t nbytes = leaf[1].nbytes - leaf->nbytes;
        hash = tree_mix(hash, leaf->name + at + child->len, leaf->len - at - child->len);
        hash = tree_mix(hash, &nbytes, sizeof nbytes);
    }
    return hash + child->leaf;
}

static bool tree_same(const tree_state *s, const tree_child *a, const tree_child *b, size_t at) {
    if (a->prefix == SIZE_MAX || a->prefix != b->prefix || a->leaf != b->leaf) return false;
    if (a->end - a->begin != b->end - b->begin) return false;
    if (memcmp(s->leaves[a->begin].name + at, s->leaves[b->begin].name + at, a->prefix) != 0) return false;
    for (uint64_t i = 0; i < a->end - a->begin; i++) {
        const tree_leaf *x = &s->leaves[a->begin + i], *y = &s->leaves[b->begin + i];
        size_t from_x = at + a->len, from_y = at + b->len;
        if (x->len - from_x != y->len - from_y || memcmp(x->name + from_x, y->name + from_y, x->len - from_x) != 0)
            return false;
        heft_tensor t, u;
        if (heft_archive_get(s->archive, x->id, &t, NULL) != HEFT_OK) return false;
        if (heft_archive_get(s->archive, y->id, &u, NULL) != HEFT_OK) return false;
        if (t.dtype != u.dtype || t.rank != u.rank || t.nbytes != u.nbytes) return false;
        if (t.rank && memcmp(t.shape, u.shape, t.rank * sizeof *t.shape) != 0) return false;
    }
    return true;
}

static int tree_by_hash(const void *a, const void *b) {
    const tree_child *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int tree_by_leader(const void *a, const void *b) {
    const tree_child *x = a, *y = b;
    if (x->leader != y->leader) return x->leader < y->leader ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Puts children of one form side by side. */
static void tree_group(const tree_state *s, tree_children *c, size_t at) {
    for (uint64_t i = 0; i < c->count; i++) {
        tree_child *child = &c->items[i];
        child->hash = child->prefix != SIZE_MAX ? tree_form(s, child, at) : child->begin;
    }
    qsort(c->items, (size_t)c->count, sizeof *c->items, tree_by_hash);
    for (uint64_t i = 0, leader = 0; i < c->count; i++) {
        const tree_child *first = &c->items[leader];
        if (i == 0 || c->items[i].hash != first->hash || !tree_same(s, first, &c->items[i], at)) leader = i;
        c->items[i].leader = c->items[leader].begin;
    }
    qsort(c->items, (size_t)c->count, sizeof *c->items, tree_by_leader);
}

static bool tree_split(tree_state *s, const tree_node *node, tree_children *c) {
    bool numbered = false;
    *c = (tree_children){0};
    for (uint64_t i = node->begin; i < node->end;) {
        const tree_leaf *first = &s->leaves[i];
        tree_child child = {.begin = i, .leader = i, .len = tree_segment(first->name, first->len, node->at)};
        child.leaf = node->at + child.len == first->len;
        tree_number(first->name + node->at, &child);
        numbered = numbered || child.prefix != SIZE_MAX;
        for (i++; i < node->end && !child.leaf; i++) {
            const tree_leaf *leaf = &s->leaves[i];
            /* The separator is compared too: a.b and a/b are different branches. */
            if (leaf->len <= node->at + child.len ||
                memcmp(leaf->name + node->at, first->name + node->at, child.len + 1) != 0)
                break;
        }
        child.end = i;
        if (!heft__grow(&heft__default_allocator, (void **)&c->items, &c->capacity, c->count, sizeof child, 8)) return false;
        c->items[c->count++] = child;
    }
    if (numbered && !s->options->expand) tree_group(s, c, node->at);
    for (uint64_t i = 0; i < c->count; i++)
        if (i == 0 || c->items[i].leader != c->items[i - 1].leader) c->ngroups++;
    return true;
}

static void tree_children_free(tree_children *c) {
    heft__free(&heft__default_allocator, c->items, c->capacity * sizeof *c->items);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void tree_right(cli_text *line, const cli_text *number, size_t width) {
    cli_text_repeat(line, " ", number->len < width ? width - number->len : 0);
    cli_text_put(line, number->data, number->len);
    cli_text_put(line, "  ", 2);
}

static void tree_numbers(tree_state *s, const tree_node *node) {
    const tree_leaf *first = &s->leaves[node->begin], *last = &s->leaves[node->end];
    cli_text number = {0};
    uint64_t nbytes = (last->nbytes - first->nbytes) * node->copies;
    uint64_t nelems = (last->nelems - first->nelems) * node->copies;
    if (s->options->bytes) cli_text_u64(&number, nbytes);
    else cli_text_size(&number, nbytes);
    tree_right(&s->line, &number, s->nbytes_width);
    number.len = 0;
    if (s->options->bytes) cli_text_u64(&number, nelems);
    else cli_text_count(&number, nelems);
    tree_right(&s->line, &number, s->nelems_width);
    number.len = 0;
    cli_text_u64(&number, (node->end - node->begin) * node->copies);
    tree_right(&s->line, &number, s->count_width);
    cli_text_free(&number);
}

static void tree_row(tree_state *s, const tree_node *node, const char *joint) {
    cli_text name = {0};
    tree_numbers(s, node);
    cli_text_styled(&s->line, CLI_DIM, s->branch.data, s->branch.len);
    cli_text_styled(&s->line, CLI_DIM, joint, strlen(joint));
    if (s->label.len) cli_text_put(&name, s->label.data, s->label.len);
    else cli_text_name(&name, "", 0);
    if (node->leaf) {
        heft_tensor t;
        if (heft_archive_get(s->archive, s->leaves[node->begin].id, &t, NULL) == HEFT_OK) {
            cli_text_format(&name, "  %s ", heft_dtype_name(t.dtype));
            cli_text_shape(&name, t.rank, t.shape);
        }
        if (node->copies > 1) cli_text_format(&name, " \xC3\x97%llu", (unsigned long long)node->copies);
    } else if (node->folded) {
        cli_text_format(&name, " \xC3\x97%llu, identical", (unsigned long long)node->copies);
    }
    size_t used = s->nbytes_width + s->nelems_width + s->count_width + 6 + cli_columns(s->branch.data, s->branch.len) +
                  cli_columns(joint, strlen(joint));
    size_t width = cli_screen_get()->width;
    if (width > used + 8 && cli_columns(name.data, name.len) > width - used) {
        name.len = cli_columns_fit(name.data, name.len, width - used - 1);
        cli_text_str(&name, "\xE2\x80\xA6");
    }
    cli_text_styled(&s->line, node->leaf ? CLI_PLAIN : CLI_BOLD, name.data, name.len);
    cli_text_free(&name);
    if (!cli_print(&s->line)) s->closed = true;
}

/* Moves the node to the first child of a group of `count` and appends the group's name to the label. */
static void tree_enter(tree_state *s, tree_node *node, const tree_child *group, uint64_t count) {
    const char *segment = s->leaves[group->begin].name + node->at;
    if (count > 1) {
        cli_text_escaped(&s->label, segment, group->prefix);
        cli_text_number_set(&s->label, &group->number, sizeof *group, count);
    } else {
        cli_text_escaped(&s->label, segment, group->len);
    }
    node->begin = group->begin;
    node->end = group->end;
    node->leaf = group->leaf;
    node->copies *= count;
    node->folded = node->folded || count > 1;
    node->at += group->len;
    if (!group->leaf) node->at++; /* the separator, which is shown where the label goes on */
}

/* The rest of the only tensor's name; of several what they have in common so far must do. */
static void tree_rest(tree_state *s, tree_node *node) {
    const tree_leaf *leaf = &s->leaves[node->begin];
    node->leaf = node->end - node->begin == 1;
    if (node->leaf) cli_text_escaped(&s->label, leaf->name + node->at - 1, leaf->len - node->at + 1);
}

/* Goes down as long as there is one way only, so that "encoder.layer.{0-5}" is one row. Leaves the children in *c. */
static void tree_descend(tree_state *s, tree_node *node, tree_children *c) {
    *c = (tree_children){0};
    for (uint32_t segments = 0; !node->leaf && !s->failed; segments++) {
        if (node->at && (node->end - node->begin == 1 || segments == TREE_SEGMENTS)) {
            tree_rest(s, node);
            return;
        }
        s->failed = !tree_split(s, node, c);
        if (s->failed || c->ngroups != 1 || node->at == 0) return;
        cli_text_put(&s->label, s->leaves[node->begin].name + node->at - 1, 1);
        tree_enter(s, node, &c->items[0], c->count);
        tree_children_free(c);
        *c = (tree_children){0};
    }
}

/* Prints a node's row, then what is below it. At most TREE_DEEPEST levels. */
static void tree_walk(tree_state *s, tree_node node, const char *joint, const char *below, uint64_t level) {
    tree_children c;
    tree_descend(s, &node, &c);
    tree_row(s, &node, joint);
    bool deeper = !node.leaf && level < TREE_DEEPEST && (!s->options->depth || level < s->options->depth);
    size_t branch = s->branch.len;
    cli_text_str(&s->branch, below);
    for (uint64_t i = 0, j; deeper && i < c.count && !s->failed && !s->closed; i = j) {
        for (j = i + 1; j < c.count && c.items[j].leader == c.items[i].leader;) j++;
        tree_node child = node;
        child.folded = false;
        s->label.len = 0;
        tree_enter(s, &child, &c.items[i], j - i);
        bool last = j == c.count;
        tree_walk(s, child, last ? "\xE2\x94\x94\xE2\x94\x80 " : "\xE2\x94\x9C\xE2\x94\x80 ",
                  last ? "   " : "\xE2\x94\x82  ", level + 1);
    }
    s->branch.len = branch;
    tree_children_free(&c);
}

static void tree_root(tree_state *s, const char *root) {
    cli_text_escaped(&s->label, root, strlen(root));
    tree_node node = {.end = s->nleaves, .copies = 1};
    tree_walk(s, node, "", "", 0);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool tree_fill(tree_state *s, const uint64_t *ids) {
    bool sorted = true;
    uint64_t nbytes = 0, nelems = 0;
    for (uint64_t i = 0; i < s->nleaves; i++) {
        heft_tensor t;
        if (heft_archive_get(s->archive, ids[i], &t, NULL) != HEFT_OK) return false;
        s->leaves[i] = (tree_leaf){.name = t.name, .len = t.name_len, .id = t.id};
        if (i && sorted) sorted = tree_compare(&s->leaves[i - 1], &s->leaves[i]) <= 0;
    }
    if (!sorted) qsort(s->leaves, (size_t)s->nleaves, sizeof *s->leaves, tree_compare);
    for (uint64_t i = 0; i < s->nleaves; i++) {
        heft_tensor t;
        if (heft_archive_get(s->archive, s->leaves[i].id, &t, NULL) != HEFT_OK) return false;
        s->leaves[i].nbytes = nbytes;
        s->leaves[i].nelems = nelems;
        nbytes += t.nbytes;
        nelems += t.nelems;
    }
    s->leaves[s->nleaves] = (tree_leaf){.nbytes = nbytes, .nelems = nelems};
    return true;
}

/* Sums are largest at the root, but a short form can be wider further down: "1023.9 MiB". */
static void tree_widths(tree_state *s) {
    cli_text number = {0};
    cli_text_u64(&number, s->leaves[s->nleaves].nbytes);
    s->nbytes_width = s->options->bytes ? number.len : 10;
    number.len = 0;
    cli_text_u64(&number, s->leaves[s->nleaves].nelems);
    s->nelems_width = s->options->bytes ? number.len : 7;
    number.len = 0;
    cli_text_u64(&number, s->nleaves);
    s->count_width = number.len;
    cli_text_free(&number);
}

heft_status cli_tree_print(const heft_archive *archive, const uint64_t *ids, uint64_t nids, const char *root,
                           const cli_tree_options *options, heft_error *err) {
    tree_state s = {.archive = archive, .options = options, .nleaves = nids};
    uint64_t nbytes = (nids + 1) * sizeof *s.leaves;
    s.leaves = heft__alloc(&heft__default_allocator, nbytes);
    if (!s.leaves || !tree_fill(&s, ids)) return heft__fail_memory(err, nbytes);
    tree_widths(&s);
    tree_root(&s, root);
    heft__free(&heft__default_allocator, s.leaves, nbytes);
    cli_text_free(&s.line);
    cli_text_free(&s.branch);
    cli_text_free(&s.label);
    return s.failed ? heft__fail_memory(err, nbytes) : HEFT_OK;
}
