/* A described node in memory, read from the flat file that superinfer_gpumock writes. */
#ifndef SUPERINFER_NODE_H
#define SUPERINFER_NODE_H

#include "nvml_types.h"

#define MAX_GPUS 16
#define MAX_PROFILES 16
#define MAX_INSTANCES 8
#define MAX_EVENTS 256
#define MAX_GI_ID 64
#define TEXT 96

struct profile {
    unsigned int index, id, memory_slices, compute_slices, max, memory_mib, sms, copy_engines;
    unsigned int starts[8], start_count;
    char name[TEXT];
};

struct instance {
    unsigned int gi, profile_id, start;
    char uuid[TEXT];
};

struct gpu {
    unsigned int numa, mig, lost, action;
    unsigned long long ecc_corrected, ecc_uncorrected;
    unsigned int rows_corrected, rows_uncorrected, rows_pending, rows_failed;
    char pci[TEXT], uuid[TEXT];
    struct instance instances[MAX_INSTANCES];
    unsigned int instance_count;
    unsigned int links[MAX_GPUS], ancestors[MAX_GPUS];
};

struct event {
    unsigned long long sequence, type, data;
    unsigned int gpu, gi;
};

struct node {
    char driver[TEXT], product[TEXT], cluster[TEXT];
    unsigned int cuda, sms, cc_major, cc_minor, architecture, memory_mib;
    unsigned int switch_links, has_fabric, clique;
    struct profile profiles[MAX_PROFILES];
    unsigned int profile_count;
    struct gpu gpus[MAX_GPUS];
    unsigned int gpu_count;
    struct event events[MAX_EVENTS];
    unsigned int event_count;
};

/* Copies the node as it is described now; NVML_SUCCESS, UNINITIALIZED or DRIVER_NOT_LOADED. Any thread. */
nvmlReturn_t node_now(struct node *copy);

/* As node_now, and fails where `device` is none of it or is off the bus. */
nvmlReturn_t node_of(nvmlDevice_t device, struct node *copy, struct gpu **gpu);

/* The MIG instance behind a handle; NULL for a whole GPU or one that is gone. */
const struct instance *instance_of(nvmlDevice_t device, const struct gpu *gpu);
const struct profile *profile_by_id(const struct node *node, unsigned int id);
nvmlDevice_t handle_of(unsigned int gpu, unsigned int gi);
nvmlReturn_t copy_text(const char *from, char *to, unsigned int size);

#endif
