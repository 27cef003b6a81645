/* Reads the flat description, again whenever the file is replaced.
 *
 * One record a line, fields by one space, a name last so that it may hold spaces:
 *   driver VERSION | cuda N | product SMS MAJOR MINOR ARCHITECTURE MIB NAME | switch LINKS
 *   profile INDEX ID MEMORY_SLICES COMPUTE_SLICES MAX MIB SMS COPY_ENGINES START[,START...] NAME
 *   gpu INDEX NUMA MIG LOST ACTION ECC_C ECC_U ROWS_C ROWS_U PENDING FAILED PCI UUID
 *   instance GPU GI PROFILE_ID START UUID | ancestor A B LEVEL | link A B COUNT | fabric CLIQUE UUID
 *   event SEQUENCE GPU GI TYPE DATA | end
 * A file without `end`, or with a record that does not fit, is not taken; the last good one stays.
 */
#include "node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const DEFAULT_FILE = "/var/lib/superinfer-gpumock/node.flat";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node current, loading;
static struct stat seen;
static int loaded, users;
static struct handle handles[MAX_GPUS][MAX_GI_ID + 1];

static int read_profile(struct node *node, const char *rest) {
    struct profile *p = &node->profiles[node->profile_count];
    char starts[TEXT];
    if (node->profile_count == MAX_PROFILES ||
        sscanf(rest, "%u %u %u %u %u %u %u %u %95s %95[^\n]", &p->index, &p->id, &p->memory_slices,
               &p->compute_slices, &p->max, &p->memory_mib, &p->sms, &p->copy_engines, starts, p->name) != 10)
        return 0;
    for (char *at = strtok(starts, ","); at && p->start_count < 8; at = strtok(NULL, ","))
        p->starts[p->start_count++] = (unsigned int)atoi(at);
    node->profile_count++;
    return 1;
}

static int read_gpu(struct node *node, const char *rest) {
    struct gpu *g = &node->gpus[node->gpu_count];
    unsigned int index;
    if (node->gpu_count == MAX_GPUS ||
        sscanf(rest, "%u %u %u %u %u %llu %llu %u %u %u %u %95s %95s", &index, &g->numa, &g->mig, &g->lost,
               &g->action, &g->ecc_corrected, &g->ecc_uncorrected, &g->rows_corrected, &g->rows_uncorrected,
               &g->rows_pending, &g->rows_failed, g->pci, g->uuid) != 13)
        return 0;
    return index == node->gpu_count++;
}

static int read_instance(struct node *node, const char *rest) {
    struct instance found;
    unsigned int index;
    if (sscanf(rest, "%u %u %u %u %95s", &index, &found.gi, &found.profile_id, &found.start, found.uuid) != 5 ||
        index >= node->gpu_count || found.gi >= MAX_GI_ID || node->gpus[index].instance_count == MAX_INSTANCES)
        return 0;
    node->gpus[index].instances[node->gpus[index].instance_count++] = found;
    return 1;
}

static int read_pair(struct node *node, const char *rest, int links) {
    unsigned int a, b, value;
    if (sscanf(rest, "%u %u %u", &a, &b, &value) != 3 || a >= node->gpu_count || b >= node->gpu_count)
        return 0;
    if (links)
        node->gpus[a].links[b] = node->gpus[b].links[a] = value;
    else
        node->gpus[a].ancestors[b] = node->gpus[b].ancestors[a] = value;
    return 1;
}

static int read_event(struct node *node, const char *rest) {
    struct event *e = &node->events[node->event_count];
    if (node->event_count == MAX_EVENTS ||
        sscanf(rest, "%llu %u %u %llu %llu", &e->sequence, &e->gpu, &e->gi, &e->type, &e->data) != 5)
        return 0;
    node->event_count++;
    return e->gpu < node->gpu_count;
}

static int read_record(struct node *node, const char *line, int *ended) {
    const char *rest = strchr(line, ' ');
    size_t length = rest ? (size_t)(rest++ - line) : strcspn(line, "\n");
#define IS(word) (length == strlen(word) && !strncmp(line, word, length))
    if (IS("end"))
        return *ended = 1;
    if (!rest)
        return 0;
    if (IS("format"))
        return !strcmp(rest, "superinfer-gpumock-flat 1\n");
    if (IS("driver"))
        return sscanf(rest, "%95s", node->driver) == 1;
    if (IS("cuda"))
        return sscanf(rest, "%u", &node->cuda) == 1;
    if (IS("switch"))
        return sscanf(rest, "%u", &node->switch_links) == 1;
    if (IS("product"))
        return sscanf(rest, "%u %u %u %u %u %95[^\n]", &node->sms, &node->cc_major, &node->cc_minor,
                      &node->architecture, &node->memory_mib, node->product) == 6;
    if (IS("fabric"))
        return node->has_fabric = sscanf(rest, "%u %95s", &node->clique, node->cluster) == 2;
    if (IS("profile"))
        return read_profile(node, rest);
    if (IS("gpu"))
        return read_gpu(node, rest);
    if (IS("instance"))
        return read_instance(node, rest);
    if (IS("ancestor"))
        return read_pair(node, rest, 0);
    if (IS("link"))
        return read_pair(node, rest, 1);
    if (IS("event"))
        return read_event(node, rest);
#undef IS
    return 0;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* With the lock held. */
static void refresh(void) {
    const char *path = getenv("SUPERINFER_GPUMOCK_NODE");
    struct stat now;
    char line[512];
    int good = 1, ended = 0;
    if (!path || !*path)
        path = DEFAULT_FILE;
    if (stat(path, &now) != 0 || (loaded && same_file(&now, &seen)))
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    memset(&loading, 0, sizeof loading);
    while (good && !ended && fgets(line, sizeof line, file))
        good = read_record(&loading, line, &ended);
    fclose(file);
    seen = now;
    if (good && ended) {
        current = loading;
        loaded = 1;
    } else {
        fprintf(stderr, "MOCK libnvidia-ml: %s cannot be read%s%s", path, good ? ", it has no end" : ": ",
                good ? "\n" : line);
    }
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    refresh();
    for (unsigned int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (unsigned int gi = 0; gi <= MAX_GI_ID; gi++)
            handles[gpu][gi] = (struct handle){gpu, gi == MAX_GI_ID ? NO_INSTANCE : gi};
    int usable = loaded;
    users += usable;
    pthread_mutex_unlock(&lock);
    return usable ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t node_now(struct node *copy) {
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (result == NVML_SUCCESS) {
        refresh();
        *copy = current;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t node_of(nvmlDevice_t device, struct node *copy, struct gpu **gpu) {
    nvmlReturn_t result = node_now(copy);
    if (result != NVML_SUCCESS)
        return result;
    if (device < &handles[0][0] || device > &handles[MAX_GPUS - 1][MAX_GI_ID] || device->gpu >= copy->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = &copy->gpus[device->gpu];
    return (*gpu)->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

const struct instance *instance_of(nvmlDevice_t device, const struct gpu *gpu) {
    for (unsigned int at = 0; at < gpu->instance_count; at++)
        if (gpu->instances[at].gi == device->gi)
            return &gpu->instances[at];
    return NULL;
}

const struct profile *profile_by_id(const struct node *node, unsigned int id) {
    for (unsigned int at = 0; at < node->profile_count; at++)
        if (node->profiles[at].id == id)
            return &node->profiles[at];
    return NULL;
}

nvmlDevice_t handle_of(unsigned int gpu, unsigned int gi) {
    return &handles[gpu][gi == NO_INSTANCE ? MAX_GI_ID : gi];
}

nvmlReturn_t copy_text(const char *from, char *to, unsigned int size) {
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(from) + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}
