// Names of the C API's opaque handles, so that our public headers need not include pjrt_c_api.h.
#pragma once

struct PJRT_Api;
struct PJRT_AsyncHostToDeviceTransferManager;
struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_Event;
struct PJRT_Executable;
struct PJRT_LoadedExecutable;
struct PJRT_TopologyDescription;
