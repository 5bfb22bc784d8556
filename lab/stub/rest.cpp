// Functions of CUDA's runtime library that CuPy links with and hforest's tests do not call. They take no notice of their
// arguments, so CUDA's headers, which declare these, are not included.
enum { NOT_SUPPORTED = 801 };
#define R(name) \
    extern "C" int name() { return NOT_SUPPORTED; }
R(cudaCreateSurfaceObject) R(cudaCreateTextureObject) R(cudaDestroySurfaceObject) R(cudaDestroyTextureObject)
R(cudaDeviceDisablePeerAccess) R(cudaDeviceEnablePeerAccess) R(cudaDeviceGetByPCIBusId)
R(cudaDeviceGetDefaultMemPool) R(cudaDeviceGetLimit) R(cudaDeviceGetMemPool) R(cudaDeviceSetLimit)
R(cudaDeviceSetMemPool) R(cudaFreeArray) R(cudaFreeAsync) R(cudaGetChannelDesc) R(cudaGetTextureObjectResourceDesc)
R(cudaGetTextureObjectTextureDesc) R(cudaGraphDebugDotPrint) R(cudaGraphDestroy) R(cudaGraphExecDestroy)
R(cudaGraphInstantiate) R(cudaGraphLaunch) R(cudaGraphUpload) R(cudaHostRegister) R(cudaHostUnregister)
R(cudaIpcCloseMemHandle) R(cudaIpcGetEventHandle) R(cudaIpcGetMemHandle) R(cudaIpcOpenEventHandle)
R(cudaIpcOpenMemHandle) R(cudaLaunchHostFunc) R(cudaMalloc3DArray) R(cudaMallocArray) R(cudaMallocAsync)
R(cudaMallocFromPoolAsync) R(cudaMallocManaged) R(cudaMemAdvise) R(cudaMemPoolCreate) R(cudaMemPoolDestroy)
R(cudaMemPoolGetAttribute) R(cudaMemPoolSetAttribute) R(cudaMemPoolTrimTo) R(cudaMemPrefetchAsync) R(cudaMemcpy2D)
R(cudaMemcpy2DAsync) R(cudaMemcpy2DFromArray) R(cudaMemcpy2DFromArrayAsync) R(cudaMemcpy2DToArray)
R(cudaMemcpy2DToArrayAsync) R(cudaMemcpy3D) R(cudaMemcpy3DAsync) R(cudaMemcpyPeer) R(cudaMemcpyPeerAsync)
R(cudaStreamAddCallback) R(cudaStreamBeginCapture) R(cudaStreamEndCapture) R(cudaStreamGetFlags)
R(cudaStreamGetPriority)
