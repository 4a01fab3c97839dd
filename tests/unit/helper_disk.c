/* A pretended disk: files and folders as the program sees them and as they are durable, and all ways in which they may be found. */
#include "helper_disk.h"
#include "helper_target.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES = 96, NAMES = 96, PENDING = 64, BYTES = 16384, FDS = 1024, TOP = 0, NOWHERE = -1 };

typedef struct disk_node {
    bool folder;
    uint8_t bytes[BYTES], durable[BYTES];
    size_t size, durable_size;
} disk_node;

typedef struct disk_name {
    int parent, node; /* node NOWHERE: no such name any more */
    char name[256];
} disk_name;

typedef struct disk_names {
    disk_name all[NAMES];
    int n;
} disk_names;

typedef struct disk_change {
    int parent, node;
    char from[256], to[256]; /* `from` empty: a new name `to`; `to` empty: `from` is removed */
} disk_change;

static disk_node nodes[NODES];
static int nnodes;
static disk_names durable;
static disk_change pending[PENDING];
static int npending;
static int node_of_fd[FDS];
static char disk_top[400];
static bool recording, disk_torn;
static void (*disk_look)(const char *cut);

/* ---- names ---- */

static disk_name *find_name(disk_names *names, int parent, const char *name) {
    for (int i = 0; i < names->n; i++)
        if (names->all[i].node != NOWHERE && names->all[i].parent == parent && strcmp(names->all[i].name, name) == 0)
            return &names->all[i];
    return NULL;
}

static void set_name(disk_names *names, int parent, const char *name, int node) {
    disk_name *at = find_name(names, parent, name);
    for (int i = 0; !at && i < names->n; i++)
        if (names->all[i].node == NOWHERE) at = &names->all[i];
    if (!at) at = &names->all[names->n++];
    assert_true(names->n < NAMES);
    at->parent = parent;
    at->node = node;
    snprintf(at->name, sizeof at->name, "%s", name);
}

static void apply(disk_names *names, const disk_change *change) {
    int node = change->node;
    if (change->from[0]) {
        disk_name *from = find_name(names, change->parent, change->from);
        if (!from) return;
        node = from->node;
        from->node = NOWHERE;
    }
    if (change->to[0]) set_name(names, change->parent, change->to, node);
}

/* What a name leads to for the running program. */
static int seen(int parent, const char *name) {
    static disk_names view;
    view = durable;
    for (int i = 0; i < npending; i++) apply(&view, &pending[i]);
    disk_name *found = find_name(&view, parent, name);
    return found ? found->node : NOWHERE;
}

static void pend(int parent, const char *from, const char *to, int node) {
    assert_true(npending < PENDING);
    disk_change *change = &pending[npending++];
    change->parent = parent;
    change->node = node;
    snprintf(change->from, sizeof change->from, "%s", from);
    snprintf(change->to, sizeof change->to, "%s", to);
}

static int new_node(bool folder) {
    assert_true(nnodes < NODES);
    memset(&nodes[nnodes], 0, sizeof nodes[nnodes]);
    nodes[nnodes].folder = folder;
    return nnodes++;
}

/* ---- calls ---- */

/* The folder that a path lies in, and its last name. NOWHERE: not on this disk. */
static int locate(int at, const char *path, const char **last) {
    int node = path[0] == '/' ? TOP : at >= 0 && at < FDS ? node_of_fd[at] : NOWHERE;
    size_t top = strlen(disk_top);
    if (path[0] == '/') {
        if (strncmp(path, disk_top, top) != 0 || (path[top] && path[top] != '/')) return NOWHERE;
        path += top;
        while (*path == '/') path++;
    }
    for (const char *slash; node != NOWHERE && (slash = strchr(path, '/')); path = slash + 1) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        node = seen(node, name);
    }
    *last = path;
    return node;
}

static void note_opened(const trap_event *e) {
    const char *name;
    assert_true(e->fd < FDS);
    int parent = locate(e->at, e->from, &name), node = parent;
    if (parent != NOWHERE && *name && strcmp(name, ".") != 0 && (node = seen(parent, name)) == NOWHERE)
        pend(parent, "", name, node = new_node(false));
    node_of_fd[e->fd] = node;
}

static void note_bytes(disk_node *node, const trap_event *e) {
    assert_true(e->offset + e->nbytes <= BYTES);
    if (e->data) memcpy(node->bytes + e->offset, e->data, e->nbytes);
    else assert_int_equal(pread(e->fd, node->bytes + e->offset, e->nbytes, (off_t)e->offset), e->nbytes);
    if (e->offset + e->nbytes > node->size) node->size = e->offset + e->nbytes;
}

static void note_sync(int node) {
    if (!nodes[node].folder) {
        memcpy(nodes[node].durable, nodes[node].bytes, BYTES);
        nodes[node].durable_size = nodes[node].size;
        return;
    }
    int kept = 0;
    for (int i = 0; i < npending; i++)
        if (pending[i].parent == node) apply(&durable, &pending[i]);
        else pending[kept++] = pending[i];
    npending = kept;
}

/* False: nothing has changed. */
static bool note(const trap_event *e) {
    int node = e->fd >= 0 && e->fd < FDS ? node_of_fd[e->fd] : NOWHERE;
    const char *name;
    if (strcmp(e->name, "opened") == 0) {
        note_opened(e);
        return true;
    }
    if (strcmp(e->name, "mkdir") == 0) {
        int parent = locate(e->fd, e->from, &name);
        if (parent != NOWHERE && seen(parent, name) == NOWHERE) pend(parent, "", name, new_node(true));
        return true;
    }
    if (node == NOWHERE) return false;
    assert_string_not_equal(e->name, "link");
    if (strcmp(e->name, "reserve") == 0 || strcmp(e->name, "resize") == 0) {
        assert_true(e->offset + e->nbytes <= BYTES);
        nodes[node].size = e->offset + e->nbytes;
    } else if (strcmp(e->name, "pwrite") == 0 || strcmp(e->name, "copied") == 0) note_bytes(&nodes[node], e);
    else if (strcmp(e->name, "fsync") == 0) note_sync(node);
    else if (strcmp(e->name, "rename") == 0) pend(node, e->from, e->to, NOWHERE);
    else if (strcmp(e->name, "unlink") == 0 || strcmp(e->name, "rmdir") == 0) {
        if (seen(node, e->from) == NOWHERE) return false;
        pend(node, e->from, "", NOWHERE);
    } else {
        if (strcmp(e->name, "close") == 0) node_of_fd[e->fd] = NOWHERE;
        return false;
    }
    return true;
}

/* ---- after the cut ---- */

void disk_empty(const char *path) {
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(d), e->d_name, 0) == 0) continue;
        char inner[700];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        disk_empty(inner);
        assert_int_equal(rmdir(inner), 0);
    }
    closedir(d);
}

static void write_file(int at, const char *name, const disk_node *node, unsigned lucky) {
    uint8_t bytes[BYTES];
    size_t size = lucky ? node->size : node->durable_size;
    for (unsigned i = 0; i < BYTES; i += DISK_SECTOR) {
        unsigned sector = i / DISK_SECTOR < DISK_SECTORS ? i / DISK_SECTOR : DISK_SECTORS;
        memcpy(bytes + i, (lucky >> sector & 1 ? node->bytes : node->durable) + i, DISK_SECTOR);
    }
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

static void lay_out(int at, const disk_names *names, int parent, unsigned lucky) {
    for (int i = 0; i < names->n; i++) {
        const disk_name *name = &names->all[i];
        if (name->node == NOWHERE || name->parent != parent) continue;
        const disk_node *node = &nodes[name->node];
        if (!node->folder) {
            write_file(at, name->name, node, lucky);
            continue;
        }
        assert_int_equal(mkdirat(at, name->name, 0755), 0);
        int inner = openat(at, name->name, O_RDONLY | O_DIRECTORY);
        assert_true(inner >= 0);
        lay_out(inner, names, name->node, lucky);
        close(inner);
    }
}

/* The first `applied` pending changes of names are there, but not the one before `lost` (0: all of them); bytes that were not
 * synced are there in the sectors of `lucky`. */
static void lay_out_and_look(void (*look)(const char *cut), int applied, int lost, unsigned lucky) {
    static disk_names after;
    char folder[400];
    snprintf(folder, sizeof folder, "%s", test_path("cut"));
    after = durable;
    for (int i = 0; i < applied; i++)
        if (i + 1 != lost) apply(&after, &pending[i]);
    int at = open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(at >= 0);
    lay_out(at, &after, TOP, lucky);
    close(at);
    look(folder);
    disk_empty(folder);
}

static void on_event(const trap_event *event) {
    if (!recording) return;
    recording = false; /* what is looked at makes calls too, which still sync nothing */
    if (note(event))
        for (int applied = 0; applied <= npending; applied++) {
            for (unsigned lucky = 1; disk_torn && lucky < 1u << DISK_SECTORS; lucky++)
                lay_out_and_look(disk_look, applied, 0, lucky);
            lay_out_and_look(disk_look, applied, 0, 0);
            for (int lost = 0; lost <= (test_count(20) < 20 ? 0 : applied); lost++)
                lay_out_and_look(disk_look, applied, lost, ~0u);
        }
    recording = true;
}

/* ---- from begin to end ---- */

static void load(const char *path, int parent) {
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char inner[700];
        struct stat st;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        assert_int_equal(stat(inner, &st), 0);
        int number = new_node(S_ISDIR(st.st_mode));
        set_name(&durable, parent, e->d_name, number);
        if (S_ISDIR(st.st_mode)) {
            load(inner, number);
            continue;
        }
        size_t n;
        uint8_t *bytes = test_slurp(inner, &n);
        assert_true(n <= BYTES);
        memcpy(nodes[number].bytes, bytes, n);
        memcpy(nodes[number].durable, bytes, n);
        nodes[number].size = nodes[number].durable_size = n;
        free(bytes);
    }
    closedir(d);
}

void disk_begin(void (*look)(const char *cut), bool torn) {
    snprintf(disk_top, sizeof disk_top, "%s", test_mkdir("disk"));
    disk_empty(test_mkdir("cut"));
    nnodes = npending = durable.n = 0;
    memset(node_of_fd, -1, sizeof node_of_fd);
    new_node(true);
    load(disk_top, TOP);
    disk_look = look;
    disk_torn = torn;
    trap_log = on_event;
    trap_begin(&(trap_plan){0});
    recording = true;
}

void disk_end(void (*look)(const char *cut)) {
    recording = false;
    trap_end();
    trap_log = NULL;
    if (look) lay_out_and_look(look, 0, 0, 0);
}
