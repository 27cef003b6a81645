/* MOCK: how GPUs are connected. On NVSwitch systems the far end of every link is a switch, as on real ones. */
#include "node.h"

#include <stdio.h>
#include <string.h>

enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2, SWITCHES = 4 };
enum { P2P_OK = 0, P2P_TOPOLOGY = 3, P2P_NOT_SUPPORTED = 5, P2P_BY_NVLINK = 2, HOST_BRIDGE = 30 };
enum { FABRIC_COMPLETED = 3, FABRIC_DEGRADED_BW_FALSE = 2, INTERNAL = 0 };

/* The GPU at the far end of a link, MAX_GPUS for a switch. */
static nvmlReturn_t far_end(nvmlDevice_t device, unsigned int link, struct node *node, unsigned int *peer) {
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, node, &gpu);
    if (result)
        return result;
    if (node->switch_links) {
        *peer = MAX_GPUS;
        return link < node->switch_links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned int before = 0;
    for (*peer = 0; *peer < node->gpu_count; (*peer)++) {
        before += gpu->links[*peer];
        if (link < before)
            return NVML_SUCCESS;
    }
    return before ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active) {
    struct node node;
    unsigned int peer;
    nvmlReturn_t result = far_end(device, link, &node, &peer);
    if (!result)
        *active = 1;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    struct node node;
    unsigned int peer;
    nvmlReturn_t result = far_end(device, link, &node, &peer);
    if (!result)
        *version = node.architecture >= 10 ? 5 : node.architecture == 9 ? 4 : 3;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type) {
    struct node node;
    unsigned int peer;
    nvmlReturn_t result = far_end(device, link, &node, &peer);
    if (!result)
        *type = peer == MAX_GPUS ? REMOTE_SWITCH : REMOTE_GPU;
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
    struct node node;
    unsigned int peer;
    nvmlReturn_t result = far_end(device, link, &node, &peer);
    if (result)
        return result;
    memset(info, 0, sizeof *info);
    if (peer == MAX_GPUS)
        snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", 0xF0 + link % SWITCHES);
    else
        snprintf(info->busId, sizeof info->busId, "%.31s", node.gpus[peer].pci);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%.15s", info->busId + 4);
    sscanf(info->busId, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return NVML_SUCCESS;
}

/* Two GPUs of one node; both must answer. */
static nvmlReturn_t two(nvmlDevice_t first, nvmlDevice_t second, struct node *node, struct gpu **a, struct gpu **b) {
    nvmlReturn_t result = node_of(first, node, a);
    if (result)
        return result;
    unsigned int at = first->gpu;
    result = node_of(second, node, b);
    *a = &node->gpus[at];
    return result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second, unsigned int *level) {
    struct node node;
    struct gpu *a, *b;
    nvmlReturn_t result = two(first, second, &node, &a, &b);
    if (!result)
        *level = first->gpu == second->gpu ? INTERNAL : a->ancestors[second->gpu];
    return result;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second, unsigned int index,
                                    unsigned int *status) {
    struct node node;
    struct gpu *a, *b;
    nvmlReturn_t result = two(first, second, &node, &a, &b);
    if (result)
        return result;
    int linked = node.switch_links || a->links[second->gpu];
    if (a->mig || b->mig)
        *status = P2P_NOT_SUPPORTED;
    else if (linked || (index != P2P_BY_NVLINK && a->ancestors[second->gpu] <= HOST_BRIDGE))
        *status = P2P_OK;
    else
        *status = index == P2P_BY_NVLINK ? P2P_NOT_SUPPORTED : P2P_TOPOLOGY;
    return NVML_SUCCESS;
}

static nvmlReturn_t fabric(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    memset(info, 0, sizeof *info);
    if (!node.has_fabric)
        return NVML_SUCCESS;
    info->state = FABRIC_COMPLETED;
    info->cliqueId = node.clique;
    unsigned int at = 0, byte;
    for (const char *text = node.cluster; *text && at < sizeof info->clusterUuid; text += *text == '-' ? 1 : 2)
        if (*text != '-' && sscanf(text, "%2x", &byte) == 1)
            info->clusterUuid[at++] = (unsigned char)byte;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    return fabric(device, info);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info) {
    nvmlGpuFabricInfo_t found;
    if (info->version != VERSION_OF(nvmlGpuFabricInfo_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = fabric(device, &found);
    if (result)
        return result;
    memcpy(info->clusterUuid, found.clusterUuid, sizeof info->clusterUuid);
    info->status = found.status;
    info->cliqueId = found.cliqueId;
    info->state = found.state;
    info->healthMask = found.state == FABRIC_COMPLETED ? FABRIC_DEGRADED_BW_FALSE : 0;
    return NVML_SUCCESS;
}
